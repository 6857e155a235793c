"""Moving over from an older scheduler: the shadow, its report, and jobs that change hands."""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

import msgspec
from fastapi import Body, Query
from msgspec.structs import asdict
from pydantic import BaseModel, Field
from starlette.responses import Response

from floodmark.api.deps import Administering, Operating, Reading
from floodmark.api.making import fitted, spec_of
from floodmark.api.models import Given, JobIn, Name, Text, model_of
from floodmark.api.routing import answer, router
from floodmark.errors import InvalidInput
from floodmark.importers.handover import MovedJob, NewJob, Which
from floodmark.importers.shadow import JobParity, Recorded, ShadowStatus
from floodmark.importers.shadow_fires import OldRunsTable
from floodmark.operations.local import LocalOffice
from floodmark.operations.moving import LocalMoving, moving_of

moving = router(tag="Installation")

_WEEK_HOURS, _DAY_SECONDS = 168, 86_400

ShadowStatusOut: Any = model_of(
    "ShadowStatusOut",
    ShadowStatus,
    "Whether it is recorded what would be fired for the jobs of an older scheduler.",
    {
        "until": "How far it is.",
        "jobs": "Jobs that belong to the old scheduler.",
        "fires": "Instants that are recorded; they are kept for 7 days.",
    },
)
RecordedOut: Any = model_of(
    "RecordedOut",
    Recorded,
    "What was recorded.",
    {"jobs": "Jobs that were looked at.", "is_behind": "Whether there is more to catch up with."},
)
JobParityOut: Any = model_of(
    "JobParityOut",
    JobParity,
    "How a job fared with both schedulers.",
    {
        "verdict": "equal, differs, invalid (it could not be scheduled here) or nothing (to compare).",
        "missed": "Instants for which the old scheduler has no run.",
        "extra": "Runs of the old scheduler without an instant; the second run of a double is one.",
        "missed_at": "The first twenty.",
        "extra_at": "The first twenty.",
        "drift_median_seconds": "How much later than the instant the old scheduler was.",
        "drift_max_seconds": "The same of the run that was farthest from its instant.",
    },
)
MovedJobOut: Any = model_of(
    "MovedJobOut",
    MovedJob,
    "A job that has changed hands.",
    {"scheduler_version": "2: it is this scheduler's, 1: the old one's.", "next_run": "When it runs here next."},
)


class ParityReportOut(BaseModel):
    """Both schedulers side by side."""

    since: str = Field(json_schema_extra={"format": "date-time"})
    until: str = Field(json_schema_extra={"format": "date-time"})
    jobs: list[JobParityOut]
    equal: int = Field(description="Jobs with which both did the same.")
    differing: int = Field(description="Jobs that differ, or could not be scheduled here.")


class MovedOut(BaseModel):
    """What has changed hands, or would."""

    jobs: list[MovedJobOut]
    already: list[str] = Field(description="Jobs that were named and did not need to.")
    back: bool
    dry_run: bool


class ShadowIn(Given):
    """From when to record."""

    back_seconds: float = Field(
        default=0,
        ge=0,
        le=_WEEK_HOURS * 3600,
        description="Begin so long ago, as if the jobs had always been as they are.",
    )


class MoveIn(Given):
    """Which jobs: their names, or a tag or domain, or all."""

    jobs: list[Name] = Field(default_factory=list, max_length=500, description="Names or ids.")
    tag: Text | None = None
    domain: Text | None = None
    all: bool = False
    back: bool = Field(default=False, description="Give them back to the old scheduler.")
    dry_run: bool = Field(default=False, description="Only tell what would be done.")


class ImportedJobIn(Given):
    """A job of another scheduler."""

    job: JobIn = Field(description="What it is; it needs a name, and cannot depend on others.")
    anchor: str | None = Field(
        default=None,
        max_length=40,
        description="Where the grid of an interval begins; now, if left out.",
        examples=["2026-01-31T08:00:00Z"],
        json_schema_extra={"format": "date-time"},
    )
    pause_reason: Text | None = Field(default=None, description="It is paused, and this is why.")


class ImportIn(Given):
    """Jobs of another scheduler."""

    jobs: list[ImportedJobIn] = Field(min_length=1, max_length=500)
    take_over: bool = Field(
        default=False, description="Schedule them here at once; else they stay the old scheduler's, to be compared."
    )
    dry_run: bool = Field(default=False, description="Only tell what would be done.")


class ImportsOut(BaseModel):
    """What was imported, or would be."""

    made: list[str] = Field(description="The names of the jobs that were made.")
    already: list[str] = Field(description="The names of those that were there already, and stay as they are.")
    dry_run: bool


