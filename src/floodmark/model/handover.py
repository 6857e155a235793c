"""Jobs that change hands between an older scheduler and this one, as they are asked for and reported."""

from datetime import datetime
from typing import Annotated, Literal

from msgspec import Meta, Struct

from .spec import JobSpec

_Name = Annotated[str, Meta(min_length=1, max_length=200)]
_Text = Annotated[str, Meta(min_length=1, max_length=2000)]
Verdict = Literal["equal", "differs", "invalid", "nothing"]
# The view in which an old scheduler that shares the database records its runs.
OUR_RECORD = "job_executions"


class Which(Struct, frozen=True, kw_only=True):
    """Which jobs to move: these, or those with a tag and of a domain, or all."""

    jobs: Annotated[tuple[_Name, ...], Meta(max_length=500, description="Names or ids.")] = ()
    tag: _Text | None = None
    domain: _Text | None = None
    everything: bool = False


class MovedJob(Struct, frozen=True, kw_only=True):
    """A job that has changed hands."""

    job: str
    job_id: str
    scheduler_version: Annotated[int, Meta(description="2: it is this scheduler's, 1: the old one's.")]
    next_run: Annotated[datetime | None, Meta(description="When it runs here next.")]


class Moved(Struct, frozen=True, kw_only=True):
    """What has changed hands, or would."""

    jobs: tuple[MovedJob, ...]
    already: Annotated[tuple[str, ...], Meta(description="Jobs that were named and did not need to.")]
    back: bool
    dry_run: bool


class NewJob(Struct, frozen=True, kw_only=True):
    """A job to be imported. `anchor`: where its grid begins; None: now. A `name` of the spec is needed."""

    spec: JobSpec
    anchor: datetime | None = None
    pause_reason: str | None = None


class Imports(Struct, frozen=True, kw_only=True):
    """Jobs that were imported, or would be."""

    made: Annotated[tuple[str, ...], Meta(description="The names of the new jobs.")]
    already: Annotated[tuple[str, ...], Meta(description="The names of existing jobs, which stay as they are.")]
    dry_run: bool = False


class Recorded(Struct, frozen=True, kw_only=True):
    """What was recorded."""

    jobs: Annotated[int, Meta(description="Jobs that were looked at.")]
    until: datetime
    is_behind: Annotated[bool, Meta(description="Whether there is more to catch up with.")]


class ShadowStatus(Struct, frozen=True, kw_only=True):
    """Whether it is recorded what would be fired for the jobs of an older scheduler."""

    on: bool
    since: datetime | None
    until: Annotated[datetime | None, Meta(description="How far it is.")]
    jobs: Annotated[int, Meta(description="Jobs that belong to the old scheduler.")]
    fires: Annotated[int, Meta(description="Instants that are recorded; they are kept for 7 days.")]


class JobParity(Struct, frozen=True, kw_only=True):
    """How a job fared with both schedulers."""

    job: str
    job_id: str
    verdict: Annotated[
        Verdict,
        Meta(description="equal, differs, invalid (it could not be scheduled here) or nothing (to compare)."),
    ]
    reason: str | None
    since: datetime
    until: datetime
    expected: int
    actual: int
    matched: int
    missed: Annotated[int, Meta(description="Instants for which the old scheduler has no run.")]
    extra: Annotated[
        int, Meta(description="Runs of the old scheduler without an instant; the second run of a double is one.")
    ]
    missed_at: Annotated[tuple[datetime, ...], Meta(description="The first twenty.")]
    extra_at: Annotated[tuple[datetime, ...], Meta(description="The first twenty.")]
    drift_median_seconds: Annotated[
        float | None, Meta(description="How much later than the instant the old scheduler was.")
    ]
    drift_max_seconds: Annotated[
        float | None, Meta(description="The same of the run that was farthest from its instant.")
    ]


class ParityReport(Struct, frozen=True, kw_only=True):
    """Both schedulers side by side."""

    since: datetime
    until: datetime
    jobs: tuple[JobParity, ...]
    equal: Annotated[int, Meta(description="Jobs with which both did the same.")]
    differing: Annotated[int, Meta(description="Jobs that differ, or could not be scheduled here.")]


class OldRunsTable(Struct, frozen=True, kw_only=True):
    """Where the old scheduler writes down its runs. `job_column` holds the name or the id of a job."""

    table: str = OUR_RECORD
    job_column: str = "job_id"
    time_column: str = "scheduled_for"
