"""Deletes old executions and events."""

from datetime import timedelta

from floodmark.store.port import Upkeep

_AT_ONCE = 1000


class Pruner:
    """Deletes old history and sent events in small portions. Runs only on the leader."""

    def __init__(self, upkeep: Upkeep, *, history: timedelta, events: timedelta, most: int | None = None) -> None:
        self._upkeep, self._history, self._events, self._most = upkeep, history, events, most

    async def step(self) -> timedelta | None:
        """Delete one portion; returns a short pause while there may be more."""
        pruned = await self._upkeep.prune(history=self._history, events=self._events, limit=_AT_ONCE, most=self._most)
        return timedelta(seconds=1) if pruned >= _AT_ONCE else None