@moving.get("/shadow", response_model=ShadowStatusOut, summary="Tell whether the shadow is on")
async def shadow_status(office: Reading) -> Response:
    """Whether it is recorded what would be fired for the jobs of an older scheduler, and how far that is."""
    return answer(await moving_of(office).status())


@moving.post("/shadow", response_model=ShadowStatusOut, summary="Start the shadow")
async def start_shadow(office: Administering, body: Annotated[ShadowIn | None, Body()] = None) -> Response:
    """Record what would be fired for jobs with scheduler_version 1; nothing is fired. One that is on goes on."""
    asked = body or ShadowIn()
    return answer(await moving_of(office).start(timedelta(seconds=asked.back_seconds)))


@moving.delete("/shadow", response_model=ShadowStatusOut, summary="Stop the shadow")
async def stop_shadow(office: Administering) -> Response:
    """Record no more, and forget what was recorded."""
    return answer(await moving_of(office).stop())


@moving.post("/shadow/step", response_model=RecordedOut, summary="Record up to now")
async def step_shadow(office: Operating) -> Response:
    """The scheduler does it every few seconds; this does not wait for it. 400 while the shadow is off."""
    return answer(await moving_of(office).step())


@moving.get(
    "/shadow/report",
    response_model=ParityReportOut,
    responses={409: {"description": "The shadow is off."}},
    summary="Compare with the old scheduler",
)
async def shadow_report(
    office: Reading,
    hours: Annotated[float, Query(gt=0, le=_WEEK_HOURS, description="How far back.")] = 24,
    tolerance_seconds: Annotated[
        float | None,
        Query(ge=0, le=_DAY_SECONDS, description="How far a run may be from its instant (usually a minute)."),
    ] = None,
    time_column: Annotated[
        Literal["scheduled_for", "started_at"],
        Query(description="The column of job_executions that tells when the old scheduler ran a job."),
    ] = "scheduled_for",
    job: Annotated[list[Name] | None, Query(max_length=100, description="Only these jobs.")] = None,
) -> Response:
    """What would have been fired beside what the old scheduler wrote into job_executions. 409 while it is off."""
    tolerance = None if tolerance_seconds is None else timedelta(seconds=tolerance_seconds)
    record = OldRunsTable(time_column=time_column)
    return answer(await moving_of(office).report(hours=hours, tolerance=tolerance, record=record, jobs=job or ()))


@moving.post("/migrate-jobs", response_model=MovedOut, summary="Move jobs over, or back")
async def migrate_jobs(office: Administering, body: MoveIn) -> Response:
    """Give jobs of an older scheduler to this one (scheduler_version 1 to 2), or back; all of them or none."""
    which = Which(jobs=tuple(body.jobs), tag=body.tag, domain=body.domain, everything=body.all)
    return answer(await moving_of(office).move(which, back=body.back, dry_run=body.dry_run))


@moving.post("/import-jobs", response_model=ImportsOut, summary="Import jobs of another scheduler")
async def import_jobs(office: Administering, body: ImportIn) -> Response:
    """Make up to 500 jobs, all of them or none. A job whose name there is already stays, so it can be repeated."""
    new = [await _new(office, one) for one in body.jobs]
    names = [one.spec.name for one in new]
    if len(set(names)) < len(names):
        raise InvalidInput("a name is there twice", hint="names are unique: give each of the jobs its own")
    imports = await LocalMoving(office).bring(new, take_over=body.take_over, dry_run=body.dry_run)
    return answer({**asdict(imports), "dry_run": body.dry_run})


async def _new(office: LocalOffice, one: ImportedJobIn) -> NewJob:
    given = one.job.model_dump(exclude_unset=True)
    if "name" not in given:
        raise InvalidInput("a job without a name", hint="name it: what is imported twice is known by its name")
    if given.get("depends_on"):
        raise InvalidInput(f"{given['name'][:60]} depends on others", hint="leave out depends_on; set it afterwards")
    spec = await fitted(spec_of(given, office.parts.settings), office)
    return NewJob(spec=spec, anchor=_moment(one.anchor), pause_reason=one.pause_reason)


def _moment(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        found: datetime = msgspec.convert(text, Annotated[datetime, msgspec.Meta(tz=True)])
        return found.astimezone(UTC)
    except (msgspec.ValidationError, OverflowError):
        raise InvalidInput(f"anchor {text!r} is not a moment", hint="write it like 2026-01-31T08:00:00Z") from None
