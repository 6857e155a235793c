"""Handover of jobs between an older scheduler and this one: requests and reports."""

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
    """Which jobs to move: the named ones, those with a tag and domain, or all."""

    jobs: Annotated[tuple[_Name, ...], Meta(max_length=500, description="Names or ids.")] = ()
    tag: _Text | None = None
    domain: _Text | None = None
    everything: bool = False


class MovedJob(Struct, frozen=True, kw_only=True):
    """A job that was moved."""

    job: str
    job_id: str
    scheduler_version: Annotated[int, Meta(description="2: it belongs to this scheduler, 1: to the old one.")]
    next_run: Annotated[datetime | None, Meta(description="Its next run in this scheduler.")]


class Moved(Struct, frozen=True, kw_only=True):
    """The jobs that were moved, or would be moved (dry run)."""

    jobs: tuple[MovedJob, ...]
    already: Annotated[tuple[str, ...], Meta(description="Named jobs that were already there.")]
    back: bool
    dry_run: bool


class NewJob(Struct, frozen=True, kw_only=True):
    """A job to import. `anchor`: the start of its interval grid; None: now. The spec needs a `name`."""

    spec: JobSpec
    anchor: datetime | None = None
    pause_reason: str | None = None


class Imports(Struct, frozen=True, kw_only=True):
    """Jobs that were imported, or would be (dry run)."""

    made: Annotated[tuple[str, ...], Meta(description="The names of the new jobs.")]
    already: Annotated[tuple[str, ...], Meta(description="The names of existing jobs, which stay as they are.")]
    dry_run: bool = False


class Recorded(Struct, frozen=True, kw_only=True):
    """The progress of the recording."""

    jobs: Annotated[int, Meta(description="Jobs that were examined.")]
    until: datetime
    is_behind: Annotated[bool, Meta(description="Whether the recording has not caught up yet.")]


class ShadowStatus(Struct, frozen=True, kw_only=True):
    """Whether this scheduler records what it would fire for the jobs of an older scheduler."""

    on: bool
    since: datetime | None
    until: Annotated[datetime | None, Meta(description="How far the recording is.")]
    jobs: Annotated[int, Meta(description="Jobs that belong to the old scheduler.")]
    fires: Annotated[int, Meta(description="Recorded instants, counted up to 100,000; they are kept for 7 days.")]


class JobParity(Struct, frozen=True, kw_only=True):
    """The comparison of both schedulers for one job."""

    job: str
    job_id: str
    verdict: Annotated[
        Verdict,
        Meta(description="`equal`, `differs`, `invalid` (it cannot be scheduled here) or `nothing` (to compare)."),
    ]
    reason: str | None
    since: datetime
    until: datetime
    expected: int
    actual: int
    matched: int
    missed: Annotated[int, Meta(description="Instants for which the old scheduler has no run.")]
    extra: Annotated[
        int, Meta(description="Runs of the old scheduler without an instant; of a double run, the second counts.")
    ]
    missed_at: Annotated[tuple[datetime, ...], Meta(description="The first twenty.")]
    extra_at: Annotated[tuple[datetime, ...], Meta(description="The first twenty.")]
    drift_median_seconds: Annotated[
        float | None, Meta(description="How much later than the instant the old scheduler ran.")
    ]
    drift_max_seconds: Annotated[float | None, Meta(description="The same for the run farthest from its instant.")]


class ParityReport(Struct, frozen=True, kw_only=True):
    """The comparison of both schedulers."""

    since: datetime
    until: datetime
    jobs: tuple[JobParity, ...]
    equal: Annotated[int, Meta(description="Jobs that both schedulers ran alike.")]
    differing: Annotated[int, Meta(description="Jobs that differ or cannot be scheduled here.")]


class OldRunsTable(Struct, frozen=True, kw_only=True):
    """The table in which the old scheduler records its runs. `job_column` holds the name or the id of a job."""

    table: str = OUR_RECORD
    job_column: str = "job_id"
    time_column: str = "scheduled_for"
