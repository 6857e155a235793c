"""What the stages ask of the store on the hot path. Each method is one transaction for many rows.

Two implementations, `postgres/` and `sqlite/`, file by file the same: firing, leasing, keeping.
All lease arithmetic uses the clock of the database; SQLite, being one machine, that of the process.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Protocol

from msgspec import Struct

from floodmark.model.batch import Batch, Kept
from floodmark.model.execution import Hold, Lease, Queued, State
from floodmark.model.job import DueJob, Priority
from floodmark.model.outcome import Outcome


class NewExecution(Struct, frozen=True, kw_only=True, gc=False):
    """An execution about to be written down."""

    execution_id: str
    scheduled_for: datetime
    state: State
    priority: Priority
    trigger: str = "schedule"
    coalesced: int = 0
    reason: str | None = None
    hold: Hold | None = None
    not_before: datetime | None = None
    traceparent: str | None = None


class Decision(Struct, frozen=True, kw_only=True, gc=False):
    """What the scheduler decided about one due job."""

    job: DueJob
    executions: tuple[NewExecution, ...]
    next_run: datetime | None
    planned_until: datetime
    replace: bool = False
    invalid_reason: str | None = None


class Fired(Struct, frozen=True, kw_only=True, gc=False):
    """What a fire step wrote: what can be queued now, how many jobs were looked at, when to look again."""

    queued: Sequence[Queued]
    written: int
    looked_at: int
    next_due: datetime | None
    now: datetime


Decide = Callable[[Sequence[DueJob], datetime], Sequence[Decision]]


class Firing(Protocol):
    """The scheduler's half."""

    async def fire(self, decide: Decide, *, limit: int) -> Fired:
        """Take up to `limit` due or unplanned jobs, let `decide` say what becomes of them, and write that.

        Two schedulers at once never see the same job; an instant is written once whoever comes second.
        """
        ...


class Settlement(Struct, frozen=True, kw_only=True, gc=False):
    """A lease and how it ended."""

    lease: Lease
    outcome: Outcome
    duration: float


class Settled(Struct, frozen=True, kw_only=True, gc=False):
    """What a settle step wrote: which leases were still ours, and the executions that can start because of it."""

    mine: list[bool]
    woken: list[Queued]


class Extended(Struct, frozen=True, kw_only=True, gc=False):
    """What a heartbeat learnt: leases that have passed to others, and those someone wants cancelled."""

    lost: frozenset[str]
    cancelled: dict[str, str]


class Leasing(Protocol):
    """The worker's half: who runs what, and how it ended."""

    async def prepare(self) -> None:
        """Make ready, so that the first claim is as quick as any other. Changes nothing."""
        ...

    async def claim(self, ids: Sequence[str], *, worker: str, ttl: timedelta) -> list[Lease]:
        """queued -> running for those of `ids` that may start now; the others are parked or dropped."""
        ...

    async def claim_next(self, limit: int, *, worker: str, ttl: timedelta) -> list[Lease]:
        """The same for whatever is first in line."""
        ...

    async def extend(self, leases: Sequence[Lease], *, ttl: timedelta) -> Extended:
        """Keep them for another `ttl`."""
        ...

    async def settle(self, settlements: Sequence[Settlement]) -> Settled:
        """Write the outcomes; in the same transaction queue the next execution of each job that waited for them.

        Put its `woken` on the queue. A lease that had already passed to another worker is not settled.
        """
        ...


class Rescued(Struct, frozen=True, kw_only=True):
    """What became of executions whose worker went silent: those queued again, and how many died, by source."""

    queued: list[Queued]
    dead: Mapping[str, int]


class Upkeep(Protocol):
    """The leader's broom: brings back what is due again or was left lying."""

    async def wake(self, *, limit: int) -> list[Queued]:
        """waiting -> queued for those whose time has come or whose hold is gone."""
        ...

    async def rescue(self, *, limit: int, rescue_max: int) -> Rescued:
        """running -> queued for those whose worker went silent; dead after `rescue_max` without progress."""
        ...

    async def queued(self, *, after: str, older_than: timedelta, limit: int) -> list[Queued]:
        """Executions that have been queued for a while, in order of id, to be put on the queue again."""
        ...

    async def prune(self, *, history: timedelta, events: timedelta, limit: int, most: int | None = None) -> int:
        """Delete up to `limit` executions that ended and are older than `history`, or than the `most` newest ones.

        Events that were sent go after `events`. Returns how many rows were deleted.
        """
        ...


class Event(Struct, frozen=True, kw_only=True, gc=False):
    """A new, changed or deleted item of a stream, for readers. `event_id` is stable: deduplicate by it.

    `type` is the type of `data`, which is JSON. It is the `kind`, and `data` is the item; for a post of a channel it is
    `PostParsedEventV1` or a similar type, and `data` follows the schema of that name.
    """

    event_id: str
    position: int
    stream: str
    key: str
    revision: int
    kind: str
    type: str
    tenant_id: str | None
    user_id: str | None
    occurred_at: datetime | None
    collected_at: datetime
    data: str


class Unsent(Event, frozen=True, kw_only=True, gc=False):
    """An event on its way out, with the batch it comes from, if that was traced."""

    traceparent: str | None = None


Publish = Callable[[Sequence[Unsent]], Awaitable[None]]


class Keeping(Protocol):
    """The sink's half: items, watermark and events in one transaction."""

    async def keep(self, lease: Lease, batch: Batch) -> Kept:
        """Keep a batch and move the watermark, or raise `Fenced` and change nothing."""
        ...

    async def relay(self, publish: Publish, *, limit: int) -> int:
        """Number the events not yet sent, in order, and hand them to `publish` before that is committed."""
        ...
