"""Jobs: make, find, change and remove them, and tell them what to do."""

from datetime import datetime
from itertools import islice
from typing import Annotated, Any, Literal

from fastapi import Body, Header, Query, Request
from fastapi import Path as InPath
from msgspec.structs import asdict
from starlette.responses import Response

from floodmark.api.deps import Administering, Operating, Reading
from floodmark.api.making import changes_of, fitted, spec_of
from floodmark.api.models import (
    AskedOut,
    CancelledOut,
    ExplanationOut,
    JobIn,
    JobOut,
    JobPatch,
    Name,
    PauseIn,
    RunIn,
    RunsOut,
    Text,
)
from floodmark.api.paging import Cursor, Limit, Page, key_of, page
from floodmark.api.problems import Stale
from floodmark.api.repeating import IdempotencyKey, once
from floodmark.api.routing import answer, router
from floodmark.errors import Conflict, InvalidInput, NotFound
from floodmark.model.job import Job, Priority
from floodmark.model.job_fields import columns_of
from floodmark.model.shapes import job_shape
from floodmark.operations.local import LocalOffice
from floodmark.operations.port import JobFilter
from floodmark.sources.validation import unmask_changes
from floodmark.triggers import instants
from floodmark.triggers.cron import cron as cron_trigger
from floodmark.triggers.upcoming import runs_shape, upcoming

jobs = router("/jobs", tag="Jobs")
expressions = router(tag="Jobs")

JobId = Annotated[
    str, InPath(description="Id or name of a job, or the beginning of one.", min_length=1, max_length=200)
]
IfMatch = Annotated[
    str | None,
    Header(description='The ETag of the job as you know it: `"7"`. Refused with 412 if it was changed since.'),
]
Count = Annotated[int, Query(ge=1, le=1000, description="How many.")]
JobState = Literal["active", "paused", "disabled"]
Truth = Literal["true", "false"]
_STATES: dict[str, dict[str, bool]] = {
    "active": {"enabled": True, "paused": False},
    "paused": {"paused": True},
    "disabled": {"enabled": False},
}


@jobs.post(
    "",
    status_code=201,
    response_model=JobOut,
    responses={200: {"model": JobOut, "description": "It replaced a job (JOB_REPLACE_EXISTING_INSTANCE)."}},
    summary="Make a job",
)
async def add_job(
    request: Request, office: Administering, body: JobIn, idempotency_key: IdempotencyKey = None
) -> Response:
    """Make a job: `source` and `target` say what, the schedule columns when. Runs are planned at once."""
    given = body.model_dump(exclude_unset=True)

    async def make(job_id: str | None, may_be_there: bool) -> Response:
        job = await _existing(office, job_id) if may_be_there else None
        if job is None:
            spec = await fitted(spec_of(given, office.parts.settings), office)
            job = await office.add_job(spec, job_id=job_id)
        return _shown(job, 201 if job.version == 1 else 200, {"Location": f"/api/v2/jobs/{job.job_id}"})

    return await once(office, request.app.state, idempotency_key, ["POST /jobs", given], make)


