"""Runs on request, independent of the schedule."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, Struct

from floodmark.model.bulk import JobReference
from floodmark.model.problems import LineProblem

from .declaration import Body, post
from .jobs import JobId

_TAG = "Jobs"
MOST_RUNS = 10_000


class Asked(Struct, frozen=True, kw_only=True):
    """A requested execution."""

    execution_id: str
    scheduled_for: datetime
    reason: Annotated[str | None, Meta(description="Why it does not start at once; null if it does.")] = None


class RunLine(Struct, frozen=True, kw_only=True):
    """What became of one of many requested runs."""

    name: Annotated[str, Meta(description="The job, as it was named in the request.")]
    run: Annotated[Asked | None, Meta(description="The requested execution; null if it failed.")] = None
    error: Annotated[LineProblem | None, Meta(description="Why it failed.")] = None


class RunReport(Struct, frozen=True, kw_only=True):
    """The result of a request for many runs: one line for each name, in the same order."""

    failed: Annotated[int, Meta(description="The number of runs that were refused.")]
    results: tuple[RunLine, ...]


def _leave_out_default(schema: dict[str, Any]) -> None:
    schema.pop("default", None)


def _params(description: str) -> Body:
    return Body(
        description,
        type=dict[str, Any],
        send=lambda params: dict(params) or None,
        examples=[{"history": 50}],
        json_schema_extra=_leave_out_default,
    )


class RunOperations:
    """Runs that people and programs ask for."""

    @post(
        "/jobs/{job_id}/force-run",
        tag=_TAG,
        operation_id="force_run",
        status=202,
        headers=lambda asked: {"Location": f"/api/v2/executions/{asked.execution_id}"},
        body=("RunIn", "Options of one run."),
    )
    async def run_job(
        self,
        name: JobId,
        params: Annotated[Mapping[str, Any] | None, _params("Params for this run only, over those of the job.")] = None,
    ) -> Asked:
        """Run a job now. This ignores the schedule, and also runs a paused job."""

    @post("/jobs/force-run", tag=_TAG, operation_id="force_runs", status=202, body=("RunsIn", "Runs of many jobs."))
    async def run_many(
        self,
        names: Annotated[
            Sequence[str],
            Body(
                "Names or ids of jobs, written out. One that is named twice runs twice, one run after the other.",
                type=list[JobReference],
                send=list,
                min_length=1,
                max_length=MOST_RUNS,
                examples=[["news", "weather"]],
            ),
        ],
        params: Annotated[
            Mapping[str, Any] | None, _params("Params for these runs only, over those of the jobs.")
        ] = None,
    ) -> RunReport:
        """Run many jobs now. Up to 10,000 names; the answer has a result for each, in the same order.

        The status is 202 even if runs are refused: look at `failed`. A refused run does not affect the others.
        """
