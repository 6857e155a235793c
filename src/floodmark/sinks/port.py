"""Where items and events go."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

from floodmark.extensions.services import Services
from floodmark.model.batch import Batch, Kept
from floodmark.model.execution import Lease
from floodmark.store.port import Event

# The group of entry points. Each names an `OpenSink`.
SINKS = "floodmark.sinks"


class Sink(Protocol):
    """Keeps items and moves the watermark, both or neither."""

    async def keep(self, lease: Lease, batch: Batch) -> Kept:
        """Keep a batch under the lease's fence; raises `Fenced` and changes nothing once that has been passed on."""
        ...


class EventSink(Protocol):
    """Delivers events to another system: in order, at least once.

    The leader sends. Its position is stored in the database after each `send`, and a new leader goes on from there.
    A sink that is new begins with the oldest event that is kept. A sink that is an async context manager is entered
    before its first `send` and left at the end.

    With `is_relayed = True` the sink is called in the transaction that numbers the events: it gets them soonest and
    needs no position of its own, but it must take all of them, and while it fails nobody else gets new events.
    """

    @property
    def place(self) -> str:
        """Where the events go, without secrets. When this changes, delivery begins as for a new sink."""
        ...

    async def send(self, events: Sequence[Event]) -> int | None:
        """Deliver these events in this order; return once they are safe. After an error the same events come again.

        A sink that takes only the first of them returns how many; the others come with the next `send`. After a crash
        events may come again under the same `event_id`.
        """
        ...


OpenSink = Callable[[Services], EventSink | None]
"""Makes a sink with the services of the process; None: it is not configured."""


@runtime_checkable
class FillsFirst(Protocol):
    """A sink that first gets everything that is stored, and then the events: old events are deleted, items are not."""

    async def fill(self, after: Any) -> Any:
        """Deliver the next portion of what is stored. Return where the next one begins, as JSON; None at the end.

        `after` is what was returned last; an empty object at the beginning.
        """
        ...
