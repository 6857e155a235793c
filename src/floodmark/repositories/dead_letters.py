"""Dead letters: executions that failed permanently, until someone retries or drops them. Table: `executions`."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, RowMapping, Select, bindparam, exists, func, literal, or_, select, tuple_, update

from floodmark.errors import InvalidInput, NotFound
from floodmark.model.dead_letters import DeadLetterGroup, fingerprint
from floodmark.model.execution import Execution, Queued, State
from floodmark.model.job import Priority
from floodmark.rules.rank import rank_delay
from floodmark.store.async_engine import AsyncConnection
from floodmark.store.dialects import chunks
from floodmark.store.execution_rows import SELECT_EXECUTION, read_executions
from floodmark.store.tables import job_executions, jobs
from floodmark.store.types import UtcTime

from .repository import Repository, bound_limit

# The newest letters are retried or dropped; the next call continues with the others.
MOST_AT_ONCE = 10_000
# The newest letters that are grouped to be listed.
MOST_GROUPED = 2000
MOST_SHOWN = 500
_JOBS_NAMED = 10
# `fingerprint` reads the first 300 characters.
_LONGEST_ERROR, _SPACES = 320, " \t\r\n"

_e = job_executions.c
# Literally, so that SQLite uses the partial index.
_IS_DEAD = _e.state == literal(State.DEAD, literal_execute=True)
# What a group needs: not the details, which are long. Errors may be long too.
_ERROR_SHOWN = 2000
_BRIEF = (
    _e.execution_id,
    _e.job_name,
    _e.completed_at,
    func.substr(_e.error_message, 1, _ERROR_SHOWN).label("error"),
)


class DeadLetters(Repository):
    """Lists, retries and drops dead letters."""

    async def page(
        self,
        job: str | None = None,
        before: Sequence[Any] | None = None,
        limit: int = 50,
        *,
        group: str | None = None,
    ) -> list[Execution]:
        """Return dead letters, newest first. The next page is `before` the `completed_at` and the id of the last."""
        query, limit = _dead(job), bound_limit(limit, MOST_SHOWN)
        if before is not None:
            query = query.where(tuple_(_e.completed_at, _e.execution_id) < tuple_(*before))
        if job is None and group is None:
            query = query.where(_is_among_newest(before, limit))
        if group is not None:
            rows = await self._database.fetch(query.with_only_columns(*_BRIEF).limit(MOST_AT_ONCE))
            ids = [row["execution_id"] for row in rows if fingerprint(row["error"]) == group]
            query = query.where(_e.execution_id.in_(ids[:limit]))
        return await read_executions(self._database, query.limit(limit))

    async def groups(self, job: str | None = None) -> list[DeadLetterGroup]:
        """Return the newest letters grouped by error, most frequent first."""
        by_error: dict[str, list[RowMapping]] = {}
        # The database groups equal errors first: a cause that stops the whole fleet has thousands of letters.
        for row in await self._database.fetch(_by_error(job)):
            by_error.setdefault(fingerprint(row["error"]), []).append(row)
        newest = {error: max(row["newest"] for row in rows) for error, rows in by_error.items()}
        examples = await self._examples(job, newest)
        found = [_group(error, rows, newest[error], examples) for error, rows in by_error.items()]
        return sorted(found, key=lambda group: -group.count)

    async def _examples(self, job: str | None, newest: Mapping[str, datetime]) -> dict[str, str]:
        """Return the newest error of each group."""
        found: dict[str, str] = {}
        shown = func.substr(_e.error_message, 1, _ERROR_SHOWN).label("error")
        query = _of_job(select(shown), job).where(_IS_DEAD)
        for some in chunks(list(newest.values())):
            for row in await self._database.fetch(query.where(_e.completed_at.in_(some)).limit(MOST_AT_ONCE)):
                found.setdefault(fingerprint(row["error"]), row["error"] or "")
        return found

    async def retry(
        self,
        ids: Sequence[str] | None = None,
        *,
        group: str | None = None,
        job: str | None = None,
        patience: timedelta = timedelta(),
    ) -> list[Queued]:
        """dead -> queued with all attempts, for these ids, a group of errors, or a job.

        The error stays in `error_details`. Letters of deleted jobs are not retried. A paused job runs its letters when
        it is resumed. The caller puts the returned executions on the queue. `patience` is QUEUE_PATIENCE.
        """
        async with self._database.writing() as connection:
            letters = [letter for letter in await _choose(connection, ids, group, job) if letter["has_job"]]
            if not letters:
                raise NotFound(
                    "the jobs of these dead letters have been deleted",
                    hint="clear them away with: floodmark dlq drop",
                )
            for priority in sorted({letter["priority"] for letter in letters}):
                statement = _THIS.values(
                    state=State.QUEUED,
                    queue_rank=self._now(rank_delay(priority, patience)),
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
        """dead -> cancelled for these ids, a group of errors, or a job. Returns how many."""
        async with self._database.writing() as connection:
            letters = await _choose(connection, ids, group, job)
            rows = [{"letter": letter["execution_id"]} for letter in letters]
            await connection.execute(_THIS.values(state=State.CANCELLED, reason=reason), rows)
        return len(letters)


async def _choose(
    connection: AsyncConnection, ids: Sequence[str] | None, group: str | None, job: str | None
) -> list[RowMapping]:
    """Return the letters to retry or drop, locked: two people must not both move one."""
    if ids is None and group is None and job is None:
        raise InvalidInput("no dead letters were named", hint="name their ids, a job or a group of errors")
    has_job = exists(select(1).where(jobs.c.job_id == _e.job_id)).label("has_job")
    query = _dead(job).add_columns(has_job).limit(MOST_AT_ONCE).with_for_update(of=job_executions)
    if ids is not None:
        query = query.where(_e.execution_id.in_(ids))
    rows = (await connection.execute(query)).mappings().all()
    chosen = [row for row in rows if group is None or fingerprint(row["error_message"]) == group]
    if not chosen:
        raise NotFound("there are no such dead letters", hint="see what there is with: floodmark dlq")
    return chosen


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
    query = SELECT_EXECUTION.where(_IS_DEAD).order_by(_e.completed_at.desc(), _e.execution_id.desc())
    return _of_job(query, job)


def _is_among_newest(before: Sequence[Any] | None, limit: int) -> ColumnElement[bool]:
    """Return a condition that only the letters of a page, and those of the same time as its last, fulfil.

    The index has times only: without the condition SQLite sorts all letters by time and id.
    """
    times = select(_e.completed_at).where(_IS_DEAD)
    times = times if before is None else times.where(_e.completed_at < before[0])
    edge = times.order_by(_e.completed_at.desc()).offset(limit - 1).limit(1).scalar_subquery()
    return _e.completed_at >= func.coalesce(edge, bindparam(None, datetime.fromtimestamp(0, UTC), type_=UtcTime()))


def _of_job(query: Select[Any], job: str | None) -> Select[Any]:
    return query if job is None else query.where(or_(_e.job_id == job, _e.job_name == job))


def _by_error(job: str | None) -> Select[Any]:
    """Return the query that groups the newest letters by job and by as much of the error as `fingerprint` reads."""
    error = func.substr(func.ltrim(_e.error_message, _SPACES), 1, _LONGEST_ERROR).label("error")
    query = select(error, _e.job_name, _e.completed_at).where(_IS_DEAD)
    some = _of_job(query, job).order_by(_e.completed_at.desc()).limit(MOST_GROUPED).subquery()
    newest = func.max(some.c.completed_at).label("newest")
    oldest = func.min(some.c.completed_at).label("oldest")
    groups = select(some.c.error, some.c.job_name, func.count().label("count"), newest, oldest)
    return groups.group_by(some.c.error, some.c.job_name).order_by(newest.desc())


def _details(letter: RowMapping) -> list[Any]:
    """Return the failed attempts, with the last one added if it is not among them."""
    details = letter["error_details"]
    before = details if isinstance(details, list) else [] if details is None else [details]
    last = before[-1].get("error") if before and isinstance(before[-1], dict) else None
    if letter["error_message"] is None or last == letter["error_message"]:
        return before
    entry = {"attempt": letter["attempt"], "worker": letter["worker"], "error": letter["error_message"]}
    return [*before, {**entry, "details": None}]


def _group(error: str, rows: Sequence[RowMapping], newest: datetime, examples: Mapping[str, str]) -> DeadLetterGroup:
    return DeadLetterGroup(
        fingerprint=error,
        count=sum(row["count"] for row in rows),
        example=examples.get(error, error),
        newest=newest,
        oldest=min(row["oldest"] for row in rows),
        jobs=tuple(dict.fromkeys(row["job_name"] for row in rows))[:_JOBS_NAMED],
    )
