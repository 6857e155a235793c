"""Counts of refused deliveries, kept in memory and written in batches.

Anyone may send any number of bad webhooks or messages, so none of them costs a database write of its own: the counts
that `floodmark triggers status` shows are written every few seconds. A killed process loses the last counts.
"""

from collections.abc import Sequence
from datetime import timedelta

from floodmark.model.external_triggers import Kind
from floodmark.observability.events import Events, TriggersRefused

from .triggers import Tally, Triggers

FLUSH_EVERY = timedelta(seconds=2)


class Refusals:
    """The counts of one process. `flush` is the step of a loop."""

    def __init__(self, triggers: Triggers, events: Events) -> None:
        self._triggers, self._events = triggers, events
        self._tally = Tally()

    def refuse(self, kind: Kind, trigger_ids: Sequence[str], reason: str) -> None:
        """Count a delivery that was refused by these triggers. `reason` is one of a few fixed texts."""
        for trigger_id in trigger_ids:
            self._tally.refuse(trigger_id, reason)
        self._events.emit(TriggersRefused(kind, reason))

    def unreadable(self, kind: Kind, subject: str, trigger_ids: Sequence[str], reason: str) -> None:
        """Count a Redis message that cannot be read."""
        self.refuse(kind, trigger_ids, reason)
        self._tally.unreadable.add(f"{kind}:{subject[:200]}: {reason}")

    def unmatched(self, kind: Kind, subject: str) -> None:
        """Count a delivery that matches no job."""
        self._tally.unmatched.add(f"{kind}:{subject[:200]}")

    async def flush(self) -> None:
        """Write the new counts, if any. They are kept while the database is away."""
        if self._tally.is_empty:
            return
        tally, self._tally = self._tally, Tally()
        try:
            await self._triggers.add_tally(tally)
        except BaseException:
            tally.merge(self._tally)
            self._tally = tally
            raise
