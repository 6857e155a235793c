"""The store's ports for the hot path. Each method is one transaction for many rows.

There are two implementations with the same files: `postgres/` and `sqlite/`.
Leases use the clock of the database; on SQLite, which runs on one machine, the clock of the process.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, Protocol

from msgspec import Struct

from floodmark.model.batch import Batch, Kept
from floodmark.model.execution import Hold, Lease, Queued, State
from floodmark.model.job import SCHEDULER_VERSION, DueJob, Priority
from floodmark.model.outcome import Outcome
from floodmark.rules.budgets import Terms


class NewExecution(Struct, frozen=True, kw_only=True, gc=False):
    """An execution to be written."""

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
    """The scheduler's decision about one due job."""

    job: DueJob
    executions: tuple[NewExecution, ...]
    next_run: datetime | None
    planned_until: datetime
    replace: bool = False
    invalid_reason: str | None = None


class Fired(Struct, frozen=True, kw_only=True, gc=False):
    """The result of a fire step: executions to put on the queue, jobs examined, and when the next job is due."""

    queued: Sequence[Queued]
    written: int
    looked_at: int
    next_due: datetime | None
    now: datetime


Decide = Callable[[Sequence[DueJob], datetime], Sequence[Decision]]
DecideInBudget = Callable[[Terms, Sequence[DueJob], datetime], Sequence[Decision]]


class Firing(Protocol):
    """The scheduler's part of the store."""

    async def fire(self, decide: Decide, *, limit: int) -> Fired:
        """Read up to `limit` due or unplanned jobs, call `decide`, and write its decisions.

        Two schedulers never process a job at the same time, and an instant is written only once.
        """
        ...

    async def hand_out(self, decide: DecideInBudget, *, limit: int) -> Fired:
        """Fire as many adaptive jobs as the budgets allow now, and adjust the prices.

        Hinted jobs come first, then those that are due first, also before they are due.
        """
        ...


class AuditText(Struct, frozen=True, kw_only=True, gc=False):
    """The entry of a requested run in the audit log; `after` is JSON."""

    who: str
    via: str
    request_id: str | None
    after: str


class RunRequest(Struct, frozen=True, kw_only=True, gc=False):
    """A requested execution. `job` is the exact name or id of a job; `params` is JSON.

    With `version` it is refused if the job is not at this version. With `audit` it is recorded in the audit log.
    """

    execution_id: str
    job: str
    scheduled_for: datetime
    trigger: str
    params: str | None = None
    traceparent: str | None = None
    version: int | None = None
    audit: AuditText | None = None


class RunAnswer(Struct, frozen=True, kw_only=True, gc=False):
    """The answer to a requested execution.

    `job_id` is None if there is no such job. Nothing is written unless `is_written`. `reason` says why it waits.
    """

    job_id: str | None = None
    name: str = ""
    version: int = 0
    scheduler_version: int = 0
    is_written: bool = False
    scheduled_for: datetime | None = None
    reason: str | None = None


def is_accepted(request: RunRequest, answer: RunAnswer) -> bool:
    """Return whether an execution of the job that was found may be written."""
    is_right = request.version is None or request.version == answer.version
    return answer.job_id is not None and answer.scheduler_version == SCHEDULER_VERSION and is_right


class Forcing(Protocol):
    """Creates executions that people and programs ask for."""

    async def force(self, requests: Sequence[RunRequest]) -> list[RunAnswer]:
        """Write the requested executions with their audit entries, in one transaction; queued, or waiting.

        One waits for an earlier execution of its job that is queued, running or waiting for another. It is scheduled
        for the first free microsecond of its job from `scheduled_for` on. Writing a request twice changes nothing.
        """
        ...


class Spent(Struct, frozen=True, kw_only=True, gc=False):
    """The answer of a budget: in how many seconds the request may be made, or asked for again if it is refused."""

    seconds: float
    is_refused: bool = False


class Spending(Protocol):
    """The budgets of requests."""

    async def spend(self, budget: str, execution_id: str, *, patience: timedelta) -> Spent | None:
        """Take the next request of a budget if it is free within `patience`. None: there is no such budget.

        All processes together never get more requests than the budget allows.
        """
        ...


