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
JobState = Literal["active", "paused", "disabled"]
_Truth = Literal["true", "false"]

JobId = Annotated[
    str, Path("job_id", description="Id or name of a job, or the beginning of one.", min_length=1, max_length=200)
]
Count = Annotated[int, Query(ge=1, le=1000, description="How many.")]


def etag_of(version: int) -> str:
    """Return the version of a job as HTTP writes it."""
    return f'"{version}"'


Version = Annotated[int | None, Header("If-Match", send=etag_of)]


def _truth(description: str) -> Query:
    return Query(
        type=_Truth | None,
        send=lambda value: "true" if value else "false",
        read=lambda text: text == "true",
        description=description,
    )


class JobFilter(Struct, frozen=True, kw_only=True):
    """Which jobs. `text` is looked for in name, target and url; `stale` is as in `rules.staleness`."""

    state: Annotated[JobState | None, Query(description="`active`: enabled and not paused.")] = None
    enabled: Annotated[bool | None, _truth("Whether their schedule is on.")] = None
    paused: Annotated[bool | None, _truth("Whether they are paused.")] = None
    stale: Annotated[bool | None, _truth("Whether they were not read to their end for much longer than usual.")] = None
    priority: Annotated[
        Priority | None,
        Query(
            type=Literal["1", "2", "3"] | None,
            send=lambda value: str(int(value)),
            read=lambda text: Priority(int(text)),
            description="1 is high, 2 normal, 3 low.",
        ),
    ] = None
    source: Annotated[Name | None, Query("kind", description="The kind of source.", examples=["telegram"])] = None
    domain: Annotated[Name | None, Query(description="The domain, exactly.")] = None
    domain_config_id: Annotated[Name | None, Query(description="Your id, exactly.")] = None
    tag: Annotated[Name | None, Query(description="One of its tags.", examples=["news"])] = None
    text: Annotated[Name | None, Query(description="Part of its name, target, url or domain.")] = None


ANY_JOB = JobFilter()


class Asked(Struct, frozen=True, kw_only=True):
    """An execution that was asked for."""

    execution_id: str
    scheduled_for: datetime
    reason: Annotated[str | None, Meta(description="Why it does not start at once, if it does not.")] = None


class Run(Struct, frozen=True, kw_only=True):
    """A run to come."""

    at: datetime
    local: Annotated[
        str, Meta(description="The same on the clock the job runs by.", examples=["2026-03-29T03:00:00+02:00"])
    ]
    clock_change: Annotated[str | None, Meta(description="What that clock did since the run before.")] = None


class Runs(Struct, frozen=True, kw_only=True):
    """Runs to come."""

    timezone: str
    runs: list[Run]


