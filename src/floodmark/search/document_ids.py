"""The numbers of documents in an index. Pure.

They follow the time of an item, so that the newest items of a long list of hits are found without reading all of them.
A second has 1,024 numbers. Further items of that second take numbers of later seconds, and the index remembers by how
many seconds an item was moved at most (`moved`).
"""

from collections.abc import Callable
from datetime import UTC, datetime

_ORIGIN = datetime(1, 1, 1, tzinfo=UTC)
_BITS = 10
_PER_SECOND = 1 << _BITS


def second_of(at: datetime) -> int:
    """Return the seconds since the year 1."""
    since = at - _ORIGIN
    return since.days * 86_400 + since.seconds


def first_id(second: int) -> int:
    """Return the first number of a second."""
    return second << _BITS


def second_of_id(document_id: int) -> int:
    """Return the second of a number."""
    return document_id >> _BITS


def ids_between(since: datetime | None, until: datetime | None, moved: int) -> tuple[int, int]:
    """Return the first number, and the number after the last, of items from `since` until before `until`."""
    first = 0 if since is None else first_id(second_of(since))
    return first, 2**62 if until is None else first_id(second_of(until) + 1 + moved)


class IdAllocator:
    """Gives numbers to new documents. `last_in` returns the greatest number that a second has, None if it has none."""

    def __init__(self, last_in: Callable[[int], int | None]) -> None:
        self._last_in, self._next = last_in, dict[int, int]()
        self.moved = 0
        """By how many seconds a document was moved at most."""

    def allocate(self, at: datetime) -> int:
        """Return the number of a new document."""
        second = wanted = second_of(at)
        while (found := self._next_in(second)) >= first_id(second + 1):
            # Twice as far each time: the next seconds are probably full too.
            second = max(second + 1, wanted + 2 * (second - wanted))
        self._next[second] = found + 1
        self.moved = max(self.moved, second - wanted)
        return found

    def _next_in(self, second: int) -> int:
        if second not in self._next:
            last = self._last_in(second)
            self._next[second] = first_id(second) if last is None else last + 1
        return self._next[second]
