"""Jobs: add, find, change, remove, pause, run."""

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from floodmark.model.job import Job, Priority
from floodmark.model.job_fields import columns_of
from floodmark.model.page import Page
from floodmark.model.spec import JobSpec
from floodmark.rules.explain import Explanation

from .declaration import (
    Body,
    Derived,
    Each,
    Envelope,
    Fields,
    Header,
    Path,
    Query,
    Whole,
    delete,
    get,
    patch,
    post,
    put,
)
from .words import Cursor, Limit, Name, Text

_TAG = "Jobs"
_CANCELLED = Envelope(
    "CancelledOut",
    "What was cancelled.",
    "cancelled",
    "The number of executions that end, at once or when their worker notices.",
)
JobState = Literal["active", "paused", "disabled"]
_Truth = Literal["true", "false"]

JobId = Annotated[Name, Path("Id or name of a job, or the beginning of one.", name="job_id")]
Count = Annotated[int, Query("How many.", ge=1, le=1000)]


def etag_of(version: int) -> str:
    """Return the version of a job as HTTP writes it."""
    return f'"{version}"'


Version = Annotated[
    int | None,
    Header(
        'The ETag of the job as you know it: `"7"`. Refused with 412 if the job has changed since.',
        name="if_match",
        type=str | None,
        send=etag_of,
    ),
]


def _truth(description: str) -> Query:
    return Query(
        description,
        type=_Truth | None,
        send=lambda value: "true" if value else "false",
        read=lambda text: text == "true",
    )


class JobFilter(Struct, frozen=True, kw_only=True):
    """A choice of jobs. `text` is searched in name, target and url; `stale` is defined in `rules.staleness`."""

    state: Annotated[JobState | None, Query("`active`: enabled and not paused.")] = None
    enabled: Annotated[bool | None, _truth("Whether their schedule is enabled.")] = None
    paused: Annotated[bool | None, _truth("Whether they are paused.")] = None
    stale: Annotated[bool | None, _truth("Whether their last complete run is much older than usual.")] = None
    priority: Annotated[
        Priority | None,
        Query(
            "1 is high, 2 normal, 3 low.",
            type=Literal["1", "2", "3"] | None,
            send=lambda value: str(int(value)),
            read=lambda text: Priority(int(text)),
        ),
    ] = None
    source: Annotated[Name | None, Query("The kind of source.", name="kind", examples=["telegram"])] = None
    target: Annotated[Text | None, Query("The target, exactly.", examples=["@example_news"])] = None
    domain: Annotated[Name | None, Query("The domain, exactly.")] = None
    domain_config_id: Annotated[Name | None, Query("Your id, exactly.")] = None
    tag: Annotated[Name | None, Query("One of its tags.", examples=["news"])] = None
    text: Annotated[Name | None, Query("Part of its name, target, url or domain.")] = None
    match: Annotated[
        Name | None,
        Query("Pattern of its name or stream: `*` is any text, `?` one character.", examples=["telegram:*"]),
    ] = None
    declared: Annotated[bool | None, _truth("Whether code or a sync declares them.")] = None


ANY_JOB = JobFilter()


class Run(Struct, frozen=True, kw_only=True):
    """An upcoming run."""

    at: datetime
    local: Annotated[
        str, Meta(description="The same time in the time zone of the job.", examples=["2026-03-29T03:00:00+02:00"])
    ]
    clock_change: Annotated[str | None, Meta(description="The clock change since the previous run.")] = None


class Runs(Struct, frozen=True, kw_only=True):
    """Upcoming runs."""

    timezone: str
    runs: list[Run]


def columns_to_send(new: Mapping[str, Any] | JobSpec, unsaid: Collection[str] = ()) -> dict[str, Any]:
    """Return the columns of a job as JSON values, without those in `unsaid`, which the settings decide."""
    if isinstance(new, JobSpec):
        left_out = {"scheduler_version", *unsaid, *([] if new.name is not None else ["name"])}
        columns = {**columns_of(new), "depends_on": new.depends_on}
        new = {name: value for name, value in columns.items() if name not in left_out}
    return {
        name: value.total_seconds() if isinstance(value, timedelta) else msgspec.to_builtins(value)
        for name, value in new.items()
    }


def _leave_out_default(schema: dict[str, Any]) -> None:
    schema.pop("default", None)


def _etag(job: Job) -> dict[str, str]:
    return {"ETag": etag_of(job.version)}


Columns = Annotated[Mapping[str, Any], Whole(send=columns_to_send)]


