"""Dead processes and their leases.

Tables: `workers` (locks, time of death), and the leases in `executions`, `watermarks` and `accounts`.
"""

from msgspec import Struct
from sqlalchemy import select, text, tuple_, update

from floodmark.model.execution import State
from floodmark.repositories.repository import Repository
from floodmark.sources.telegram.tables import accounts, media
from floodmark.store.async_engine import AsyncConnection
from floodmark.store.rule_sql import JOB_STREAM
from floodmark.store.tables import job_executions, jobs, watermarks, workers

# One query for the locks of all processes. Shortly after the server has started (a restart, a failover) a missing lock
# proves nothing, because not all processes have reconnected yet.
_SESSION_LOCKS = text("""
WITH held AS MATERIALIZED (
    SELECT (classid::int8 << 32) | objid::int8 AS key FROM pg_locks
     WHERE locktype = 'advisory' AND objsubid = 1 AND granted
       AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
)
SELECT w.worker, w.lock_file,
       w.lock_key IS NOT NULL AND NOT EXISTS (SELECT 1 FROM held WHERE held.key = w.lock_key)
       AND pg_postmaster_start_time() < clock_timestamp() - interval '10 seconds'
  FROM workers w WHERE w.worker <> :me AND (w.lock_file IS NOT NULL OR w.lock_key IS NOT NULL)
""")


class Holder(Struct, frozen=True):
    """A process that has registered a lock. `is_missing`: no session holds its lock."""

    worker: str
    lock_file: str | None
    is_missing: bool


class DeadProcesses(Repository):
    """Reads the locks of other processes, and ends the leases of dead ones."""

    async def holders(self, me: str) -> list[Holder]:
        """Return every process except `me` that has registered a lock."""
        async with self._database.reading() as connection:
            if self._database.dialect == "postgresql":
                return [Holder(*row) for row in await connection.execute(_SESSION_LOCKS, {"me": me})]
            query = select(workers.c.worker, workers.c.lock_file).where(
                workers.c.worker != me, workers.c.lock_file.is_not(None)
            )
            return [Holder(worker, file, False) for worker, file in await connection.execute(query)]

    async def record_death(self, worker: str, *, is_certain: bool) -> bool:
        """Record the death and end the leases of the process, in one transaction. False if it was recorded before.

        Fences make this safe: a process that is alive after all loses its current batch, but no item. Telegram revokes
        a session that is used twice, so leases of accounts end only when the death is certain: the kernel has freed
        the lock file, or the parent has seen the process end.
        """
        now = self._now()
        this = update(workers).where(workers.c.worker == worker)
        async with self._database.writing() as connection:
            written = await connection.execute(
                (this if is_certain else this.where(workers.c.died_at.is_(None))).values(
                    died_at=now, seen_until=now, lock_file=None, lock_key=None
                )
            )
            if not written.rowcount and not is_certain:
                return False
            await self._end_leases(connection, worker)
            # Its downloads continue in another process.
            claimed = update(media).where(media.c.state == "wanted", media.c.holder == worker)
            await connection.execute(claimed.values(holder=None, lease_until=None))
            if is_certain:
                held = update(accounts).where(accounts.c.holder == worker)
                await connection.execute(held.values(holder=None, lease_until=None))
            return bool(written.rowcount)

    async def _end_leases(self, connection: AsyncConnection, worker: str) -> None:
        now = self._now()
        theirs = (job_executions.c.state == State.RUNNING.value, job_executions.c.worker == worker)
        held = select(JOB_STREAM, job_executions.c.fence).join(jobs, jobs.c.job_id == job_executions.c.job_id)
        # The stream of a job that was deleted meanwhile keeps its lease: no execution waits for it.
        await connection.execute(update(job_executions).where(*theirs).values(lease_until=now))
        await connection.execute(
            update(watermarks)
            .where(
                tuple_(watermarks.c.stream, watermarks.c.fence).in_(held.where(*theirs)),
                watermarks.c.lease_until.is_not(None),
            )
            .values(lease_until=now)
        )
