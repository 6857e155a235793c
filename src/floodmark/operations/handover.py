"""Migration from an older scheduler: the shadow, its report, and moving jobs."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Annotated, Any, Literal

from floodmark.model.handover import Imports, Moved, NewJob, ParityReport, Recorded, ShadowStatus, Which
from floodmark.model.job_fields import POLICY_COLUMNS

from .declaration import Body, Fields, Query, delete, get, post
from .jobs import columns_to_send
from .words import Name

_TAG = "Installation"
_WEEK_HOURS, _DAY_SECONDS = 168, 86_400
_AT_ONCE = timedelta()


def _body_of_job(new: NewJob, *, usual: bool) -> dict[str, Any]:
    columns = columns_to_send(new.spec, unsaid=("depends_on", *(POLICY_COLUMNS if usual else ())))
    given = {"anchor": new.anchor, "pause_reason": new.pause_reason}
    return {"job": columns, **{name: value for name, value in given.items() if value is not None}}


def _body_of_import(arguments: Mapping[str, Any]) -> dict[str, Any]:
    jobs = [_body_of_job(one, usual=arguments["usual"]) for one in arguments["new"]]
    return {"jobs": jobs, "take_over": arguments["take_over"], "dry_run": arguments["dry_run"]}


class HandoverOperations:
    """Compare with an older scheduler, and take over its jobs."""

    @get("/shadow", tag=_TAG, operation_id="shadow_status")
    async def shadow(self) -> ShadowStatus:
        """Show whether the shadow is on. It records what would be fired for the jobs of an older scheduler."""

    @post("/shadow", role="admin", tag=_TAG, body=("ShadowIn", "Where to begin."))
    async def start_shadow(
        self,
        back: Annotated[
            timedelta,
            Body(
                "Begin this long ago, with the jobs as they are now.", name="back_seconds", ge=0, le=_WEEK_HOURS * 3600
            ),
        ] = _AT_ONCE,
    ) -> ShadowStatus:
        """Start the shadow. Record what would be fired for jobs with scheduler_version 1, without firing anything.

        A shadow that is on continues.
        """

    @delete("/shadow", tag=_TAG)
    async def stop_shadow(self) -> ShadowStatus:
        """Stop the shadow. Its records are deleted."""

    @post("/shadow/step", tag=_TAG)
    async def step_shadow(self) -> Recorded:
        """Record up to now. The scheduler does so every few seconds. 400 while the shadow is off."""

    @get("/shadow/report", tag=_TAG, answers={409: "The shadow is off."})
    async def shadow_report(
        self,
        *,
        hours: Annotated[float, Query("How far back.", gt=0, le=_WEEK_HOURS)] = 24,
        tolerance: Annotated[
            timedelta | None,
            Query(
                "The largest distance between a run and its instant (default: a minute).",
                name="tolerance_seconds",
                ge=0,
                le=_DAY_SECONDS,
            ),
        ] = None,
        time_column: Annotated[
            str,
            Query(
                "The column of job_executions with the time of a run of the old scheduler.",
                type=Literal["scheduled_for", "started_at"],
            ),
        ] = "scheduled_for",
        jobs: Annotated[
            Sequence[str],
            Query(
                "Only these jobs.",
                name="job",
                type=list[Name] | None,
                send=lambda names: list(names) or None,
                max_length=100,
            ),
        ] = (),
    ) -> ParityReport:
        """Compare with the old scheduler. Show what would have been fired beside its rows in job_executions.

        409 while the shadow is off.
        """

    @post(
        "/migrate-jobs",
        role="admin",
        tag=_TAG,
        body=("MoveIn", "Which jobs: their names, or a tag or domain, or all."),
        is_body_required=True,
    )
    async def migrate_jobs(
        self,
        which: Annotated[Which, Fields(Body, everything="all")],
        *,
        back: Annotated[bool, Body("Return them to the old scheduler.")] = False,
        dry_run: Annotated[bool, Body("Report what would be done, and change nothing.")] = False,
    ) -> Moved:
        """Migrate jobs, or move them back. Set the scheduler_version of jobs of an older scheduler; all or none."""

    @post("/import-jobs", role="admin", tag=_TAG, body=("ImportIn",), body_of=_body_of_import)
    async def import_jobs(
        self,
        new: Annotated[Sequence[NewJob], Body(name="jobs")],
        *,
        take_over: Annotated[bool, Body()] = False,
        dry_run: Annotated[bool, Body()] = False,
        usual: bool = False,
    ) -> Imports:
        """Import jobs of another scheduler. All of them are created (up to 500) or none; existing jobs do not change.

        With `usual` they get the policy that the settings of the installation define for new jobs.
        """
