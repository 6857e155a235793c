"""Counts as people read them."""


def list_counts(**counts: int) -> str:
    """ "3 new, 12 known"; without the zeros."""
    return ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)
