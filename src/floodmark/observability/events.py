"""Internal events as values. Stages emit them; metrics, logs and the dashboard listen.

Times are seconds as floats, because events are created on the hot path and only shown or counted.
"""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

from msgspec import Struct

from floodmark.model.job import Priority


class InternalEvent(Struct, frozen=True, gc=False):
    """An internal event."""


class ExecutionsFired(InternalEvent, frozen=True, gc=False):
    """Executions of due instants were stored. `lateness`: seconds from due to stored, for each."""

    schedule_type: str
    priority: Priority
    lateness: Sequence[float]


class ExecutionsEnqueued(InternalEvent, frozen=True, gc=False):
    """Executions were put on the queue."""

    counts: Mapping[Priority, int]


class ExecutionsLeased(InternalEvent, frozen=True, gc=False):
    """This worker leased executions."""

    counts: Mapping[Priority, int]


class ExecutionStarted(InternalEvent, frozen=True, gc=False):
    """A slot started an execution. `waited`: seconds since it could have started, if known."""

    job_name: str
    execution_id: str
    attempt: int
    waited: float | None = None


class ExecutionSettled(InternalEvent, frozen=True, gc=False):
    """The outcome of an execution was stored. `status` is its new state, as in `State`."""

    job_name: str
    source_id: str | None
    execution_id: str
    status: str
    duration: float
    new: int = 0
    changed: int = 0
    known: int = 0
    error: str | None = None
    source: str = ""
    trace_id: str | None = None


class BatchKept(InternalEvent, frozen=True, gc=False):
    """A batch was committed together with its watermark.

    `age`: seconds since its newest item was created, if it has new items and the stream was collected before.
    """

    stream: str
    new: int
    changed: int
    known: int
    source: str = ""
    age: float | None = None


class PollKept(InternalEvent, frozen=True, gc=False):
    """What a poll of a job with a budget found was committed. `delays`: seconds from creation to storage, per item.

    `expected`: items, or changes, that were expected since the last poll.
    """

    source: str
    found: int
    expected: float
    delays: Sequence[float] = ()


class RequestsSpent(InternalEvent, frozen=True, gc=False):
    """A run spent requests of its budget."""

    budget: str
    count: int


class BudgetTerms(InternalEvent, frozen=True, gc=False):
    """The requests that a budget currently allows per minute, and its price in item-seconds, once it is known."""

    name: str
    per_minute: float
    price: float | None = None


class BudgetsMeasured(InternalEvent, frozen=True, gc=False):
    """The leader read the budgets."""

    budgets: tuple[BudgetTerms, ...] = ()


class BatchRefused(InternalEvent, frozen=True, gc=False):
    """A replaced worker tried to commit a batch: nothing was written."""

    stream: str
    fence: int


class LeaseLost(InternalEvent, frozen=True, gc=False):
    """This worker lost the lease of a running execution."""

    execution_id: str
    job_name: str


class LeaderElectionAttempted(InternalEvent, frozen=True, gc=False):
    """This process tried to get the leader's lease."""

    won: bool


class SchedulerStarted(InternalEvent, frozen=True, gc=False):
    """A scheduler started; as the leader it ticks at least every `interval` seconds."""

    interval: float


class SchedulerTicked(InternalEvent, frozen=True, gc=False):
    """The leader looked for due jobs, at this time of the database."""

    at: datetime


class LeaderChanged(InternalEvent, frozen=True, gc=False):
    """This process became the leader or stopped being it; `holder` is the current leader, if known."""

    is_leader: bool
    holder: str | None


class ProcessDied(InternalEvent, frozen=True, gc=False):
    """A process was found dead and its leases were released. `is_certain`: not only a lock is missing."""

    worker: str
    is_certain: bool


class ExecutionsRescued(InternalEvent, frozen=True, gc=False):
    """Executions of workers that stopped responding were queued again."""

    count: int


class ExecutionsGivenUp(InternalEvent, frozen=True, gc=False):
    """Executions were rescued too often and became dead letters; their number by source."""

    counts: Mapping[str, int]


class ExecutionsOffered(InternalEvent, frozen=True, gc=False):
    """This worker offered executions to the workers that are preferred for them."""

    count: int


class ExecutionsRequeued(InternalEvent, frozen=True, gc=False):
    """Executions that the queue had lost were put again."""

    count: int


class EventsRelayed(InternalEvent, frozen=True, gc=False):
    """Events left the outbox. `lag`: age in seconds of the oldest event that is still in it."""

    count: int
    lag: float


class ItemsIndexed(InternalEvent, frozen=True, gc=False):
    """Items were added to the search index. `lag`: age in seconds of the oldest event that is not in it."""

    count: int
    lag: float


class IndexBegun(InternalEvent, frozen=True, gc=False):
    """The search index is built from the beginning, because of `reason`."""

    reason: str


