"""The ports of sinks for items and events."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol, runtime_checkable

from msgspec import Struct

from floodmark.errors import SourceError
from floodmark.extensions.services import Services
from floodmark.model.batch import Batch, Kept
from floodmark.model.execution import Lease
from floodmark.store.port import Event

# The group of entry points. Each names an `OpenSink`; its name is the kind of the sink.
SINKS = "floodmark.sinks"


class Sink(Protocol):
    """Stores items and moves the watermark, both or neither."""

    async def keep(self, lease: Lease, batch: Batch) -> Kept:
        """Store a batch under the fence of the lease; raise `Fenced` and change nothing if another worker has taken
        over.
        """
        ...


class EventsRefused(SourceError):
    """The receiver will never accept the first `among` events, or one of them.

    Several are sent again in smaller groups, to find it. An event that is refused alone becomes a dead letter of the
    sink, and delivery goes on with the next one.
    """

    def __init__(self, message: str, *, among: int = 1, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.among = among


class EventSink(Protocol):
    """Delivers events to another system: in order, at least once.

    Only the leader sends. Its position is stored in the database after each `send`, and a new leader continues from
    there. A new sink starts with the oldest stored event. A sink that is an async context manager is entered before its
    first `send` and exited at the end. Each sink is served on its own: one that is slow or fails delays no other.
    """

    @property
    def place(self) -> str:
        """Return the destination of the events, without secrets. When it changes, delivery starts as for a new sink."""
        ...

    async def send(self, events: Sequence[Event]) -> int | None:
        """Deliver these events in this order; return once they are stored there. After an error the same events are
        sent again: `Transient` at once, any other after a growing pause, `SlowDown` after the time it names.

        A sink that accepts only the first of them returns their number; the others are sent with the next `send`. After
        a crash events may be sent again with the same `event_id`. `EventsRefused` makes dead letters.
        """
        ...


OpenSink = Callable[[Services], EventSink | None]
"""Makes a sink with the services of the process; None: it is not configured."""


class SinkTraits(Struct, frozen=True, kw_only=True):
    """How Floodmark treats a sink that has an attribute `traits`."""

    starts: Literal["oldest", "newest"] = "oldest"
    """Whether a new sink first gets the stored events, or only those to come."""
    restarts_elsewhere: bool = True
    """Whether delivery starts again when the place changes. Otherwise it goes on there."""
    rest: int = 0
    """A sink that is up to date rests for this many times as long as the delivery took."""


@runtime_checkable
class FillsFirst(Protocol):
    """A sink that first gets all stored items and then the events: old events are deleted, items are not."""

    async def fill(self, after: Any) -> Any:
        """Deliver the next page of stored items. Return the start of the next page, as JSON; None at the end.

        `after` is the last returned value; an empty object at the start.
        """
        ...


@runtime_checkable
class SendsTests(Protocol):
    """A sink that can send an event of the kind `test`, whose position is 0."""

    async def send_test(self, event: Event) -> None:
        """Send a test event; return once it is accepted."""
        ...
