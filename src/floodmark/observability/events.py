"""What happened, as values. Stages emit them; metrics, logs and the dashboard listen.

Times are seconds as floats: they are made on the hot path and only ever shown or counted.
"""

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

from msgspec import Struct

from floodmark.model.job import Priority


class Event(Struct, frozen=True, gc=False):
    """Something that happened."""


class ExecutionsFired(Event, frozen=True, gc=False):
    """Instants were due and executions were written. `lateness`: seconds from due to written, of each."""

    schedule_type: str
    priority: Priority
    lateness: Sequence[float]


class ExecutionsEnqueued(Event, frozen=True, gc=False):
    """Executions were put on the queue."""

    counts: Mapping[Priority, int]


class ExecutionsLeased(Event, frozen=True, gc=False):
    """Executions were handed to this worker."""

    counts: Mapping[Priority, int]


class ExecutionStarted(Event, frozen=True, gc=False):
    """A slot began to run an execution. `waited`: seconds since it could have been run, when known."""

    job_name: str
    execution_id: str
    attempt: int
    waited: float | None = None


class ExecutionSettled(Event, frozen=True, gc=False):
    """The outcome of an execution was written down. `status` is the state it moved to, as in `State`."""

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


class BatchKept(Event, frozen=True, gc=False):
    """A batch was committed together with its watermark.

    `age`: seconds from when its newest item came about, if it has new ones and the stream was collected before.
    """

    stream: str
    new: int
    changed: int
    known: int
    source: str = ""
    age: float | None = None


class BatchRefused(Event, frozen=True, gc=False):
    """A worker that had been replaced tried to commit: nothing was written."""

    stream: str
    fence: int


class LeaseLost(Event, frozen=True, gc=False):
    """This worker no longer holds an execution it was running."""

    execution_id: str
    job_name: str


class LeaderElectionAttempted(Event, frozen=True, gc=False):
    """This process asked for the leader's lease."""

    won: bool


class SchedulerStarted(Event, frozen=True, gc=False):
    """A scheduler runs, which, while it leads, ticks every `interval` seconds at least."""

    interval: float


class SchedulerTicked(Event, frozen=True, gc=False):
    """The leader has looked for what is due, at this time of the database."""

    at: datetime


class LeaderChanged(Event, frozen=True, gc=False):
    """This process became the leader or ceased to be; `holder` is who leads now, when known."""

    is_leader: bool
    holder: str | None


class ProcessDied(Event, frozen=True, gc=False):
    """A process was found dead and what it held was handed on. `is_certain`: not just a lock that is missing."""

    worker: str
    is_certain: bool


class ExecutionsRescued(Event, frozen=True, gc=False):
    """Executions of silent workers went back to the queue."""

    count: int


class ExecutionsGivenUp(Event, frozen=True, gc=False):
    """Executions were rescued too often and are dead letters now; how many, by source."""

    counts: Mapping[str, int]


class ExecutionsRequeued(Event, frozen=True, gc=False):
    """Executions the queue had lost were put again."""

    count: int


class EventsRelayed(Event, frozen=True, gc=False):
    """Events left the outbox. `lag`: age in seconds of the oldest one that is still in it."""

    count: int
    lag: float


class StoreRetried(Event, frozen=True, gc=False):
    """A statement met a passing fault and was tried again."""

    operation: str
    reason: str


class QueueDegraded(Event, frozen=True, gc=False):
    """The fast queue cannot be had; the database serves instead."""

    reason: str


class QueueRestored(Event, frozen=True, gc=False):
    """The fast queue serves again."""


class LimitSet(Event, frozen=True, gc=False):
    """Everything under `key` waits until then, in the whole fleet."""

    key: str
    until: datetime
    reason: str


class TriggersFired(Event, frozen=True, gc=False):
    """Webhooks or messages arrived that can fire jobs."""

    type: str
    count: int = 1


class TriggersMatched(Event, frozen=True, gc=False):
    """Jobs were fired by webhooks or messages."""

    type: str
    count: int = 1


class TriggersRefused(Event, frozen=True, gc=False):
    """A webhook or message was refused, for one of a few fixed reasons."""

    type: str
    reason: str


class BreakerMoved(Event, frozen=True, gc=False):
    """A breaker is now `closed`, `open` or `half-open`; `domain` is its key, as in `telegram:reader1`.

    `elsewhere`: another process has moved it, and this one has just noticed.
    """

    domain: str
    state: str
    reason: str | None = None
    elsewhere: bool = False


class BreakersInUse(Event, frozen=True, gc=False):
    """This process calls, or may call, what these breakers protect; nothing is known yet about their states."""

    keys: Sequence[str]


class CallRetried(Event, frozen=True, gc=False):
    """A call to the outside failed and is made again after `delay` seconds. `attempt`: the one that failed.

    `reason` is the name of the error's class; `scope` whom we called, as in `telegram:reader1` or `redis`.
    """

    target: str
    method: str
    attempt: int
    delay: float
    reason: str
    scope: str = ""


class RateLimited(Event, frozen=True, gc=False):
    """A source told us to wait so many seconds. `scope`: whom it told, as in `telegram:reader1`.

    `reason` is the name of the error's class, never free text.
    """

    source: str
    scope: str
    method: str
    target: str
    seconds: float
    reason: str


