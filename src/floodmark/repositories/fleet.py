"""Processes and shared facts. Tables: `workers` (rows are pruned a day after their last heartbeat), `facts`."""

from datetime import datetime, timedelta
from typing import Any, TypeVar

import msgspec
from msgspec import Struct
from sqlalchemy import case, delete, select

from floodmark.model.fleet import WorkerInfo
from floodmark.store.dialects import present_moment, raw
from floodmark.store.tables import facts, workers

from .job_checks import check_json
from .repository import Repository

# The role of a process that leases executions from the queue.
WORKER = "worker"
T = TypeVar("T")
_DRAIN, _TICK, _INSTALLATION = "drain", "scheduler_tick", "installation"


class Tick(Struct, frozen=True, kw_only=True):
    """The last step of the scheduler: its time, the process, and the longest interval until the next one."""

    at: datetime
    holder: str
    interval: float


class FleetRepository(Repository):
    """The processes of an installation and the facts they share."""

    async def record_presence(
        self,
        worker: str,
        *,
        role: str,
        hostname: str,
        pid: int,
        slots: int,
        busy: int,
        draining: bool,
        ttl: timedelta,
        lock_file: str | None = None,
        lock_key: int | None = None,
    ) -> None:
        """Record that a process is alive; it counts as alive for `ttl`. The locks are those it holds now."""
        now = self._now()
        values = {
            "role": role,
            "hostname": hostname,
            "pid": pid,
            "slots": slots,
            "busy": busy,
            "draining": draining,
            "seen_until": self._now(ttl),
        }
        locks = {"lock_file": lock_file, "lock_key": lock_key}
        statement = self._insert_into(workers).values(worker=worker, started_at=now, **values, **locks)
        # A process that was declared dead by mistake registers no lock again, or the mistake could be repeated.
        kept = {name: case((workers.c.died_at.is_(None), statement.excluded[name]), else_=None) for name in locks}
        async with self._database.writing() as connection:
            await connection.execute(statement.on_conflict_do_update(index_elements=["worker"], set_=values | kept))

    async def remove(self, worker: str) -> None:
        """Remove a process that has stopped."""
        async with self._database.writing() as connection:
            await connection.execute(delete(workers).where(workers.c.worker == worker))

    async def workers(self) -> list[WorkerInfo]:
        """Return the processes of the last day, those that are alive first."""
        alive = case((workers.c.seen_until >= self._now(), 1), else_=0).label("alive")
        columns = [workers.c[name] for name in WorkerInfo.__struct_fields__ if name != "alive"]
        query = select(*columns, alive).order_by(alive.desc(), workers.c.started_at, workers.c.worker)
        return [WorkerInfo(**{**row, "alive": bool(row["alive"])}) for row in await self._database.fetch(query)]

    async def available(self) -> list[str]:
        """Return the names of the workers that lease executions."""
        is_alive = workers.c.seen_until >= self._now()
        query = select(workers.c.worker).where(workers.c.role == WORKER, is_alive, workers.c.draining.is_(False))
        return [str(row["worker"]) for row in await self._database.fetch(query)]

    async def get_fact(self, name: str) -> Any:
        """Return the fact of this name, if any."""
        return await self._database.fetch_value(select(facts.c.value).where(facts.c.name == name))

    async def read_fact(self, name: str, kind: type[T]) -> T | None:
        """Return the fact of this name as a value of a type; None if there is none, or if another version wrote it."""
        text = await self._database.fetch_value(select(raw(facts.c.value)).where(facts.c.name == name))
        try:
            return None if text is None else msgspec.json.decode(text, type=kind)
        except msgspec.ValidationError:
            return None

    async def set_fact(self, name: str, value: Any) -> None:
        """Store a JSON value under a name; None deletes it."""
        wanted = check_json(name, value, hint="use text, numbers, lists and objects")
        now = self._now()
        statement = self._insert_into(facts).values(name=name, value=wanted, updated_at=now)
        upsert = statement.on_conflict_do_update(index_elements=["name"], set_={"value": wanted, "updated_at": now})
        async with self._database.writing() as connection:
            await connection.execute(delete(facts).where(facts.c.name == name) if wanted is None else upsert)

    async def installation(self, new: str) -> str:
        """Return the id of the installation; it is `new` if there was none."""
        statement = self._insert_into(facts).values(name=_INSTALLATION, value=new, updated_at=self._now())
        async with self._database.writing() as connection:
            await connection.execute(statement.on_conflict_do_nothing(index_elements=["name"]))
        return str(await self.get_fact(_INSTALLATION))

    async def drain(self) -> None:
        """Ask all workers to lease no more executions."""
        await self.set_fact(_DRAIN, True)

    async def resume(self) -> None:
        """Undo `drain`."""
        await self.set_fact(_DRAIN, None)

    async def is_draining(self) -> bool:
        """Return whether workers are asked to lease no more executions."""
        return await self.get_fact(_DRAIN) is True

    async def tick(self, holder: str, interval: timedelta, at: datetime | None = None) -> None:
        """Record a step of the scheduler, `at` that time or now; it makes one at least every `interval`."""
        if at is None:
            async with self._database.reading() as connection:
                at = await present_moment(self._database, self._clock, connection)
        await self.set_fact(_TICK, {"at": at, "holder": holder, "interval": interval.total_seconds()})

    async def last_tick(self) -> Tick | None:
        """Return the last step of the scheduler, None before the first."""
        tick = await self.get_fact(_TICK)
        if tick is None:
            return None
        return Tick(at=datetime.fromisoformat(tick["at"]), holder=tick["holder"], interval=tick["interval"])

    async def last_tick_and_now(self) -> tuple[Tick | None, datetime]:
        """Return the last step of the scheduler, and the present time of the same clock."""
        async with self._database.reading() as connection:
            now = await present_moment(self._database, self._clock, connection)
        return await self.last_tick(), now
