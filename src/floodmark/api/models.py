"""What requests hold and answers look like, for whoever reads the OpenAPI document.

Answers are written by `shapes.py`; their models here only tell of them, and are made from the structs themselves
where there is one, so that they cannot say anything else.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal, get_type_hints

from msgspec import Struct
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, create_model
from pydantic_core import PydanticCustomError

from floodmark.model.execution import Execution
from floodmark.store.audit import AuditRow

_TEN_YEARS = 315_360_000


def _number(value: object) -> object:
    """For Python true is 1, for JSON it is not."""
    if isinstance(value, bool):
        raise PydanticCustomError("number", "Input should be 1, 2 or 3")
    return value


def whole(value: object) -> object:
    """For JSON 3.0 is a whole number, for Python it is not."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Name = Annotated[str, Field(min_length=1, max_length=200)]
Text = Annotated[str, Field(min_length=1, max_length=2000)]
Seconds = Annotated[float, Field(ge=0, le=_TEN_YEARS)]
SomeSeconds = Annotated[float, Field(gt=0, le=_TEN_YEARS)]
ScheduleWord = Literal["cron", "interval", "calendar", "immediate", "event"]
FrequencyWord = Literal["hourly", "daily", "weekly", "monthly"]
PriorityNumber = Literal[1, 2, 3]
PriorityGiven = Annotated[PriorityNumber, BeforeValidator(_number)]
OverlapWord = Literal["skip", "queue", "replace"]
CatchUpWord = Literal["none", "one", "all"]

_EXAMPLE_JOB: dict[str, Any] = {
    "name": "news",
    "source": "telegram",
    "target": "@example_news",
    "schedule_type": "interval",
    "interval_seconds": 300,
    "priority": 1,
    "tags": ["news"],
}


class Given(BaseModel):
    """A request: what is not known is refused, and nothing is guessed from another type."""

    model_config = ConfigDict(extra="forbid", strict=True)


def _left_out(schema: dict[str, Any]) -> None:
    """A field that may be left out has no default that could be sent."""
    schema.pop("default", None)


def _may(description: str, *examples: Any) -> Any:
    return Field(default=None, description=description, examples=list(examples) or None, json_schema_extra=_left_out)


class JobFields(Given):
    """The columns of a job that can be set."""

    name: Name = _may("What it is called; unique. Made from source and target, if left out.", "news")
    source: Name = _may("The kind of source: `telegram`, `python`, `web`, or one that a package brings.", "telegram")
    target: Text = _may("What to collect of it: a channel, a function, a URL.", "@example_news")
    stream: Text | None = _may("Where its items go; `source:target` if left out.")
    params: dict[str, Any] = _may("Given to the source.", {"history": 500})
    tags: list[Name] = _may("Words to find it by.", ["news"])
    schedule_type: ScheduleWord = _may(
        "How it says when: `cron` needs cron_expression, `interval` interval_seconds, `calendar` frequency and "
        "time_config; `immediate` runs once, `event` when it is told to. Follows from those fields, if left out.",
        "interval",
    )
    cron_expression: Text | None = _may("Five fields: minute, hour, day, month, weekday.", "*/15 8-18 * * MON-FRI")
    interval_seconds: float | None = _may("Seconds between two runs.", 300)
    frequency: FrequencyWord | None = _may("How often a calendar job runs.", "weekly")
    time_config: dict[str, Any] | None = _may(
        "At which time of that: day, hour, minute.", {"day": "monday", "hour": 2, "minute": 0}
    )
    timezone: Text = _may("The clock it runs by.", "Europe/Berlin")
    schedule_enabled: bool = _may("Off: it only runs when it is told to.")
    priority: PriorityGiven = _may("1 is high, 2 normal, 3 low.", 2)
    timeout_seconds: SomeSeconds = _may("How long a run may take.", 600)
    retry_max: Annotated[int, BeforeValidator(whole), Field(ge=0, le=1000)] = _may(
        "How often a failed run is tried again.", 3
    )
    overlap: OverlapWord = _may("What becomes of a run that is due while the last one is unfinished.", "skip")
    max_instances: Annotated[int, BeforeValidator(whole), Field(ge=1, le=1000)] = _may(
        "Unfinished runs at the same time.", 1
    )
    coalesce: bool = _may("Several runs due at once become one.")
    misfire_grace_seconds: Seconds = _may("A run missed by more than this is a misfire.", 300)
    catch_up: CatchUpWord = _may("Which misfires still run.", "one")
    jitter_seconds: Seconds = _may("Each run is spread over this time.", 0)
    depends_on: list[Name] = _may("The jobs, by name or id, that have to succeed before it runs.", ["first"])
    limit_key: Text | None = _may("The limit it shares with others.", "host:example.org")
    account: Text | None = _may("The account it reads with; any, if left out.")
    domain: Text | None = _may("The domain it scans.", "example.org")
    domain_config_id: Text | None = _may("An id of yours.", "cfg-17")
    profile_id: Text | None = _may("An id of yours.")
    source_id: Text | None = _may("An id of yours.", "src-4")
    url: Text | None = _may("Where it starts. A job without source and target collects this with `web`.")
    tenant_id: Text | None = _may("Whose items these are.")
    user_id: Text | None = _may("Whose items these are.")
    trigger_webhook: Text | None = _may("The path that fires it.", "/sources/*/crawl")
    trigger_channel: Text | None = _may("The Redis channel that fires it.", "content:new")


