"""Write targets.md from bench/results.json, which `python3 run.py bench --save` makes, for docs/generate.py."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[2] / "bench" / "results.json"
HEAD = """# Performance targets

<!-- Written by `python3 run.py docs` from bench/results.json, which `python3 run.py bench --save` writes. -->

Every target, with the figure that was measured last. A ratio compares with the reference in the same line, measured in
the same run: the median of the rounds, and in brackets the smallest and the largest one. [Performance](performance.md)
explains the figures.
"""
COLUMNS = ("what", "measured", "reference", "ratio", "target", "verdict")


def page() -> str:
    """Return the targets as Markdown."""
    results: Sequence[Mapping[str, Any]] = json.loads(RESULTS.read_text("utf-8"))
    verdicts = [row["is_met"] for result in results for row in result["rows"] if row["is_met"] is not None]
    summary = f"{sum(verdicts)} of {len(verdicts)} targets are met.\n"
    return "\n".join([HEAD, summary, *(line for result in results for line in _section(result))])


def _section(result: Mapping[str, Any]) -> Iterator[str]:
    rows = [row for row in result["rows"] if row["is_met"] is not None]
    if not rows:
        return
    command = " ".join(("python3 run.py bench", result["benchmark"], *result["arguments"]))
    yield f"## {result['benchmark'].capitalize()}\n"
    yield f"`{command}`, {result['day']}, {result['machine']}.\n"
    yield f"| {' | '.join(COLUMNS)} |"
    yield f"|{'---|' * len(COLUMNS)}"
    for row in rows:
        cells = (*(row[name] for name in COLUMNS[:-1]), "met" if row["is_met"] else "**missed**")
        yield f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"
    yield ""