class ModeChosen(Event, frozen=True, gc=False):
    """How a channel is about to be read; `forced` says why, when it is not what its watermark would have."""

    stream: str
    mode: str
    forced: str | None = None


class RunEnded(Event, frozen=True, gc=False):
    """A channel was read, or could not be. `status`: done, empty, waiting or failed."""

    stream: str
    channel_id: int | None
    mode: str
    status: str
    seconds: float
    parsed: int = 0


class FetchTimed(Event, frozen=True, gc=False):
    """A page came from a chat in `seconds`; its newest message is `lag` seconds old, when there was one."""

    chat: str
    seconds: float
    lag: float | None = None


class PagesVisited(Event, frozen=True, gc=False):
    """A crawl dealt with pages; how many with which result, as `floodmark_pages_total` names them."""

    counts: Mapping[str, int]


class HttpRequested(Event, frozen=True, gc=False):
    """A request was sent to the web, or was to be: `status` is 2xx, 3xx, 4xx, 5xx, refused or failed."""

    status: str


class ScanEnded(Event, frozen=True, gc=False):
    """A domain was scanned for cookies: the `result` of the report, or `failed`."""

    result: str


class NotificationSent(Event, frozen=True, gc=False):
    """A notification was sent, or not: `channel` is the name of its entry point; `result` is sent or failed."""

    channel: str
    result: str


class MetricsPushed(Event, frozen=True, gc=False):
    """Metrics were sent to the Pushgateway at `at` (Unix time), or could not be: `error` says why."""

    at: float
    error: str | None = None


class AccountParked(Event, frozen=True, gc=False):
    """An account can no longer be used; its jobs wait for a person."""

    account: str
    reason: str


class StepFailed(Event, frozen=True, gc=False):
    """A step of a loop raised; the loop goes on."""

    step: str
    error: str


class SchedulesSynced(Event, frozen=True, gc=False):
    """Schedules were read from API_URL; `errors` of them could not become jobs."""

    who: str
    created: int
    updated: int
    skipped: int
    disabled: int
    errors: int


class SyncFieldsIgnored(Event, frozen=True, gc=False):
    """The answer of API_URL has fields that mean nothing here: they change nothing."""

    fields: tuple[str, ...]


class SlotsChanged(Event, frozen=True, gc=False):
    """How many of this worker's slots are busy."""

    size: int
    busy: int


class DepthMeasured(Event, frozen=True, gc=False):
    """How many executions wait in each queue."""

    depths: Mapping[Priority, int]


class StateMeasured(Event, frozen=True, gc=False):
    """What the leader counted in the database. `outbox_lag`: age in seconds of the oldest event not yet sent."""

    dead_letters: int
    limits: int
    parked_accounts: int
    stale_sources: int
    outbox_pending: int
    outbox_lag: float


class UnfinishedChannel(Event, frozen=True, gc=False):
    """A channel with a run that has not finished, and when its high-water mark was last moved."""

    channel_id: str
    name: str
    moved_at: datetime


class UnfinishedChannelsMeasured(Event, frozen=True, gc=False):
    """The channels that the leader found to have an unfinished run, the one that stands still for longest first."""

    channels: tuple[UnfinishedChannel, ...] = ()


class InvalidJob(Event, frozen=True, gc=False):
    """A job cannot be planned until someone corrects it."""

    job_name: str
    reason: str


class WorkerDraining(Event, frozen=True, gc=False):
    """A worker takes no more work; `running` executions are still in its hands."""

    worker: str
    running: int


E = TypeVar("E", bound=Event)


class Events:
    """Tells listeners what happened, at once and in the caller's own thread.

    A listener must be quick and must not wait. One that raises does no harm to the work: the first failure of
    each kind is logged with its traceback, and all are counted in `failures`.
    """

    def __init__(self) -> None:
        self.failures: Counter[str] = Counter()
        self._listeners: dict[type[Event], tuple[Callable[[Any], None], ...]] = {}

    def listen(self, event_type: type[E], callback: Callable[[E], None]) -> Callable[[], None]:
        """Call back for every event of exactly this type. What is returned ends it."""
        # Tuples are replaced, never changed: an emission under way is not disturbed.
        self._listeners[event_type] = (*self._listeners.get(event_type, ()), callback)

        def stop() -> None:
            self._listeners[event_type] = tuple(c for c in self._listeners[event_type] if c is not callback)

        return stop

    def emit(self, event: Event) -> None:
        """Tell everyone who listens to this type of event. Never raises."""
        for callback in self._listeners.get(type(event), ()):
            try:
                callback(event)
            except Exception as error:  # noqa: BLE001 - watching must not break the work; it is reported below
                self._report(callback, event, error)

    def _report(self, callback: Callable[[Any], None], event: Event, error: Exception) -> None:
        kind = f"{getattr(callback, '__qualname__', repr(callback))} on {type(event).__name__}"
        self.failures[kind] += 1
        if self.failures[kind] == 1:
            logging.getLogger(__name__).error("a listener failed: %s", kind, exc_info=error)