class JobIn(JobFields):
    """A job to be made, or what a job is to be from now on. What is left out gets its default."""

    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE_JOB]})


class JobPatch(JobFields):
    """What to change of a job. What is left out stays."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"priority": 1, "tags": ["news", "daily"]}]})


class PauseIn(Given):
    """Why a job is paused."""

    reason: Text | None = _may("Shown wherever someone asks why it does not run.", "the site is being rebuilt")


class RunIn(Given):
    """How a job is run this once."""

    params: dict[str, Any] = _may("Params for this run only, over those of the job.", {"history": 50})


_Time = datetime | None
_Text = str | None


class JobOut(BaseModel):
    """A job. Times are UTC, durations are seconds."""

    job_id: str
    name: str
    source: str = Field(description="The kind of source.")
    target: str = Field(description="What is collected of it.")
    stream: str = Field(description="Where its items go.")
    params: dict[str, Any]
    tags: list[str]
    schedule_type: ScheduleWord
    cron_expression: _Text
    interval_seconds: float | None
    frequency: FrequencyWord | None
    time_config: dict[str, Any] | None
    timezone: str
    next_run: _Time = Field(description="null: not planned yet, or never again.")
    planned_until: _Time = Field(description="Every instant up to here has become an execution, or was passed over.")
    last_run: _Time
    last_success: _Time
    last_status: _Text
    schedule_enabled: bool
    paused: bool
    pause_reason: _Text
    invalid_reason: _Text = Field(description="Why its schedule makes no sense, if it does not.")
    priority: PriorityNumber
    timeout_seconds: float
    retry_max: int
    overlap: OverlapWord
    max_instances: int
    coalesce: bool
    misfire_grace_seconds: float
    catch_up: CatchUpWord
    jitter_seconds: float
    depends_on: list[str] = Field(description="Names of the jobs it waits for.")
    limit_key: _Text
    account: _Text
    domain: _Text
    domain_config_id: _Text
    profile_id: _Text
    source_id: _Text
    url: _Text
    tenant_id: _Text
    user_id: _Text
    trigger_webhook: _Text
    trigger_channel: _Text
    scheduler_version: int = Field(description="2; 1 for jobs that still belong to an older scheduler.")
    version: int = Field(description="Counts the changes; it is also the ETag.")
    created_at: datetime
    updated_at: datetime


class CancelledOut(BaseModel):
    """What was cancelled."""

    cancelled: int = Field(description="How many executions end: at once, or as soon as their worker hears of it.")


class AskedOut(BaseModel):
    """An execution that was asked for."""

    execution_id: str
    scheduled_for: datetime
    reason: str | None = Field(description="Why it does not start at once, if it does not.")


class ExplanationOut(BaseModel):
    """Why a job is not running, or what it is doing."""

    code: str = Field(description="For programs: running, queued, paused, limit, retry, not_due, ...")
    sentence: str = Field(description="For people.", examples=["not due: next run at 14:06:40 UTC, in 40 s"])
    until: datetime | None = Field(description="When it changes by itself; null if it does not.")


class RunOut(BaseModel):
    """A run to come."""

    at: datetime
    local: str = Field(description="The same on the clock the job runs by.", examples=["2026-03-29T03:00:00+02:00"])
    clock_change: str | None = Field(description="What that clock did since the run before.")


class RunsOut(BaseModel):
    """Runs to come."""

    timezone: str
    runs: list[RunOut]


class StatisticsOut(BaseModel):
    """How executions went. Durations are seconds, null if nothing has ended."""

    total_executions: int = Field(description="All but the skipped, which never ran.")
    successful: int
    failed: int
    cancelled: int = Field(description="By a person, or by a later instant of a job with overlap=replace.")
    success_rate: float = Field(description="Per cent of those that succeeded or failed.")
    avg_duration: float | None
    min_duration: float | None
    max_duration: float | None


def model_of(name: str, struct: type[Struct], doc: str, told: Mapping[str, str] | None = None) -> type[BaseModel]:
    """A model with the fields of a struct, all of them always there, and what is to be said of some."""
    said = told or {}
    hints = get_type_hints(struct, include_extras=True)
    fields: dict[str, Any] = {field: (hints[field], Field(description=said.get(field))) for field in hints}
    return create_model(name, __doc__=doc, **fields)


ExecutionOut: Any = model_of(
    "ExecutionOut",
    Execution,
    "One due run of a job.",
    {
        "scheduled_for": "The instant it is for, not the time at which it ran.",
        "attempt": "How many attempts there were.",
        "rescues": "How often it was taken back from a silent worker.",
        "coalesced": "How many other instants it stands for.",
        "trigger": "What asked for it: schedule, manual, webhook, ...",
        "reason": "Why it waits, was skipped or was cancelled.",
        "hold": "What it waits for, when that is not a time.",
        "not_before": "Until when it waits, when that is a time.",
        "lease_until": "A running one is taken back if its worker is silent until then.",
        "items_known": "Items that were met again, unchanged.",
        "error_details": "Every failed attempt.",
    },
)
AuditOut: Any = model_of(
    "AuditOut",
    AuditRow,
    "A change that someone made.",
    {
        "who": "The name of a token, `local`, or a user of the machine.",
        "via": "The way they came: cli, api, sync.",
        "object": "What was changed, by kind and name: `job:news`.",
        "before": "What was changed of it, as it was; null if there was nothing.",
        "after": "The same as it is now; null if there is nothing.",
    },
)
