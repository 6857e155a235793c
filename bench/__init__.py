"""Benchmarks: one command each, with ratios to a reference that is measured in the same run."""

import sys
from pathlib import Path

# The servers of the tests are those of the benchmarks.
sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
