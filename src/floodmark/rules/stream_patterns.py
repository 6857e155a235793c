"""Patterns of stream names: `*` is any text, `?` any character."""

import re
from collections.abc import Iterable
from fnmatch import translate

_WILD = re.compile(r"[*?]")


def is_pattern(text: str) -> bool:
    """Return whether a text is a pattern, rather than a name."""
    return _WILD.search(text) is not None


class StreamPatterns:
    """Several patterns. A stream matches if one of them does; without patterns none does."""

    def __init__(self, patterns: Iterable[str]) -> None:
        # `translate` makes a regular expression without backtracking; brackets have no meaning here.
        self._compiled = [re.compile(translate(text.replace("[", "[[]"))) for text in dict.fromkeys(patterns)]

    def __bool__(self) -> bool:
        return bool(self._compiled)

    def match(self, stream: str) -> bool:
        """Return whether one of the patterns matches the whole name."""
        return any(pattern.match(stream) for pattern in self._compiled)
