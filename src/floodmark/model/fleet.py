"""The fleet: its processes, its health, and an overview of the installation."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Literal

from msgspec import Meta, Struct

from .dead_letters import DeadLetterGroup
from .execution import Hold, State, Statistics
from .limits import BreakerRow, LimitRow
from .search import IndexStatus
from .sinks import SinkRow

SchedulerStatus = Literal["ok", "stale", "down"]


class WorkerInfo(Struct, frozen=True, kw_only=True):
    """A process of the fleet, as it last reported itself."""

    worker: str
    role: Annotated[str, Meta(description="`worker` (which may also schedule), `scheduler`, `api` or `fetch`.")]
    hostname: str
    pid: int
    slots: Annotated[int, Meta(description="Executions it can run at the same time.")]
    busy: Annotated[int, Meta(description="Slots in use.")]
    draining: bool
    started_at: datetime
    seen_until: Annotated[datetime, Meta(description="It counts as alive until then.")]
    alive: bool


class FleetInfo(Struct, frozen=True):
    """The processes of the fleet."""

    draining: Annotated[bool, Meta(description="Whether workers take no new work (drain).")]
    leader: Annotated[str | None, Meta(description="The process that schedules.")]
    workers: list[WorkerInfo]


class QueueDepth(Struct, frozen=True):
    """The number of queued executions by priority."""

    high: int
    normal: int
    low: int


class FleetMetrics(Struct, frozen=True, kw_only=True):
    """The main metrics. `/metrics` has all of them, for Prometheus."""

    queue_depth: QueueDepth
    workers: Annotated[int, Meta(description="Workers that are alive.")]
    slots: Annotated[int, Meta(description="Executions that they can run at the same time.")]
    busy: Annotated[int, Meta(description="Slots in use.")]
    draining: bool
    leader: str | None
    last_day: Statistics
    last_position: Annotated[int, Meta(description="The position of the newest event.")]


class SchedulerHealth(Struct, frozen=True, kw_only=True):
    """The state of the scheduler, derived from its last tick."""

    last_tick_ts: datetime | None
    interval_sec: Annotated[
        int | None, Meta(description="The longest time between two ticks (SCHEDULE_CHECK_INTERVAL).")
    ]
    lock_owner: Annotated[str | None, Meta(description="The HOSTNAME of the process that schedules.")]
    status: Annotated[
        SchedulerStatus,
        Meta(description="`stale` if the last tick is older than two intervals, `down` after five or without a tick."),
    ]


class Health(Struct, frozen=True, kw_only=True):
    """The health of the installation."""

    status: Annotated[
        Literal["ok", "degraded", "down"],
        Meta(
            description="`degraded`: Redis is unavailable and jobs still run, or a sink has not got its events for"
            " minutes; `down`: jobs do not run, because"
            " the database cannot be written, no scheduler ticks or there is no worker."
        ),
    ]
    instance: Annotated[str, Meta(description="The process that responds.")]
    database: str
    redis: Annotated[str | None, Meta(description="`ok`, `not configured`, or the error.")]
    leader: str | None
    draining: bool
    scheduler: SchedulerHealth
    workers: list[WorkerInfo]
    search: Annotated[IndexStatus | None, Meta(description="The search index; null if the database does not answer.")]
    sinks: Annotated[list[SinkRow], Meta(description="Where events are delivered, also paused ones.")] = []
    problems: Annotated[list[str], Meta(description="The problems, one sentence each.")]


class Running(Struct, frozen=True, kw_only=True):
    """A running execution."""

    execution_id: str
    job_name: str
    source: str | None
    worker: str | None
    attempt: int
    trigger: str
    started_at: datetime | None
    kept: Annotated[int, Meta(description="New and changed items so far, of all attempts.")]
    is_least: Annotated[
        bool, Meta(description="Whether `kept` is a lower bound, because the execution began long ago.")
    ] = False
    kept_at: Annotated[datetime | None, Meta(description="When its last batch was stored.")] = None
    usual_seconds: Annotated[
        float | None, Meta(description="How long the last successful run of its job took; null if it is not known.")
    ] = None


class Waiting(Struct, frozen=True, kw_only=True):
    """A waiting execution."""

    execution_id: str
    job_name: str
    until: Annotated[datetime | None, Meta(description="When its wait ends.")]
    hold: Annotated[Hold | None, Meta(description="What it waits for, other than a time.")]
    reason: str | None


class Failed(Struct, frozen=True, kw_only=True):
    """A failed attempt."""

    execution_id: str
    job_name: str
    at: datetime
    state: Annotated[State, Meta(description="`dead`: it is not retried; `waiting`: it is retried.")]
    error: str


class SourceFreshness(Struct, frozen=True, kw_only=True):
    """The freshness of the jobs of a source."""

    source: str
    jobs: Annotated[int, Meta(description="Jobs with a schedule.")]
    stale: Annotated[int, Meta(description="Jobs whose target was not read to its end for much longer than usual.")]
    checked_at: Annotated[datetime | None, Meta(description="When the target of one of them was last read to its end.")]
    longest_at: Annotated[datetime | None, Meta(description="The same for the job where this is longest ago.")]
    parsed_at: Annotated[datetime | None, Meta(description="When a new item was last found.")]


class Overview(Struct, frozen=True, kw_only=True):
    """An overview of the installation. Lists are shortened; counts end at 10,000."""

    at: Annotated[datetime, Meta(description="Time of the database.")]
    leader: Annotated[str | None, Meta(description="The process that schedules.")]
    scheduler: Annotated[SchedulerStatus, Meta(description="Derived from its last tick.")]
    draining: Annotated[bool, Meta(description="Whether workers take no new work (drain).")]
    workers: list[WorkerInfo]
    queue: Mapping[str, int]
    running_count: int
    running: Annotated[list[Running], Meta(description="Longest running first.")]
    waiting_count: int
    waiting: Annotated[list[Waiting], Meta(description="Soonest first.")]
    limits: Annotated[list[LimitRow], Meta(description="Active rate limits, longest first.")]
    breakers: Annotated[list[BreakerRow], Meta(description="Circuit breakers that are not closed.")]
    freshness: list[SourceFreshness]
    measured_at: Annotated[datetime | None, Meta(description="When the leader last measured `freshness`.")]
    dead_letters: int
    failed: Annotated[list[Failed], Meta(description="The last failures, newest first.")]
    kept_last_minute: Annotated[int, Meta(description="New and changed items in the last minute; ends at 5,000.")]
    failures: Annotated[
        list[DeadLetterGroup],
        Meta(description="Dead letters by error, the most frequent first, as the leader last counted them."),
    ] = []


class Finding(Struct, frozen=True, kw_only=True):
    """The result of one check."""

    code: Annotated[
        str, Meta(description="What was checked: `database`, `schema`, `leader`, or an invariant such as `I5`.")
    ]
    ok: Annotated[bool, Meta(description="Whether the check passed.")]
    text: str
    hint: Annotated[str, Meta(description="The next step; empty if the check passed.")] = ""


class SettingShown(Struct, frozen=True, kw_only=True):
    """A setting of a process."""

    key: str
    value: Annotated[str, Meta(description="As it can be typed; empty if it is not set, masked if it is a secret.")]
    origin: Annotated[str, Meta(description="Where it came from: `default`, `environment`, `.env`, ...")]
    help: Annotated[str, Meta(description="What it means.")]
