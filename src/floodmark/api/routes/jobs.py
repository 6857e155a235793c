"""The routes of jobs that know of `Idempotency-Key` and `If-Match`."""

from collections.abc import Awaitable
from typing import Annotated

from fastapi import Header, Request
from fastapi import Path as InPath
from starlette.responses import Response

from floodmark.api.deps import Administering
from floodmark.api.models import (
    JobIn,
    JobOut,
    JobPatch,
)
from floodmark.api.problems import Stale
from floodmark.api.repeating import IdempotencyKey, once
from floodmark.api.routing import answer, router
from floodmark.errors import Conflict, NotFound
from floodmark.model.job import Job
from floodmark.model.shapes import job_shape
from floodmark.operations.handlers.jobs import JobHandlers
from floodmark.operations.jobs import etag_of

jobs = router("/jobs", tag="Jobs")

JobId = Annotated[
    str, InPath(description="Id or name of a job, or the beginning of one.", min_length=1, max_length=200)
]
IfMatch = Annotated[
    str | None,
    Header(description='The ETag of the job as you know it: `"7"`. Refused with 412 if it was changed since.'),
]


@jobs.post(
    "",
    status_code=201,
    response_model=JobOut,
    responses={200: {"model": JobOut, "description": "It replaced a job (JOB_REPLACE_EXISTING_INSTANCE)."}},
    summary="Make a job",
)
async def add_job(
    request: Request, operations: Administering, body: JobIn, idempotency_key: IdempotencyKey = None
) -> Response:
    """Make a job: `source` and `target` say what, the schedule columns when. Runs are planned at once."""
    given = body.model_dump(exclude_unset=True)

    async def make(job_id: str | None, may_be_there: bool) -> Response:
        job = await _existing(operations, job_id) if may_be_there else None
        if job is None:
            job = await operations.create_job(await operations.spec_of(given), job_id=job_id)
        return _shown(job, 201 if job.version == 1 else 200, {"Location": f"/api/v2/jobs/{job.job_id}"})

    return await once(operations, request.app.state, idempotency_key, ["POST /jobs", given], make)


@jobs.put("/{job_id}", response_model=JobOut, summary="Replace a job")
async def replace_job(operations: Administering, job_id: JobId, body: JobIn, if_match: IfMatch = None) -> Response:
    """Make a job exactly what the body says: what is left out gets its default. Its name stays if none is given."""
    before = await operations.job(job_id)
    version = expected_version(if_match, before)
    given = body.model_dump(exclude_unset=True)
    return await _changed(operations, before, version, operations.replace_job(before.job_id, given, version=version))


@jobs.patch("/{job_id}", response_model=JobOut, summary="Change a job")
async def change_job(operations: Administering, job_id: JobId, body: JobPatch, if_match: IfMatch = None) -> Response:
    """Set some columns of a job; the others stay."""
    before = await operations.job(job_id)
    version = expected_version(if_match, before)
    given = body.model_dump(exclude_unset=True)
    return await _changed(operations, before, version, operations.change_job(before.job_id, given, version=version))


@jobs.delete("/{job_id}", response_model=JobOut, summary="Remove a job")
async def remove_job(operations: Administering, job_id: JobId, if_match: IfMatch = None) -> Response:
    """Delete a job; the answer is what it was. What is unfinished is cancelled, its history and items stay."""
    job = await operations.job(job_id)
    version = expected_version(if_match, job)
    try:
        gone = await operations.remove_job(job.job_id, version=version)
    except Conflict as error:
        raise Stale(str(error), hint=error.hint) from error
    return answer(job_shape(gone))


def expected_version(if_match: str | None, job: Job) -> int | None:
    """The version that If-Match asks for, None if any will do; `Stale` if it names only others."""
    if if_match is None or if_match.strip() == "*":
        return None
    if etag_of(job.version) in [tag.strip() for tag in if_match.split(",")]:
        return job.version
    raise Stale(
        f"{job.name} is at version {job.version}, not {if_match[:60]}",
        hint="get it again, look at what has changed, and send your change with its new ETag",
    )


async def _existing(operations: JobHandlers, job_id: str | None) -> Job | None:
    """A job that was made by a request which did not live to tell."""
    try:
        job = await operations.job(job_id or "")
    except NotFound:
        return None
    return job if job.job_id == job_id else None


async def _changed(operations: JobHandlers, before: Job, version: int | None, change: Awaitable[Job]) -> Response:
    try:
        return _shown(await change)
    except Conflict as error:
        if version is not None and (await operations.job(before.job_id)).version != version:
            raise Stale(str(error), hint="get it again and send your change with its new ETag") from error
        raise


def _shown(job: Job, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return answer(job_shape(job), status, {"ETag": etag_of(job.version), **(headers or {})})