@jobs.get("", response_model=Page[JobOut], summary="List jobs")
async def list_jobs(
    office: Reading,
    *,
    state: Annotated[JobState | None, Query(description="`active`: enabled and not paused.")] = None,
    enabled: Annotated[Truth | None, Query(description="Whether their schedule is on.")] = None,
    paused: Annotated[Truth | None, Query(description="Whether they are paused.")] = None,
    stale: Annotated[
        Truth | None, Query(description="Whether they were not read to their end for much longer than usual.")
    ] = None,
    priority: Annotated[Literal["1", "2", "3"] | None, Query(description="1 is high, 2 normal, 3 low.")] = None,
    kind: Annotated[Name | None, Query(description="The kind of source.", examples=["telegram"])] = None,
    domain: Annotated[Name | None, Query(description="The domain, exactly.")] = None,
    domain_config_id: Annotated[Name | None, Query(description="Your id, exactly.")] = None,
    tag: Annotated[Name | None, Query(description="One of its tags.", examples=["news"])] = None,
    text: Annotated[Name | None, Query(description="Part of its name, target, url or domain.")] = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> Response:
    """In order of name. All filters that are given have to fit."""
    which = JobFilter(
        source=kind,
        domain=domain,
        domain_config_id=domain_config_id,
        tag=tag,
        priority=None if priority is None else Priority(int(priority)),
        stale=None if stale is None else stale == "true",
        text=text,
        **_asked(state, enabled, paused),
    )
    key = key_of("jobs", cursor, str)
    found = await office.jobs(which, after=None if key is None else key[0], limit=limit + 1)
    return answer(page(found, limit, "jobs", lambda job: [job.name], job_shape))


@jobs.get("/{job_id}", response_model=JobOut, summary="Show a job")
async def show_job(office: Reading, job_id: JobId) -> Response:
    """One job. Its `ETag` is its version."""
    return _shown(await office.job(job_id))


@jobs.put("/{job_id}", response_model=JobOut, summary="Replace a job")
async def replace_job(office: Administering, job_id: JobId, body: JobIn, if_match: IfMatch = None) -> Response:
    """Make a job exactly what the body says: what is left out gets its default. Its name stays if none is given."""
    given = body.model_dump(exclude_unset=True)
    before = await office.job(job_id)
    version = expected_version(if_match, before)
    said = {"name": before.name, **unmask_changes(before, given)}
    spec = await fitted(spec_of(said, office.parts.settings), office)
    changes = {**columns_of(spec), "depends_on": list(spec.depends_on)}
    # Whose job it is, the old scheduler's or ours, is for moving over to say.
    del changes["scheduler_version"]
    return await _changed(office, before, changes, version)


@jobs.patch("/{job_id}", response_model=JobOut, summary="Change a job")
async def change_job(office: Administering, job_id: JobId, body: JobPatch, if_match: IfMatch = None) -> Response:
    """Set some columns of a job; the others stay."""
    before = await office.job(job_id)
    version = expected_version(if_match, before)
    return await _changed(office, before, changes_of(body.model_dump(exclude_unset=True)), version)


@jobs.delete("/{job_id}", response_model=JobOut, summary="Remove a job")
async def remove_job(office: Administering, job_id: JobId, if_match: IfMatch = None) -> Response:
    """Delete a job; the answer is what it was. What is unfinished is cancelled, its history and items stay."""
    job = await office.job(job_id)
    version = expected_version(if_match, job)
    try:
        gone = await office.remove_job(job.job_id, version=version)
    except Conflict as error:
        raise Stale(str(error), hint=error.hint) from error
    return answer(job_shape(gone))


@jobs.post("/{job_id}/pause", response_model=JobOut, summary="Pause a job")
async def pause_job(office: Operating, job_id: JobId, body: Annotated[PauseIn | None, Body()] = None) -> Response:
    """Let nothing of it start until it is resumed, except what is forced."""
    return _shown(await office.pause_job(job_id, None if body is None else body.reason))


@jobs.post("/{job_id}/resume", response_model=JobOut, summary="Resume a job")
async def resume_job(office: Operating, job_id: JobId) -> Response:
    """Undo a pause. Runs that were missed meanwhile are not made up for."""
    return _shown(await office.resume_job(job_id))


@jobs.post("/{job_id}/cancel", response_model=CancelledOut, summary="Cancel what a job is doing")
async def cancel_job(office: Operating, job_id: JobId) -> Response:
    """End its unfinished executions: at once, or as soon as their worker hears of it. Its schedule goes on."""
    return answer({"cancelled": await office.cancel_job(job_id)})


@jobs.post("/{job_id}/force-run", status_code=202, response_model=AskedOut, summary="Run a job now")
async def force_run(office: Operating, job_id: JobId, body: Annotated[RunIn | None, Body()] = None) -> Response:
    """Ask for an execution now, whatever the schedule says, also of a paused job."""
    asked = await office.run_job(job_id, None if body is None else body.params)
    return answer(asked, 202, {"Location": f"/api/v2/executions/{asked.execution_id}"})


@jobs.get("/{job_id}/explain", response_model=ExplanationOut, summary="Explain why a job is not running")
async def explain_job(office: Reading, job_id: JobId) -> Response:
    """In one sentence, why it is not running and until when, or what it is doing."""
    return answer(asdict(await office.explain(job_id)))


@jobs.get("/{job_id}/next", response_model=RunsOut, summary="Show when a job will run")
async def next_of_job(office: Reading, job_id: JobId, count: Count = 5) -> Response:
    """Its next runs, as if it were neither paused nor disabled. Changes of the clocks are marked."""
    job, now = await office.job(job_id), office.parts.clock.now()
    return _runs(upcoming(job, now, count), now, job.when.timezone)


@expressions.get("/next", response_model=RunsOut, summary="Show when an expression would run")
async def next_of_expression(
    office: Reading,
    *,
    cron: Annotated[Text, Query(description="Five fields.", examples=["*/15 8-18 * * MON-FRI"])],
    timezone: Annotated[Name, Query(description="The clock it runs by.", examples=["Europe/Berlin"])] = "UTC",
    count: Count = 5,
) -> Response:
    """The next runs of a cron expression, while it is being typed."""
    now = office.parts.clock.now()
    return _runs(list(islice(instants(cron_trigger(cron, timezone), now), count)), now, timezone)


def expected_version(if_match: str | None, job: Job) -> int | None:
    """The version that If-Match asks for, None if any will do; `Stale` if it names only others."""
    if if_match is None or if_match.strip() == "*":
        return None
    if etag(job) in [tag.strip() for tag in if_match.split(",")]:
        return job.version
    raise Stale(
        f"{job.name} is at version {job.version}, not {if_match[:60]}",
        hint="get it again, look at what has changed, and send your change with its new ETag",
    )


def etag(job: Job) -> str:
    """The version of a job as HTTP writes it."""
    return f'"{job.version}"'


def _asked(state: JobState | None, enabled: Truth | None, paused: Truth | None) -> dict[str, bool]:
    asked = dict(_STATES.get(state or "", {}))
    for name, value in {"enabled": enabled, "paused": paused}.items():
        if value is None:
            continue
        if asked.setdefault(name, value == "true") != (value == "true"):
            raise InvalidInput(f"state={state} and {name}={value} contradict each other", hint="leave one of them out")
    return asked


def _runs(runs: list[datetime], now: datetime, zone: str) -> Response:
    return answer({"timezone": zone, "runs": runs_shape(runs, now, zone)})


async def _existing(office: LocalOffice, job_id: str | None) -> Job | None:
    """A job that was made by a request which did not live to tell."""
    try:
        job = await office.job(job_id or "")
    except NotFound:
        return None
    return job if job.job_id == job_id else None


async def _changed(office: LocalOffice, before: Job, changes: dict[str, Any], version: int | None) -> Response:
    try:
        return _shown(await office.update_job(before.job_id, changes, version=version))
    except Conflict as error:
        if version is not None and (await office.job(before.job_id)).version != version:
            raise Stale(str(error), hint="get it again and send your change with its new ETag") from error
        raise


def _shown(job: Job, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return answer(job_shape(job), status, {"ETag": etag(job), **(headers or {})})
