"""Sizes in bytes as people write and read them."""

import re

from floodmark.errors import InvalidInput

_UNITS = {"": 1, "b": 1, "kb": 1_000, "mb": 1_000**2, "gb": 1_000**3, "kib": 1024, "mib": 1024**2, "gib": 1024**3}
_SIZE = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)\s*([a-z]*)", re.ASCII)


def parse_size(text: str) -> int:
    """Return the bytes of a text such as "20MB" or "1.5 GiB"; a bare number is bytes."""
    found = _SIZE.fullmatch(text.strip().lower())
    if found is None or found[2] not in _UNITS or not float(found[1]):
        raise InvalidInput(f"{text[:40]!r} is not a size", hint="write it like 500KB, 20MB or 2GB")
    return round(float(found[1]) * _UNITS[found[2]])


def format_size(size: int) -> str:
    """Return a short text: "532 B", "1.4 MB"."""
    number = float(size)
    for unit in ("B", "KB", "MB", "GB"):
        if number < 1_000:
            return f"{number:.0f} {unit}" if unit == "B" or number >= 100 else f"{number:.1f} {unit}"
        number /= 1_000
    return f"{number:.1f} TB"
