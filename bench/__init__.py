"""Benchmarks: one command each, with ratios to a reference that is measured in the same run."""
