"""The import of jobs, whose body holds jobs in the form of the API."""

from datetime import UTC, datetime
from typing import Annotated

import msgspec
from msgspec.structs import asdict
from pydantic import BaseModel, Field
from starlette.responses import Response

from floodmark.api.deps import Administering
from floodmark.api.models import Given, JobIn, Text
from floodmark.api.routing import answer, router
from floodmark.errors import InvalidInput
from floodmark.model.handover import NewJob
from floodmark.operations.handlers.jobs import JobHandlers
from floodmark.operations.local import LocalOperations

moving = router(tag="Installation")


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


@moving.post("/import-jobs", response_model=ImportsOut, summary="Import jobs of another scheduler")
async def import_jobs(operations: Administering, body: ImportIn) -> Response:
    """Make up to 500 jobs, all of them or none. A job whose name there is already stays, so it can be repeated."""
    new = [await _new(operations, one) for one in body.jobs]
    names = [one.spec.name for one in new]
    if len(set(names)) < len(names):
        raise InvalidInput("a name is there twice", hint="names are unique: give each of the jobs its own")
    local = LocalOperations(operations.resources, operations.actor)
    imports = await local.import_jobs(new, take_over=body.take_over, dry_run=body.dry_run)
    return answer({**asdict(imports), "dry_run": body.dry_run})


async def _new(operations: JobHandlers, one: ImportedJobIn) -> NewJob:
    given = one.job.model_dump(exclude_unset=True)
    if "name" not in given:
        raise InvalidInput("a job without a name", hint="name it: what is imported twice is known by its name")
    if given.get("depends_on"):
        raise InvalidInput(f"{given['name'][:60]} depends on others", hint="leave out depends_on; set it afterwards")
    spec = await operations.spec_of(given)
    return NewJob(spec=spec, anchor=_moment(one.anchor), pause_reason=one.pause_reason)


def _moment(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        found: datetime = msgspec.convert(text, Annotated[datetime, msgspec.Meta(tz=True)])
        return found.astimezone(UTC)
    except (msgspec.ValidationError, OverflowError):
        raise InvalidInput(f"anchor {text!r} is not a moment", hint="write it like 2026-01-31T08:00:00Z") from None
