"""Patterns of stream names: `telegram:*` matches every stream of the source telegram."""

LONGEST_PATTERNS = 2000


class StreamPatterns:
    """Matches streams by patterns, separated by commas. `*` stands for any characters; without patterns all match."""

    def __init__(self, text: str | None = None) -> None:
        if text is not None and len(text) > LONGEST_PATTERNS:
            raise ValueError(f"the patterns are longer than {LONGEST_PATTERNS:,} characters")
        patterns = [part.strip() for part in (text or "").split(",") if part.strip()]
        self.text = ",".join(patterns) or None
        self._patterns = [pattern.split("*") for pattern in patterns]

    def matches(self, stream: str) -> bool:
        """Return whether a stream matches one of the patterns."""
        return not self._patterns or any(_matches(pieces, stream) for pieces in self._patterns)


def _matches(pieces: list[str], text: str) -> bool:
    """Return whether the pieces occur in this order, the first at the start and the last at the end.

    Taking each piece where it occurs first is enough, so the time is linear.
    """
    if len(pieces) == 1:
        return text == pieces[0]
    first, *middle, last = pieces
    if not text.startswith(first):
        return False
    at, end = len(first), len(text) - len(last)
    for piece in middle:
        found = text.find(piece, at, end)
        if found < 0:
            return False
        at = found + len(piece)
    return at <= end and text.endswith(last)