class JobOperations:
    """What is collected, when, and under which policy."""

    @post(
        "/jobs",
        role="admin",
        tag=_TAG,
        status=201,
        status_of=lambda job: 201 if job.version == 1 else 200,
        headers=lambda job: {**_etag(job), "Location": f"/api/v2/jobs/{job.job_id}"},
        body=("JobIn",),
        is_repeatable=True,
        answers={200: "It replaced a job (JOB_REPLACE_EXISTING_INSTANCE)."},
    )
    async def add_job(self, columns: Annotated[Mapping[str, Any] | JobSpec, Whole(send=columns_to_send)]) -> Job:
        """Create a job. `source` and `target` say what to collect, the schedule columns say when.

        Columns that are left out get the values of the settings. Runs are planned at once.
        `{"source": "telegram", "target": "@example_news", "interval_seconds": 300}`
        """

    @get("/jobs", tag=_TAG, operation_id="list_jobs")
    async def jobs(
        self, which: Annotated[JobFilter, Fields()] = ANY_JOB, *, cursor: Cursor = None, limit: Limit = 50
    ) -> Page[Job]:
        """List jobs. They are sorted by name and match all given filters."""

    each_job = Each(jobs)

    @get("/jobs/{job_id}", tag=_TAG, operation_id="show_job", headers=_etag)
    async def job(self, name: JobId) -> Job:
        """Show a job. Its `ETag` is its version."""

    @put("/jobs/{job_id}", role="admin", tag=_TAG, headers=_etag, body=("JobIn",))
    async def replace_job(self, name: JobId, columns: Columns, *, version: Version = None) -> Job:
        """Replace a job. Columns that are left out get their default, except the name.

        With `version`, `Conflict` if the job is no longer at it.
        """

    @patch("/jobs/{job_id}", tag=_TAG, headers=_etag, body=("JobPatch",))
    async def change_job(self, name: JobId, columns: Columns, *, version: Version = None) -> Job:
        """Change a job. Only the given columns are set. With `version`, `Conflict` if the job is no longer at it."""

    @delete("/jobs/{job_id}", tag=_TAG)
    async def remove_job(self, name: JobId, *, version: Version = None) -> Job:
        """Remove a job. Return what it was; its unfinished executions are cancelled, its history and items stay.

        With `version`, `Conflict` if the job is no longer at it.
        """

    @post("/jobs/{job_id}/pause", tag=_TAG, headers=_etag, body=("PauseIn", "Why a job is paused."))
    async def pause_job(
        self,
        name: JobId,
        reason: Annotated[
            Text | None,
            Body(
                "Shown in answers to why the job does not run.",
                examples=["the site is being rebuilt"],
                json_schema_extra=_leave_out_default,
            ),
        ] = None,
    ) -> Job:
        """Pause a job. Nothing of it starts until it is resumed, except forced runs."""

    @post("/jobs/{job_id}/resume", tag=_TAG, headers=_etag)
    async def resume_job(self, name: JobId) -> Job:
        """Resume a job. Runs that were missed during the pause are not made up for."""

    @post("/jobs/{job_id}/cancel", tag=_TAG, envelope=_CANCELLED)
    async def cancel_job(self, name: JobId) -> int:
        """Cancel the executions of a job. Unfinished ones end, at once or when their worker notices.

        Its schedule continues.
        """

    @get("/jobs/{job_id}/explain", tag=_TAG, operation_id="explain_job")
    async def explain(self, name: JobId) -> Explanation:
        """Explain why a job is not running. One sentence says why and until when, or what the job is doing."""

    @get("/jobs/{job_id}/next", tag=_TAG, operation_id="next_of_job")
    async def upcoming_runs(self, name: JobId, count: Count = 5) -> Runs:
        """Show when a job will run. Runs are shown as if it were enabled and not paused, with clock changes."""

    @Derived
    async def next_runs(self, name: str, count: int = 5) -> list[datetime]:
        """Return when a job will run, as if it were enabled and not paused."""
        return [run.at for run in (await self.upcoming_runs(name, count)).runs]

    @get("/next", tag=_TAG, operation_id="next_of_expression")
    async def upcoming_of(
        self,
        cron: Annotated[Text, Query("Five fields.", examples=["*/15 8-18 * * MON-FRI"])],
        timezone: Annotated[Name, Query("The time zone of the schedule.", examples=["Europe/Berlin"])] = "UTC",
        count: Count = 5,
    ) -> Runs:
        """Show when an expression would run. This previews a cron expression, for example while it is being typed."""

    @Derived
    async def next_of(self, cron: str, timezone: str = "UTC", count: int = 5) -> list[datetime]:
        """Return when a cron expression would run."""
        return [run.at for run in (await self.upcoming_of(cron, timezone, count)).runs]