class Settlement(Struct, frozen=True, kw_only=True, gc=False):
    """A lease and its outcome."""

    lease: Lease
    outcome: Outcome
    duration: float


class Settled(Struct, frozen=True, kw_only=True, gc=False):
    """The result of a settle step: which leases were still ours, and the executions that can start now."""

    mine: list[bool]
    woken: list[Queued]


class Extended(Struct, frozen=True, kw_only=True, gc=False):
    """The result of a heartbeat: leases that have passed to other workers, and executions to cancel, with reasons."""

    lost: frozenset[str]
    cancelled: dict[str, str]


class Offer(Struct, frozen=True, kw_only=True, gc=False):
    """A lease that this worker gives up for the preferred worker."""

    lease: Lease
    worker: str


class Leasing(Protocol):
    """The worker's part of the store: leases, offers and outcomes."""

    async def prepare(self) -> None:
        """Connect and plan statements, so that the first claim is as fast as any other. Changes nothing."""
        ...

    async def claim(self, ids: Sequence[str], *, worker: str, ttl: timedelta) -> list[Lease]:
        """queued -> running for those of `ids` that may start now; park or cancel the others."""
        ...

    async def claim_next(self, limit: int, *, worker: str, ttl: timedelta) -> list[Lease]:
        """The same for the first `limit` executions in line."""
        ...

    async def offer(self, offers: Sequence[Offer], *, within: timedelta) -> list[bool]:
        """running -> waiting: only the named worker may claim it `within` this time, then any worker.

        Costs no attempt. False for each lease that has passed to another worker or is to be cancelled: it stays as it
        is.
        """
        ...

    async def claim_offers(self, limit: int, *, worker: str, ttl: timedelta, within: timedelta) -> list[Lease]:
        """waiting -> running for executions that are offered to `worker`; those that may not start stay."""
        ...

    async def extend(self, leases: Sequence[Lease], *, ttl: timedelta) -> Extended:
        """Extend the leases by `ttl`."""
        ...

    async def settle(self, settlements: Sequence[Settlement]) -> Settled:
        """Write the outcomes; in the same transaction queue the next execution of each job that waited for them.

        The caller puts `woken` on the queue. A lease that has passed to another worker is not settled.
        """
        ...


class Rescued(Struct, frozen=True, kw_only=True):
    """The result of a rescue: executions queued again, and the number of dead ones by source."""

    queued: list[Queued]
    dead: Mapping[str, int]


class QueuePlace(NamedTuple):
    """A place in the order of the queue."""

    rank: datetime
    execution_id: str


FIRST_PLACE = QueuePlace(datetime.fromtimestamp(0, UTC), "")


class InQueue(NamedTuple):
    """A queued execution and its place."""

    queued: Queued
    place: QueuePlace


class Upkeep(Protocol):
    """The leader's maintenance: waking, rescuing, requeuing, pruning."""

    async def wake(self, *, limit: int) -> list[Queued]:
        """waiting -> queued for executions whose time has come or whose hold has ended."""
        ...

    async def rescue(self, *, limit: int, rescue_max: int) -> Rescued:
        """running -> queued for executions whose lease has expired; dead after `rescue_max` without progress."""
        ...

    async def queued(self, *, after: QueuePlace, older_than: timedelta, limit: int) -> list[InQueue]:
        """Return executions that have been queued for `older_than`, in order, to put them on the queue again."""
        ...

    async def prune(self, *, history: timedelta, events: timedelta, limit: int, most: int | None = None) -> int:
        """Delete up to `limit` ended executions older than `history`, or than the `most` newest ones.

        Sent events are deleted after `events`. Returns the number of deleted rows.
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
    """An event to be sent, with the trace of its batch, if there is one."""

    traceparent: str | None = None


Publish = Callable[[Sequence[Unsent]], Awaitable[None]]


class Keeping(Protocol):
    """The sink's part of the store: items, watermark and events in one transaction."""

    async def keep(self, lease: Lease, batch: Batch) -> Kept:
        """Keep a batch and move the watermark, or raise `Fenced` and change nothing."""
        ...

    async def relay(self, publish: Publish, *, limit: int) -> int:
        """Number the unsent events in order, and pass them to `publish` before they are marked as sent."""
        ...