class EventsDelivered(InternalEvent, frozen=True, gc=False):
    """The receiver of a sink has accepted events."""

    sink: str
    count: int


class SinkFailed(InternalEvent, frozen=True, gc=False):
    """Events could not be delivered; they are sent again later."""

    sink: str
    error: str


class SinkMeasured(InternalEvent, frozen=True, gc=False):
    """How far a configured sink is behind."""

    sink: str
    lag_events: int
    lag_seconds: float
    dead_letters: int
    is_paused: bool


class SinksMeasured(InternalEvent, frozen=True, gc=False):
    """The leader has measured the sinks."""

    sinks: tuple[SinkMeasured, ...] = ()


class StoreRetried(InternalEvent, frozen=True, gc=False):
    """A statement failed with a transient error and was retried."""

    operation: str
    reason: str


class QueueDegraded(InternalEvent, frozen=True, gc=False):
    """Redis is unavailable; the database is the queue."""

    reason: str


class QueueRestored(InternalEvent, frozen=True, gc=False):
    """Redis is the queue again."""


class LimitSet(InternalEvent, frozen=True, gc=False):
    """All calls with `key` wait until then, in the whole fleet."""

    key: str
    until: datetime
    reason: str


class TriggersFired(InternalEvent, frozen=True, gc=False):
    """Webhooks or messages arrived that can fire jobs."""

    type: str
    count: int = 1


class TriggersMatched(InternalEvent, frozen=True, gc=False):
    """Jobs were fired by webhooks or messages."""

    type: str
    count: int = 1


class TriggersRefused(InternalEvent, frozen=True, gc=False):
    """A webhook or message was refused, for one of a few fixed reasons."""

    type: str
    reason: str


class HintsGiven(InternalEvent, frozen=True, gc=False):
    """Adaptive jobs were hinted. `type` is that of a trigger, `websub` or `telegram`."""

    type: str
    count: int = 1


class HintRefused(InternalEvent, frozen=True, gc=False):
    """A hint was refused, for one of a few fixed reasons."""

    type: str
    reason: str


class BreakerMoved(InternalEvent, frozen=True, gc=False):
    """A circuit breaker is now `closed`, `open` or `half-open`; `domain` is its key, as in `telegram:reader1`.

    `elsewhere`: another process changed it, and this one has just noticed.
    """

    domain: str
    state: str
    reason: str | None = None
    elsewhere: bool = False


class BreakersInUse(InternalEvent, frozen=True, gc=False):
    """This process makes, or may make, calls that these circuit breakers protect; their states are not known yet."""

    keys: Sequence[str]


class CallRetried(InternalEvent, frozen=True, gc=False):
    """An outgoing call failed and is retried after `delay` seconds. `attempt`: the one that failed.

    `reason` is the class name of the error; `scope` the called system, as in `telegram:reader1` or `redis`.
    """

    target: str
    method: str
    attempt: int
    delay: float
    reason: str
    scope: str = ""


class RateLimited(InternalEvent, frozen=True, gc=False):
    """A source responded with a rate limit of this many seconds. `scope`: the limited client, as in `telegram:reader1`.

    `reason` is the class name of the error, never free text.
    """

    source: str
    scope: str
    method: str
    target: str
    seconds: float
    reason: str


class ModeChosen(InternalEvent, frozen=True, gc=False):
    """The mode in which a channel will be read; `forced` is the reason if the watermark implies another mode."""

    stream: str
    mode: str
    forced: str | None = None


class RunEnded(InternalEvent, frozen=True, gc=False):
    """The run of a channel ended. `status`: done, empty, waiting or failed."""

    stream: str
    channel_id: int | None
    mode: str
    status: str
    seconds: float
    parsed: int = 0


class FetchTimed(InternalEvent, frozen=True, gc=False):
    """A page of a chat arrived after `seconds`; its newest message, if any, is `lag` seconds old."""

    chat: str
    seconds: float
    lag: float | None = None


class MediaStored(InternalEvent, frozen=True, gc=False):
    """A file of a post was downloaded: its kind and its size in bytes."""

    kind: str
    size: int


class PagesVisited(InternalEvent, frozen=True, gc=False):
    """A crawl visited pages; their number by result, as in `floodmark_pages_total`."""

    counts: Mapping[str, int]


class HttpRequested(InternalEvent, frozen=True, gc=False):
    """An HTTP request ended: `status` is 2xx, 3xx, 4xx, 5xx, refused or failed."""

    status: str


class ScanEnded(InternalEvent, frozen=True, gc=False):
    """A cookie scan ended: the `result` of the report, or `failed`."""

    result: str


class NotificationSent(InternalEvent, frozen=True, gc=False):
    """A notification was sent or failed: `channel` is the name of its entry point; `result` is sent or failed."""

    channel: str
    result: str


