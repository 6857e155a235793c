"""The fleet as it is shown: its processes, its health, and an overview of the installation."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Literal

from msgspec import Meta, Struct

from .execution import Hold, State, Statistics
from .limits import BreakerRow, LimitRow

SchedulerStatus = Literal["ok", "stale", "down"]


class WorkerInfo(Struct, frozen=True, kw_only=True):
    """A process of the fleet as it last described itself."""

    worker: str
    role: Annotated[str, Meta(description="worker (which may also schedule), scheduler or api.")]
    hostname: str
    pid: int
    slots: Annotated[int, Meta(description="Executions it can run at the same time.")]
    busy: Annotated[int, Meta(description="Slots in use.")]
    draining: bool
    started_at: datetime
    seen_until: Annotated[datetime, Meta(description="It is taken for alive until then.")]
    alive: bool


class FleetInfo(Struct, frozen=True):
    """The processes of the fleet."""

    draining: Annotated[bool, Meta(description="Whether workers were told to take no more work.")]
    leader: Annotated[str | None, Meta(description="Who schedules.")]
    workers: list[WorkerInfo]


class QueueDepth(Struct, frozen=True):
    """How many executions wait in line, by priority."""

    high: int
    normal: int
    low: int


class FleetMetrics(Struct, frozen=True, kw_only=True):
    """The numbers that matter first. All of them are at `/metrics`, for Prometheus."""

    queue_depth: QueueDepth
    workers: Annotated[int, Meta(description="Workers that are alive.")]
    slots: Annotated[int, Meta(description="Executions they can run at the same time.")]
    busy: Annotated[int, Meta(description="Slots in use.")]
    draining: bool
    leader: str | None
    last_day: Statistics
    last_position: Annotated[int, Meta(description="The position of the newest event.")]


class SchedulerHealth(Struct, frozen=True, kw_only=True):
    """The scheduler, by its last tick."""

    last_tick_ts: datetime | None
    interval_sec: Annotated[
        int | None, Meta(description="How often the scheduler ticks at least (SCHEDULE_CHECK_INTERVAL).")
    ]
    lock_owner: Annotated[str | None, Meta(description="The HOSTNAME of the process that schedules.")]
    status: Annotated[
        SchedulerStatus,
        Meta(description="stale when the last tick is older than two intervals, down after five or if there was none."),
    ]


class Health(Struct, frozen=True, kw_only=True):
    """Whether everything is well."""

    status: Annotated[
        Literal["ok", "degraded", "down"],
        Meta(
            description="degraded: all that is due is collected, but Redis is away; down: it is not,"
            " without a database that can be written, a scheduler that ticks and a worker."
        ),
    ]
    instance: Annotated[str, Meta(description="The process that answers.")]
    database: str
    redis: Annotated[str | None, Meta(description="ok, `not configured`, or what is wrong.")]
    leader: str | None
    draining: bool
    scheduler: SchedulerHealth
    workers: list[WorkerInfo]
    problems: Annotated[list[str], Meta(description="What is wrong, a sentence each.")]


class Running(Struct, frozen=True, kw_only=True):
    """An execution that runs."""

    execution_id: str
    job_name: str
    source: str | None
    worker: str | None
    attempt: int
    trigger: str
    started_at: datetime | None
    kept: Annotated[int, Meta(description="New and changed items so far, of all attempts.")]
    is_least: Annotated[bool, Meta(description="Whether there may be more than `kept`: it began long ago.")] = False
    kept_at: Annotated[datetime | None, Meta(description="When its last batch was kept.")] = None


class Waiting(Struct, frozen=True, kw_only=True):
    """An execution that waits."""

    execution_id: str
    job_name: str
    until: Annotated[datetime | None, Meta(description="Until when.")]
    hold: Annotated[Hold | None, Meta(description="For what, if not for a time.")]
    reason: str | None


class Failed(Struct, frozen=True, kw_only=True):
    """An attempt that failed."""

    execution_id: str
    job_name: str
    at: datetime
    state: Annotated[State, Meta(description="dead: for good; waiting: it is tried again.")]
    error: str


class SourceFreshness(Struct, frozen=True, kw_only=True):
    """How fresh the jobs of a source are."""

    source: str
    jobs: Annotated[int, Meta(description="Jobs that are due by themselves.")]
    stale: Annotated[int, Meta(description="Those not read to their end for much longer than usual.")]
    checked_at: Annotated[datetime | None, Meta(description="When one of them was last read to its end.")]
    longest_at: Annotated[datetime | None, Meta(description="The same of the one that was not for longest.")]
    parsed_at: Annotated[datetime | None, Meta(description="When something new was last found.")]


class Overview(Struct, frozen=True, kw_only=True):
    """Everything at a glance. Lists are cut to what is of interest; counts end at 10,000."""

    at: Annotated[datetime, Meta(description="By the clock of the database.")]
    leader: Annotated[str | None, Meta(description="Who schedules.")]
    scheduler: Annotated[SchedulerStatus, Meta(description="By its last tick.")]
    draining: Annotated[bool, Meta(description="Whether workers were told to take no more work.")]
    workers: list[WorkerInfo]
    queue: Mapping[str, int]
    running_count: int
    running: Annotated[list[Running], Meta(description="Those that have run for longest first.")]
    waiting_count: int
    waiting: Annotated[list[Waiting], Meta(description="The soonest first.")]
    limits: Annotated[list[LimitRow], Meta(description="What has to wait, the longest first.")]
    breakers: Annotated[list[BreakerRow], Meta(description="Those that are not closed.")]
    freshness: list[SourceFreshness]
    measured_at: Annotated[datetime | None, Meta(description="When the leader last counted `freshness`.")]
    dead_letters: int
    failed: Annotated[list[Failed], Meta(description="The last failures, newest first.")]
    kept_last_minute: Annotated[int, Meta(description="New and changed items within the last minute; ends at 5,000.")]


class Finding(Struct, frozen=True, kw_only=True):
    """One thing that was looked at."""

    code: Annotated[
        str, Meta(description="What it is: database, schema, leader, or the name of an invariant, as in I5.")
    ]
    ok: Annotated[bool, Meta(description="Whether it is well.")]
    text: str
    hint: Annotated[str, Meta(description="What to do about it; empty when all is well.")] = ""
