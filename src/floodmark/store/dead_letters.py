"""Executions that failed for good, until someone retries or drops them. They are rows of `executions`."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import RowMapping, Select, bindparam, exists, or_, select, tuple_, update

from floodmark.errors import InvalidInput, NotFound
from floodmark.model.clock import Clock
from floodmark.model.dead_letters import DeadLetterGroup, fingerprint
from floodmark.model.execution import Execution, Queued, State
from floodmark.model.job import Priority
from floodmark.rules.rank import rank_delay

from .async_engine import AsyncConnection
from .database import Database
from .dialects import present
from .execution_rows import SELECT_EXECUTION, execution_from_row
from .tables import job_executions, jobs

# How many letters are grouped, retried or dropped at once, newest first; the rest is there for the next time.
MOST_AT_ONCE = 10_000
MOST_SHOWN = 500
_JOBS_NAMED = 10

_e = job_executions.c


class DeadLetters:
    """What to do about executions that failed for good."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database, self._clock = database, clock

    async def page(
        self, job: str | None = None, before: Sequence[Any] | None = None, limit: int = 50
    ) -> list[Execution]:
        """Newest death first. The next page is `before` the time of death and the id of the last one."""
        query = _dead(job)
        if before is not None:
            query = query.where(tuple_(_e.completed_at, _e.execution_id) < tuple_(*before))
        return await self._read(query.limit(max(1, min(limit, MOST_SHOWN))))

    async def groups(self, job: str | None = None) -> list[DeadLetterGroup]:
        """The newest letters by error, most frequent first."""
        by_error: dict[str, list[Execution]] = {}
        for letter in await self._read(_dead(job).limit(MOST_AT_ONCE)):
            by_error.setdefault(fingerprint(letter.error_message), []).append(letter)
        return sorted((_group(*entry) for entry in by_error.items()), key=lambda group: -group.count)

    async def retry(
        self,
        ids: Sequence[str] | None = None,
        *,
        group: str | None = None,
        job: str | None = None,
        patience: timedelta = timedelta(),
    ) -> list[Queued]:
        """dead -> queued with all attempts ahead, for these ids, one error's fingerprint, or one job.

        The error stays readable in `error_details`. Letters of deleted jobs are left. A job that is paused runs
        its letters when it is resumed. Put what is returned on the queue. `patience` is what one step of priority is
        worth there.
        """
        async with self._database.writing() as connection:
            letters = [letter for letter in await self._chosen(connection, ids, group, job) if letter["has_job"]]
            if not letters:
                raise NotFound(
                    "the jobs of these dead letters have been deleted",
                    hint="clear them away with: floodmark dlq drop",
                )
            for priority in sorted({letter["priority"] for letter in letters}):
                statement = _THIS.values(
                    state=State.QUEUED,
                    queue_rank=present(self._database, self._clock, rank_delay(priority, patience)),
                    reason="retried by operator",
                    error_details=bindparam("details"),
                    **dict.fromkeys(("attempt", "rescues"), 0),
                    **dict.fromkeys(_CLEARED),
                )
                rows = [
                    {"letter": letter["execution_id"], "details": _details(letter)}
                    for letter in letters
                    if letter["priority"] == priority
                ]
                await connection.execute(statement, rows)
        return [Queued(letter["execution_id"], Priority(letter["priority"])) for letter in letters]

    async def drop(
        self,
        ids: Sequence[str] | None = None,
        *,
        group: str | None = None,
        job: str | None = None,
        reason: str = "dropped by operator",
    ) -> int:
        """dead -> cancelled: nobody needs to look at these again. How many."""
        async with self._database.writing() as connection:
            letters = await self._chosen(connection, ids, group, job)
            rows = [{"letter": letter["execution_id"]} for letter in letters]
            await connection.execute(_THIS.values(state=State.CANCELLED, reason=reason), rows)
        return len(letters)

    async def _chosen(
        self, connection: AsyncConnection, ids: Sequence[str] | None, group: str | None, job: str | None
    ) -> list[RowMapping]:
        if ids is None and group is None and job is None:
            raise InvalidInput("no dead letters were named", hint="name their ids, a job or a group of errors")
        has_job = exists(select(1).where(jobs.c.job_id == _e.job_id)).label("has_job")
        # Locked: two people who deal with one letter at the same time must not both move it.
        query = _dead(job).add_columns(has_job).limit(MOST_AT_ONCE).with_for_update(of=job_executions)
        if ids is not None:
            query = query.where(_e.execution_id.in_(ids))
        rows = (await connection.execute(query)).mappings().all()
        chosen = [row for row in rows if group is None or fingerprint(row["error_message"]) == group]
        if not chosen:
            raise NotFound("there are no such dead letters", hint="see what there is with: floodmark dlq")
        return chosen

    async def _read(self, query: Select[Any]) -> list[Execution]:
        async with self._database.reading() as connection:
            return [execution_from_row(row) for row in await connection.execute(query)]


_CLEARED = (
    "hold",
    "not_before",
    "lease_until",
    "worker",
    "cancel_requested",
    "started_at",
    "completed_at",
    "duration_seconds",
    "result",
    "error_message",
)
_THIS = update(job_executions).where(_e.execution_id == bindparam("letter"))


def _dead(job: str | None) -> Select[Any]:
    query = SELECT_EXECUTION.where(_e.state == State.DEAD).order_by(_e.completed_at.desc(), _e.execution_id.desc())
    return query if job is None else query.where(or_(_e.job_id == job, _e.job_name == job))


def _details(letter: RowMapping) -> list[Any]:
    """The failed attempts so far, with the one the letter died of, which a rescue does not write there."""
    told = letter["error_details"]
    before = told if isinstance(told, list) else [] if told is None else [told]
    last = before[-1].get("error") if before and isinstance(before[-1], dict) else None
    if letter["error_message"] is None or last == letter["error_message"]:
        return before
    entry = {"attempt": letter["attempt"], "worker": letter["worker"], "error": letter["error_message"]}
    return [*before, {**entry, "details": None}]


def _group(error: str, letters: Sequence[Execution]) -> DeadLetterGroup:
    newest = letters[0]
    assert newest.completed_at is not None
    return DeadLetterGroup(
        fingerprint=error,
        count=len(letters),
        example=newest.error_message or "",
        newest=newest.completed_at,
        jobs=tuple(dict.fromkeys(letter.job_name for letter in letters))[:_JOBS_NAMED],
    )
