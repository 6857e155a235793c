"""A job: which target of which source is collected, when, and under which policy.

Every field is declared here once. Its `Field` tells what it means and what may be set; the columns of the table, the
mapping of rows, the JSON, the API, the command line and docs/reference/jobs.md follow from it (`job_fields.py`).
A duration named `timeout` here is the number `timeout_seconds` everywhere else.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from enum import IntEnum, StrEnum
from typing import Annotated, Any

from msgspec import Meta, Struct, field

from .field import NAME, POSITIVE_SECONDS, SECONDS, TEXT, Field, Option

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
    ADAPTIVE = "adaptive"


class Frequency(StrEnum):
    """How often a calendar job runs."""

    HOURLY = "hourly"
    DAILY = "daily"
    WEEKLY = "weekly"
    MONTHLY = "monthly"


class Priority(IntEnum):
    """The queue of an execution: one of three."""

    HIGH = 1
    NORMAL = 2
    LOW = 3


class Overlap(StrEnum):
    """The policy for an instant that is due while earlier executions of the job are unfinished."""

    SKIP = "skip"
    QUEUE = "queue"
    REPLACE = "replace"


class CatchUp(StrEnum):
    """Which instants run that were missed by more than the grace."""

    NONE = "none"
    ONE = "one"
    ALL = "all"


_SCHEDULE, _POLICY, _ITEMS = "Schedule", "Policy", "Items"  # groups of options in `floodmark add --help`


class When(Struct, frozen=True, kw_only=True):
    """The schedule of a job, as it is stored."""

    schedule_type: Annotated[
        ScheduleType,
        Field(
            "Kind of schedule: `cron` needs cron_expression, `interval` needs interval_seconds, `calendar` needs "
            "frequency and time_config; `immediate` runs once, `event` only when it is triggered; `adaptive` runs when "
            "enough new items are expected, within its budget.",
            example="interval",
            unset="derived from the other schedule fields; `event` if there are none",
        ),
    ]
    cron_expression: Annotated[
        str | None,
        Field("Five fields: minute, hour, day, month, weekday.", bounds=TEXT, example="*/15 8-18 * * MON-FRI"),
    ] = None
    interval_seconds: Annotated[float | None, Field("Seconds between two runs.", example=300)] = None
    frequency: Annotated[Frequency | None, Field("How often a calendar job runs.", example="weekly")] = None
    time_config: Annotated[
        Mapping[str, Any] | None,
        Field("When a calendar job runs: day, hour, minute.", example={"day": "monday", "hour": 2, "minute": 0}),
    ] = None
    timezone: Annotated[
        str, Field("IANA time zone of the schedule, such as Europe/Berlin.", bounds=TEXT, example="Europe/Berlin")
    ] = "UTC"


class Policy(Struct, frozen=True, kw_only=True):
    """How a job behaves around its instants."""

    overlap: Annotated[
        Overlap,
        Field(
            "What to do if a run is due and the last one is unfinished.",
            example="skip",
            unset="the setting JOB_OVERLAP",
            option=Option("--overlap", _POLICY),
        ),
    ] = Overlap.SKIP
    max_instances: Annotated[
        int,
        Field(
            "Unfinished runs at the same time.",
            bounds=Meta(ge=1, le=1000),
            example=1,
            unset="the setting JOB_MAX_INSTANCES",
        ),
    ] = 1
    coalesce: Annotated[
        bool, Field("Merge several runs that are due at once into one.", unset="the setting JOB_COALESCE")
    ] = True
    misfire_grace: Annotated[
        timedelta,
        Field(
            "A run that is late by more than this is a misfire.",
            bounds=SECONDS,
            example=300,
            unset="the setting JOB_MISFIRE_GRACE_TIME",
        ),
    ] = timedelta(seconds=300)
    catch_up: Annotated[
        CatchUp,
        Field(
            "Which missed runs to run.",
            example="one",
            unset="the setting JOB_CATCH_UP",
            option=Option("--catch-up", _POLICY),
        ),
    ] = CatchUp.ONE
    jitter: Annotated[
        timedelta,
        Field(
            "Delay each run by a random time up to this.",
            bounds=SECONDS,
            example=0,
            option=Option("--jitter", _SCHEDULE, "TIME"),
        ),
    ] = timedelta()


class JobFields(Struct, frozen=True, kw_only=True, gc=False):
    """The fields that a person can set. A job has them, and so has the spec it is made from."""

    source: Annotated[
        str,
        Field(
            "Kind of source: `telegram`, `web`, `feed`, `cookies`, `python`, or one that a package provides.",
            bounds=NAME,
            example="telegram",
        ),
    ]
    target: Annotated[
        str,
        Field(
            "What to collect from the source: a channel, a URL, a domain, a function.",
            bounds=TEXT,
            example="@example_news",
        ),
    ]
    stream: Annotated[
        str | None,
        Field(
            "Stream of its items. Jobs that share a stream share its watermark.",
            bounds=TEXT,
            example="telegram:@example_news",
            unset="`source:target`",
            option=Option("--stream", _ITEMS, help="Stream of its items (default: KIND:TARGET)."),
        ),
    ] = None
    params: Annotated[Mapping[str, Any], Field("Parameters for the source.", example={"history": 500})] = field(
        default_factory=dict
    )
    tags: Annotated[
        tuple[str, ...],
        Field("Tags to find it by.", bounds=NAME, example=["news"], option=Option("--tag", _ITEMS, help="Tag")),
    ] = ()
    when: When
    schedule_enabled: Annotated[bool, Field("Whether its schedule is on. If not, it only runs on request.")] = True
    priority: Annotated[
        Priority,
        Field(
            "Priority in the queue: 1 is high, 2 is normal, 3 is low.",
            example=2,
            option=Option("--priority", _POLICY, help="high, normal or low (normal)."),
        ),
    ] = Priority.NORMAL
    timeout: Annotated[
        timedelta,
        Field(
            "Time-out of a run.",
            bounds=POSITIVE_SECONDS,
            example=600,
            unset="the setting SCHEDULER_JOB_TIMEOUT",
            option=Option("--timeout", _POLICY, "TIME"),
        ),
    ] = timedelta(hours=1)
    budget: Annotated[
        str | None,
        Field(
            "Budget of requests that it shares with other jobs. Each of its requests counts.",
            bounds=NAME,
            example="news",
            unset="`default` for an adaptive job, no budget for others",
            option=Option("--budget", _SCHEDULE, "NAME"),
        ),
    ] = None
    max_delay: Annotated[
        timedelta | None,
        Field(
            "An adaptive job runs at least this often.",
            bounds=POSITIVE_SECONDS,
            example=3600,
            unset="that of the budget",
            option=Option("--max-delay", _SCHEDULE, "TIME"),
        ),
    ] = None
    weight: Annotated[
        float,
        Field(
            "How much the delay of its items counts, compared with other adaptive jobs of the budget.",
            bounds=Meta(gt=0, le=1000),
            example=1,
            option=Option("--weight", _SCHEDULE, "NUMBER"),
        ),
    ] = 1.0
    retry_max: Annotated[
        int,
        Field(
            "Number of retries of a failed run.",
            bounds=Meta(ge=0, le=1000),
            example=3,
            unset="the setting PARSER_RETRY_MAX",
            option=Option("--retries", _POLICY, "N"),
        ),
    ] = 3
    policy: Policy = Policy()
    depends_on: Annotated[
        tuple[str, ...],
        Field(
            "Names of the jobs that have to succeed before it runs.",
            bounds=NAME,
            example=["first"],
            is_column=False,
            option=Option("--depends-on", _POLICY, "JOB", "Wait until this job has succeeded"),
        ),
    ] = ()
    limit_key: Annotated[
        str | None,
        Field(
            "Key of a rate limit that it shares with other jobs.",
            bounds=TEXT,
            example="host:example.org",
            option=Option("--limit-key", _POLICY, "KEY"),
        ),
    ] = None
    account: Annotated[
        str | None, Field("Account that it reads with.", bounds=TEXT, example="main", unset="any account")
    ] = None
    domain: Annotated[str | None, Field("Domain that it scans.", bounds=TEXT, example="example.org")] = None
    domain_config_id: Annotated[str | None, Field("An id of yours.", bounds=TEXT, example="cfg-17")] = None
    profile_id: Annotated[
        str | None, Field("Scan profile whose params apply to a cookie scan, or an id of yours.", bounds=TEXT)
    ] = None
    source_id: Annotated[str | None, Field("An id of yours.", bounds=TEXT, example="src-4")] = None
    url: Annotated[
        str | None,
        Field("Start address. A job without source and target collects it with `web`.", bounds=TEXT),
    ] = None
    tenant_id: Annotated[
        str | None, Field("Tenant that owns the items.", bounds=TEXT, option=Option("--tenant", _ITEMS))
    ] = None
    user_id: Annotated[str | None, Field("User who owns the items.", bounds=TEXT, option=Option("--user", _ITEMS))] = (
        None
    )
    trigger_webhook: Annotated[
        str | None, Field("Path of the webhook that triggers it.", bounds=TEXT, example="/sources/*/crawl")
    ] = None
    trigger_channel: Annotated[
        str | None, Field("Redis channel that triggers it.", bounds=TEXT, example="content:new")
    ] = None


class Job(JobFields, frozen=True, kw_only=True, gc=False):
    """One row of `jobs`."""

    job_id: Annotated[str, Field("Id of the job. It never changes.")]
    name: Annotated[
        str,
        Field(
            "Unique name.",
            bounds=NAME,
            example="news",
            unset="derived from source and target",
            option=Option("--name", help="Name of the job (default: made from its target)."),
        ),
    ]
    stream: str
    paused: Annotated[bool, Field("Whether a person has paused it. Use pause and resume to change it.")] = False
    pause_reason: Annotated[str | None, Field("Reason given for the pause.")] = None
    invalid_reason: Annotated[str | None, Field("Why its schedule cannot be planned.")] = None
    scheduler_version: Annotated[
        int,
        Field("2 for this scheduler, 1 for jobs that still belong to an older one.", bounds=Meta(ge=1, le=2)),
    ] = SCHEDULER_VERSION
    next_run: Annotated[datetime | None, Field("Next run; null if it is not planned yet or never runs again.")] = None
    planned_until: Annotated[
        datetime | None, Field("Every instant up to here has become an execution or was passed over.")
    ] = None
    hinted_at: Annotated[datetime | None, Field("When a hint said that there is something new.")] = None
    last_run: Annotated[datetime | None, Field("When its last execution started.")] = None
    last_success: Annotated[datetime | None, Field("When an execution last succeeded.")] = None
    last_status: Annotated[str | None, Field("State of its last execution.")] = None
    version: Annotated[int, Field("Counts the changes, from 1. It is also the ETag.")] = 1
    created_at: Annotated[datetime, Field("When it was created.")] = LONG_AGO
    updated_at: Annotated[datetime, Field("When it was last changed.")] = LONG_AGO
    unreadable: str | None = None  # what is wrong with its row, if someone has edited it by hand


class Work(Struct, frozen=True, kw_only=True, gc=False):
    """The fields of a job that a worker needs: what to collect, and within which bounds."""

    job_id: str
    name: str
    source: str
    target: str
    stream: str
    params: Mapping[str, Any] = field(default_factory=dict)
    priority: Priority = Priority.NORMAL
    timeout: timedelta = timedelta(hours=1)
    retry_max: int = 3
    budget: str | None = None
    limit_key: str | None = None
    account: str | None = None
    source_id: str | None = None
    url: str | None = None
    tenant_id: str | None = None
    user_id: str | None = None
    unreadable: str | None = None


class DueJob(Struct, frozen=True, kw_only=True, gc=False):
    """The fields of a job that the scheduler needs: when it runs, and what is unfinished."""

    job_id: str
    name: str
    source: str
    when: When
    policy: Policy = Policy()
    priority: Priority = Priority.NORMAL
    budget: str | None = None
    invalid_reason: str | None = None
    next_run: datetime | None = None
    planned_until: datetime | None = None
    created_at: datetime = LONG_AGO
    active: int = 0  # its unfinished executions
    waits_for: tuple[str, ...] = ()  # the jobs it depends on that have not succeeded since its own last run
