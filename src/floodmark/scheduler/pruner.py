"""Forgets what ended long ago."""

from datetime import timedelta

from floodmark.store.port import Upkeep

_AT_ONCE = 1000


class Pruner:
    """Deletes old history and events that were sent, a little at a time. Only the leader prunes."""

    def __init__(self, upkeep: Upkeep, *, history: timedelta, events: timedelta, most: int | None = None) -> None:
        self._upkeep, self._history, self._events = upkeep, history, events
        self._most = most

    async def step(self) -> timedelta | None:
        """One portion."""
        pruned = await self._upkeep.prune(history=self._history, events=self._events, limit=_AT_ONCE, most=self._most)
        return timedelta(seconds=1) if pruned >= _AT_ONCE else None