class WatchesEvaluated(InternalEvent, frozen=True, gc=False):
    """Watches were evaluated on events. `suppressed`: matches of back-fill. `lag`: seconds since the last was kept."""

    events: int
    matches: int
    suppressed: int
    lag: float


class MetricsPushed(InternalEvent, frozen=True, gc=False):
    """Metrics were pushed to the Pushgateway at `at` (Unix time); `error` is the reason of a failure."""

    at: float
    error: str | None = None


class AccountParked(InternalEvent, frozen=True, gc=False):
    """An account was parked; its jobs wait for a person."""

    account: str
    reason: str


class StepFailed(InternalEvent, frozen=True, gc=False):
    """A step of a service failed; the service continues."""

    step: str
    error: str


class SchedulesSynced(InternalEvent, frozen=True, gc=False):
    """Schedules were synced from API_URL; `errors` of them could not become jobs."""

    who: str
    created: int
    updated: int
    skipped: int
    disabled: int
    errors: int


class SyncFieldsIgnored(InternalEvent, frozen=True, gc=False):
    """The response of API_URL has unknown fields, which are ignored."""

    fields: tuple[str, ...]


class SlotsChanged(InternalEvent, frozen=True, gc=False):
    """The number of busy slots of this worker changed."""

    size: int
    busy: int


class DepthMeasured(InternalEvent, frozen=True, gc=False):
    """The leader measured the number of queued executions by priority."""

    depths: Mapping[Priority, int]


class StateMeasured(InternalEvent, frozen=True, gc=False):
    """The leader counted rows in the database. `outbox_lag`: age in seconds of the oldest unsent event."""

    dead_letters: int
    limits: int
    parked_accounts: int
    stale_sources: int
    outbox_pending: int
    outbox_lag: float


class GapsMeasured(InternalEvent, frozen=True, gc=False):
    """The leader counted the gaps of targets, by source."""

    gaps: Mapping[str, int] = {}


class UnfinishedChannel(InternalEvent, frozen=True, gc=False):
    """A channel with an unfinished run, and the time when its high-water mark last moved."""

    channel_id: str
    name: str
    moved_at: datetime


class UnfinishedChannelsMeasured(InternalEvent, frozen=True, gc=False):
    """The leader found these channels with an unfinished run, the longest without progress first."""

    channels: tuple[UnfinishedChannel, ...] = ()


class InvalidJob(InternalEvent, frozen=True, gc=False):
    """A job cannot be scheduled until someone corrects it."""

    job_name: str
    reason: str


class WorkerDraining(InternalEvent, frozen=True, gc=False):
    """A worker takes no more executions; `running` executions are unfinished."""

    worker: str
    running: int


E = TypeVar("E", bound=InternalEvent)


class Events:
    """Calls listeners at once, in the thread of the caller.

    A listener must be quick and must not wait. Its errors do not affect the caller: the first failure of each kind is
    logged with its traceback, and all are counted in `failures`.
    """

    def __init__(self) -> None:
        self.failures: Counter[str] = Counter()
        self._listeners: dict[type[InternalEvent], tuple[Callable[[Any], None], ...]] = {}
        self._preparations: list[Callable[[], None]] = []
        self._lock = threading.Lock()

    def before_first(self, prepare: Callable[[], None]) -> None:
        """Call `prepare` once, before the first event: it adds listeners that take long to create."""
        self._preparations.append(prepare)

    def prepare(self) -> None:
        """Do what was to be done before the first event, unless it is done."""
        with self._lock:
            while self._preparations:
                self._preparations[0]()
                del self._preparations[0]

    def listen(self, event_type: type[E], callback: Callable[[E], None]) -> Callable[[], None]:
        """Call back for every event of exactly this type. Returns a function that ends it."""
        # Tuples are replaced, never changed: an emission under way is not disturbed.
        self._listeners[event_type] = (*self._listeners.get(event_type, ()), callback)

        def stop() -> None:
            self._listeners[event_type] = tuple(c for c in self._listeners[event_type] if c is not callback)

        return stop

    def emit(self, event: InternalEvent) -> None:
        """Call all listeners of this type of event. Never raises."""
        if self._preparations:
            self.prepare()
        for callback in self._listeners.get(type(event), ()):
            try:
                callback(event)
            except Exception as error:  # noqa: BLE001 - watching must not break the work; it is reported below
                self._report(callback, event, error)

    def _report(self, callback: Callable[[Any], None], event: InternalEvent, error: Exception) -> None:
        kind = f"{getattr(callback, '__qualname__', repr(callback))} on {type(event).__name__}"
        self.failures[kind] += 1
        if self.failures[kind] == 1:
            logging.getLogger(__name__).error("a listener failed: %s", kind, exc_info=error)