def columns_to_send(new: Mapping[str, Any] | JobSpec, unsaid: Collection[str] = ()) -> dict[str, Any]:
    """Return the columns of a job as JSON has them, without those in `unsaid`: the settings decide these."""
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

    @post("/jobs", role="admin", tag=_TAG, status=201, is_derived=False, is_repeatable=True)
    async def add_job(self, columns: Annotated[Mapping[str, Any] | JobSpec, Whole(send=columns_to_send)]) -> Job:
        """Make a job.

        What is left out is as the settings have it.
        `{"source": "telegram", "target": "@example_news", "interval_seconds": 300}`
        """

    @get("/jobs", tag=_TAG, operation_id="list_jobs")
    async def jobs(
        self, which: Annotated[JobFilter, Fields()] = ANY_JOB, *, cursor: Cursor = None, limit: Limit = 50
    ) -> Page[Job]:
        """List jobs.

        In order of name. All filters that are given have to fit.
        """

    each_job = Each(jobs)

    @get("/jobs/{job_id}", tag=_TAG, operation_id="show_job", headers=_etag)
    async def job(self, name: JobId) -> Job:
        """Show a job.

        One job. Its `ETag` is its version.
        """

    @put("/jobs/{job_id}", role="admin", tag=_TAG, is_derived=False)
    async def replace_job(self, name: JobId, columns: Columns, *, version: Version = None) -> Job:
        """Replace a job, if it is still at `version`; else `Conflict`.

        What is left out gets its default.
        """

    @patch("/jobs/{job_id}", tag=_TAG, is_derived=False)
    async def change_job(self, name: JobId, columns: Columns, *, version: Version = None) -> Job:
        """Set some columns of a job, if it is still at `version`; else `Conflict`."""

    @delete("/jobs/{job_id}", tag=_TAG, is_derived=False)
    async def remove_job(self, name: JobId, *, version: Version = None) -> Job:
        """Delete a job, if it is still at `version`; return what it was. Its history and its items stay."""

    @post("/jobs/{job_id}/pause", tag=_TAG, headers=_etag, body=("PauseIn", "Why a job is paused."))
    async def pause_job(
        self,
        name: JobId,
        reason: Annotated[
            Text | None,
            Body(
                description="Shown wherever someone asks why it does not run.",
                examples=["the site is being rebuilt"],
                json_schema_extra=_leave_out_default,
            ),
        ] = None,
    ) -> Job:
        """Pause a job.

        Let nothing of it start until it is resumed, except what is forced.
        """

    @post("/jobs/{job_id}/resume", tag=_TAG, headers=_etag)
    async def resume_job(self, name: JobId) -> Job:
        """Resume a job.

        Undo a pause. Runs that were missed meanwhile are not made up for.
        """

    @post(
        "/jobs/{job_id}/cancel",
        tag=_TAG,
        envelope=Envelope(
            "CancelledOut",
            "What was cancelled.",
            "cancelled",
            "How many executions end: at once, or as soon as their worker hears of it.",
        ),
    )
    async def cancel_job(self, name: JobId) -> int:
        """Cancel what a job is doing.

        End its unfinished executions: at once, or as soon as their worker hears of it. Its schedule goes on.
        """

    @post(
        "/jobs/{job_id}/force-run",
        tag=_TAG,
        operation_id="force_run",
        status=202,
        headers=lambda asked: {"Location": f"/api/v2/executions/{asked.execution_id}"},
        body=("RunIn", "How a job is run this once."),
    )
    async def run_job(
        self,
        name: JobId,
        params: Annotated[
            Mapping[str, Any] | None,
            Body(
                type=dict[str, Any],
                send=lambda params: dict(params) or None,
                description="Params for this run only, over those of the job.",
                examples=[{"history": 50}],
                json_schema_extra=_leave_out_default,
            ),
        ] = None,
    ) -> Asked:
        """Run a job now.

        Ask for an execution now, whatever the schedule says, also of a paused job.
        """

    @get("/jobs/{job_id}/explain", tag=_TAG, operation_id="explain_job")
    async def explain(self, name: JobId) -> Explanation:
        """Explain why a job is not running.

        In one sentence, why it is not running and until when, or what it is doing.
        """

    @get("/jobs/{job_id}/next", tag=_TAG, operation_id="next_of_job")
    async def upcoming_runs(self, name: JobId, count: Count = 5) -> Runs:
        """Show when a job will run.

        Its next runs, as if it were neither paused nor disabled. Changes of the clocks are marked.
        """

    @Derived
    async def next_runs(self, name: str, count: int = 5) -> list[datetime]:
        """Return when a job will run, as if it were neither paused nor disabled."""
        return [run.at for run in (await self.upcoming_runs(name, count)).runs]

    @get("/next", tag=_TAG, operation_id="next_of_expression")
    async def upcoming_of(
        self,
        cron: Annotated[Text, Query(description="Five fields.", examples=["*/15 8-18 * * MON-FRI"])],
        timezone: Annotated[Name, Query(description="The clock it runs by.", examples=["Europe/Berlin"])] = "UTC",
        count: Count = 5,
    ) -> Runs:
        """Show when an expression would run.

        The next runs of a cron expression, while it is being typed.
        """

    @Derived
    async def next_of(self, cron: str, timezone: str = "UTC", count: int = 5) -> list[datetime]:
        """Return when a cron expression would run."""
        return [run.at for run in (await self.upcoming_of(cron, timezone, count)).runs]
