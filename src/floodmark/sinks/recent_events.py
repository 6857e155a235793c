"""The newest events that this process has numbered, in memory: sinks that are up to date need not read them again."""

from collections import deque
from collections.abc import Sequence
from itertools import islice

from floodmark.store.port import Unsent

_MOST_EVENTS, _MOST_CHARACTERS = 1000, 4_000_000


class RecentEvents:
    """Keeps consecutive events, up to a number and a size."""

    def __init__(self) -> None:
        self._events: deque[Unsent] = deque()
        self._characters = 0

    def add(self, events: Sequence[Unsent]) -> None:
        """Add events that follow the newest ones. If another process has numbered some in between, start again."""
        if self._events and events and events[0].position != self._events[-1].position + 1:
            self._events.clear()
            self._characters = 0
        for event in events:
            self._events.append(event)
            self._characters += len(event.data)
        while self._events and (len(self._events) > _MOST_EVENTS or self._characters > _MOST_CHARACTERS):
            self._characters -= len(self._events.popleft().data)

    def after(self, position: int, limit: int, *, newest: int) -> list[Unsent] | None:
        """Return up to `limit` events after a position, none beyond `newest`; None if the first one is not here."""
        first = self._events[0].position if self._events else newest + 1
        begin, last = position + 1 - first, min(newest + 1 - first, len(self._events))
        if begin < 0 or begin >= last:
            return None
        return list(islice(self._events, begin, min(last, begin + limit)))
