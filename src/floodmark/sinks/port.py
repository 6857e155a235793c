"""The ports of sinks for items and events."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

from floodmark.extensions.services import Services
from floodmark.model.batch import Batch, Kept
from floodmark.model.execution import Lease
from floodmark.store.port import Event

# The group of entry points. Each names an `OpenSink`.
SINKS = "floodmark.sinks"


class Sink(Protocol):
    """Stores items and moves the watermark, both or neither."""

    async def keep(self, lease: Lease, batch: Batch) -> Kept:
        """Store a batch under the fence of the lease; raise `Fenced` and change nothing if another worker has taken
        over.
        """
        ...


class EventSink(Protocol):
    """Delivers events to another system: in order, at least once.

    Only the leader sends. Its position is stored in the database after each `send`, and a new leader continues from
    there. A new sink starts with the oldest stored event. A sink that is an async context manager is entered before its
    first `send` and exited at the end.

    With `is_relayed = True` the sink is called in the transaction that numbers the events: it gets them soonest and
    needs no position, but it must accept all of them, and while it fails no other sink gets new events.
    """

    @property
    def place(self) -> str:
        """Return the destination of the events, without secrets. When it changes, delivery starts as for a new sink."""
        ...

    async def send(self, events: Sequence[Event]) -> int | None:
        """Deliver these events in this order; return once they are stored there. After an error the same events are
        sent again.

        A sink that accepts only the first of them returns their number; the others are sent with the next `send`. After
        a crash events may be sent again with the same `event_id`.
        """
        ...


OpenSink = Callable[[Services], EventSink | None]
"""Makes a sink with the services of the process; None: it is not configured."""


@runtime_checkable
class FillsFirst(Protocol):
    """A sink that first gets all stored items and then the events: old events are deleted, items are not."""

    async def fill(self, after: Any) -> Any:
        """Deliver the next page of stored items. Return the start of the next page, as JSON; None at the end.

        `after` is the last returned value; an empty object at the start.
        """
        ...
