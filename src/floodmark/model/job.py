"""A job: which target of which source is collected, when, and under which policy."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from enum import IntEnum, StrEnum
from typing import Any

from msgspec import Struct, field

# A job that will not fire again has its `next_run` here; an empty `next_run` means "not planned yet".
NEVER = datetime(9999, 12, 31, tzinfo=UTC)

LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)

# Rows of an older scheduler carry version 1 and are left alone.
SCHEDULER_VERSION = 2


class ScheduleType(StrEnum):
    """The ways in which a job can say when it runs."""

    CRON = "cron"
    INTERVAL = "interval"
    CALENDAR = "calendar"
    IMMEDIATE = "immediate"
    EVENT = "event"


class Frequency(StrEnum):
    """How often a calendar job runs."""

    HOURLY = "hourly"
    DAILY = "daily"
    WEEKLY = "weekly"
    MONTHLY = "monthly"


class Priority(IntEnum):
    """Which of the three queues an execution waits in."""

    HIGH = 1
    NORMAL = 2
    LOW = 3


class Overlap(StrEnum):
    """What happens to an instant that is due while earlier executions of the job are unfinished."""

    SKIP = "skip"
    QUEUE = "queue"
    REPLACE = "replace"


class CatchUp(StrEnum):
    """What becomes of instants that were missed by more than the grace time."""

    NONE = "none"
    ONE = "one"
    ALL = "all"


class When(Struct, frozen=True, kw_only=True):
    """The when-columns of a job, as they are stored."""

    schedule_type: ScheduleType
    cron_expression: str | None = None
    interval_seconds: float | None = None
    frequency: Frequency | None = None
    time_config: Mapping[str, Any] | None = None
    timezone: str = "UTC"


class Policy(Struct, frozen=True, kw_only=True):
    """How a job behaves around its instants."""

    overlap: Overlap = Overlap.SKIP
    max_instances: int = 1
    coalesce: bool = True
    misfire_grace: timedelta = timedelta(seconds=300)
    catch_up: CatchUp = CatchUp.ONE
    jitter: timedelta = timedelta()


class Work(Struct, frozen=True, kw_only=True, gc=False):
    """The part of a job that a worker needs: what to collect, and within which bounds."""

    job_id: str
    name: str
    source: str
    target: str
    stream: str
    params: Mapping[str, Any] = field(default_factory=dict)
    priority: Priority = Priority.NORMAL
    timeout: timedelta = timedelta(hours=1)
    retry_max: int = 3
    limit_key: str | None = None
    account: str | None = None
    source_id: str | None = None
    url: str | None = None
    tenant_id: str | None = None
    user_id: str | None = None
    unreadable: str | None = None  # what is wrong with its row, where someone has typed nonsense into it


class DueJob(Struct, frozen=True, kw_only=True, gc=False):
    """The part of a job that the scheduler needs: when it runs, and what is under way of it."""

    job_id: str
    name: str
    source: str
    when: When
    policy: Policy = Policy()
    priority: Priority = Priority.NORMAL
    invalid_reason: str | None = None
    planned_until: datetime | None = None
    created_at: datetime = LONG_AGO
    active: int = 0  # its unfinished executions
    waits_for: tuple[str, ...] = ()  # the jobs it depends on that have not succeeded since its own last run


class Job(Work, frozen=True, kw_only=True, gc=False):
    """One row of `jobs`."""

    when: When
    policy: Policy = Policy()
    tags: tuple[str, ...] = ()
    depends_on: tuple[str, ...] = ()
    schedule_enabled: bool = True
    paused: bool = False
    pause_reason: str | None = None
    invalid_reason: str | None = None
    scheduler_version: int = SCHEDULER_VERSION
    next_run: datetime | None = None
    planned_until: datetime | None = None
    last_run: datetime | None = None
    last_success: datetime | None = None
    last_status: str | None = None
    domain: str | None = None
    domain_config_id: str | None = None
    profile_id: str | None = None
    trigger_webhook: str | None = None
    trigger_channel: str | None = None
    version: int = 1
    created_at: datetime = LONG_AGO
    updated_at: datetime = LONG_AGO
