"""Requested runs: executions that people and programs ask for, independent of the schedule.

Tables: `executions`, `audit`. Requests that arrive at the same time are committed together.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from floodmark.errors import Conflict, NotFound
from floodmark.model.audit import Actor
from floodmark.model.clean_text import clean
from floodmark.model.clock import Clock
from floodmark.model.execution import Queued
from floodmark.model.ids import new_id
from floodmark.model.job import SCHEDULER_VERSION, Priority
from floodmark.process.failpoints import FORCE_POINT, failpoint
from floodmark.process.grouping import GroupedCalls
from floodmark.rules.starting import FORCED
from floodmark.security.masking import mask_values
from floodmark.store.database import Database, PostgresDatabase, SqliteDatabase, encode_json
from floodmark.store.port import AuditText, Forcing, RunAnswer, RunRequest

from .job_checks import check_json
from .name_search import find_job

# One statement for so many requests takes a few milliseconds, so that one in its midst does not wait for long.
MOST_AT_ONCE = 500
_MICROSECOND = timedelta(microseconds=1)


class Forced(Struct, frozen=True, kw_only=True):
    """An execution that was asked for. `queued` is None if it has to wait; then `reason` says for what."""

    execution_id: str
    scheduled_for: datetime
    queued: Queued | None
    reason: str | None = None


class JobChanged(Conflict):
    """The job is no longer at the version with which the params were checked."""


Put = Callable[[Sequence[Queued]], Awaitable[object]]


class RequestedRuns:
    """Creates requested executions. Those that are requested at the same time are committed together.

    `put` is called once for the executions of a commit that can start. Without it the caller puts them on the queue.
    """

    def __init__(self, database: Database, clock: Clock, put: Put | None = None) -> None:
        self._database, self._clock, self._put = database, clock, put
        self._forcing = _forcing_of(database, clock)
        self._calls = GroupedCalls(self._force, most=MOST_AT_ONCE)

    async def force(self, request: RunRequest) -> Forced:
        """Create an execution. Raises `NotFound`, `Conflict`, or `JobChanged`, and then changes nothing.

        It waits for another execution of the job that is under way, but not for one that is held by a pause or a
        dependency: that may be held for ever.
        """
        assert not self._database.is_writing, "a run is requested within a transaction: do it after the commit"
        return await self._calls.call(request)

    async def force_all(self, requests: Sequence[RunRequest]) -> list[Forced | Exception]:
        """Create many executions; the result of each is the execution, or the error that `force` would raise."""
        assert not self._database.is_writing, "runs are requested within a transaction: do it after the commit"
        return await self._calls.call_all(requests)

    async def resolve(self, text: str) -> str:
        """Return the id of the job with this name or id, or the only one whose name or id starts with the text."""
        async with self._database.reading() as connection:
            return await find_job(connection, text)

    async def close(self) -> None:
        """Wait for the requests that are being committed."""
        await self._calls.close()

    async def _force(self, requests: Sequence[RunRequest]) -> list[Forced | Exception]:
        answers = await self._forcing.force(_spread(requests))
        forced = [_result(request, answer) for request, answer in zip(requests, answers, strict=True)]
        if self._put is not None:
            failpoint(FORCE_POINT)
            queued = [one.queued for one in forced if isinstance(one, Forced) and one.queued is not None]
            if queued:
                await self._put(queued)
        return forced

    def request(
        self,
        job: str,
        params: Mapping[str, Any] | None = None,
        *,
        actor: Actor | None = None,
        trigger: str = FORCED,
        now: datetime | None = None,
        traceparent: str | None = None,
        version: int | None = None,
    ) -> RunRequest:
        """Return a request for `force`. With an `actor` it is recorded in the audit log."""
        given = None if params is None else check_json("params", dict(params), hint='for example {"depth": 2}')
        execution_id = new_id()
        return RunRequest(
            execution_id=execution_id,
            job=clean(job.strip()),
            scheduled_for=now or self._clock.now(),
            trigger=trigger,
            params=None if given is None else encode_json(given),
            traceparent=traceparent,
            version=version,
            audit=None if actor is None else _audit(actor, execution_id, given or {}),
        )


def _forcing_of(database: Database, clock: Clock) -> Forcing:
    if isinstance(database, PostgresDatabase):
        from floodmark.store.postgres.forcing import PostgresForcing  # noqa: PLC0415 - SQLite needs none of it

        return PostgresForcing(database)
    from floodmark.store.sqlite.forcing import SqliteForcing  # noqa: PLC0415 - only one of both is needed

    assert isinstance(database, SqliteDatabase)
    return SqliteForcing(database, clock=clock)


def _spread(requests: Sequence[RunRequest]) -> Sequence[RunRequest]:
    """Return requests of which no two are for the same instant: they may be for the same job."""
    if len({request.scheduled_for for request in requests}) == len(requests):
        return requests
    spread, last = list[RunRequest](), datetime.min.replace(tzinfo=UTC)
    for request in requests:
        last = max(request.scheduled_for, last + _MICROSECOND)
        spread.append(replace(request, scheduled_for=last))
    return spread


def _audit(actor: Actor, execution_id: str, params: Mapping[str, Any]) -> AuditText:
    after = {"execution_id": execution_id, "params": mask_values(params) if params else {}}
    return AuditText(who=clean(actor.who), via=actor.via, request_id=actor.request_id, after=encode_json(after))


def _result(request: RunRequest, answer: RunAnswer) -> Forced | Exception:
    if answer.job_id is None:
        return NotFound(f"there is no job {request.job[:60]!r}", hint="see what there is with: floodmark ls")
    if answer.scheduler_version != SCHEDULER_VERSION:
        return Conflict(
            f"{answer.name} belongs to the old scheduler, which may be running it",
            hint=f"take it over first: floodmark migrate-jobs {answer.name}",
        )
    if not answer.is_written:
        return JobChanged(f"{answer.name} was changed meanwhile", hint="try again")
    # A person is waiting for it, so it gets the highest priority in the queue.
    queued = Queued(request.execution_id, Priority.HIGH, request.traceparent) if answer.reason is None else None
    return Forced(
        execution_id=request.execution_id,
        scheduled_for=answer.scheduled_for or request.scheduled_for,
        queued=queued,
        reason=answer.reason,
    )
