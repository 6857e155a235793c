"""Hints: something outside says that a source has new items. Column: `jobs.hinted_at`.

A hint decides when a job runs, never what is collected: the leader fires hinted jobs first, within their budgets.
"""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Update, select, update

from floodmark.model.job import ScheduleType
from floodmark.store.dialects import chunks
from floodmark.store.rule_sql import JOB_STREAM
from floodmark.store.tables import jobs

from .repository import Repository

_IS_ADAPTIVE = jobs.c.schedule_type == ScheduleType.ADAPTIVE


class Hints(Repository):
    """Stores hints. The caller notifies `Topic.JOBS` if there are any. Jobs that are not adaptive get none."""

    async def give_jobs(self, job_ids: Sequence[str]) -> int:
        """Store a hint for each of these jobs; returns the number of jobs that had none."""
        return sum([await self._give(jobs.c.job_id.in_(some)) for some in chunks(job_ids)])

    async def give_streams(self, streams: Sequence[str]) -> int:
        """Store a hint for each job that collects one of these streams."""
        return sum([await self._give(JOB_STREAM.in_(some)) for some in chunks(streams)])

    async def give_targets(self, source: str, targets: Sequence[str]) -> int:
        """Store a hint for each job with this source and one of these targets."""
        return sum([await self._give((jobs.c.source == source) & jobs.c.target.in_(some)) for some in chunks(targets)])

    async def are_used_by(self, source: str) -> bool:
        """Return whether a source has jobs that can get hints."""
        query = select(jobs.c.job_id).where(jobs.c.source == source, _IS_ADAPTIVE).limit(1)
        async with self._database.reading() as connection:
            return (await connection.execute(query)).first() is not None

    async def filter_targets(self, source: str, targets: Sequence[str]) -> set[str]:
        """Return those of the targets whose jobs can get hints."""
        found = set[str]()
        async with self._database.reading() as connection:
            for some in chunks(targets):
                query = select(jobs.c.target).where(jobs.c.source == source, jobs.c.target.in_(some), _IS_ADAPTIVE)
                found.update((await connection.execute(query)).scalars())
        return found

    async def _give(self, which: ColumnElement[bool]) -> int:
        async with self._database.writing() as connection:
            given = await connection.execute(hint_jobs(which, self._now()))
            return int(given.rowcount)


def hint_jobs(which: ColumnElement[bool], now: ColumnElement[Any]) -> Update:
    """Return the statement that stores a hint for those of the jobs that are adaptive and have none."""
    # The first hint counts: it says for how long something is known to wait.
    unhinted = (_IS_ADAPTIVE, jobs.c.hinted_at.is_(None))
    return update(jobs).where(which, *unhinted).values(hinted_at=now)
