"""Patterns of stream names, such as `telegram:*`: `*` is any text, `?` any character."""

import re
from collections.abc import Iterable
from fnmatch import translate
from typing import Self

LONGEST_PATTERNS = 2000
_WILD = re.compile(r"[*?]")


def is_pattern(text: str) -> bool:
    """Return whether a text is a pattern, rather than a name."""
    return _WILD.search(text) is not None


class StreamPatterns:
    """Several patterns. A stream matches if one of them does; without patterns none does."""

    def __init__(self, patterns: Iterable[str] = ()) -> None:
        self._patterns = tuple(dict.fromkeys(patterns))
        # `translate` makes a regular expression without backtracking; brackets have no meaning here.
        self._compiled = [re.compile(translate(text.replace("[", "[[]"))) for text in self._patterns]

    @classmethod
    def parse(cls, text: str | None) -> Self:
        """Return patterns that are separated by commas."""
        if text is not None and len(text) > LONGEST_PATTERNS:
            raise ValueError(f"the patterns are longer than {LONGEST_PATTERNS:,} characters")
        return cls(part.strip() for part in (text or "").split(",") if part.strip())

    def __bool__(self) -> bool:
        return bool(self._compiled)

    @property
    def text(self) -> str | None:
        """The patterns, separated by commas; None if there are none."""
        return ",".join(self._patterns) or None

    def match(self, stream: str) -> bool:
        """Return whether one of the patterns matches the whole name."""
        return any(pattern.match(stream) for pattern in self._compiled)
