"""Benchmarks: one command each, ratios against a reference measured in the same run."""
