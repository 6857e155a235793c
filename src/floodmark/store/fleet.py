"""Who is there and what they have been told. Tables: `workers` (pruned a day after they fell silent), `facts`."""

from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct
from sqlalchemy import case, delete, select

from floodmark.model.clock import Clock
from floodmark.model.fleet import WorkerInfo

from .database import Database
from .dialects import insert_into, present, present_moment
from .job_checks import check_json
from .tables import facts, workers

_DRAIN, _TICK, _INSTALLATION = "drain", "scheduler_tick", "installation"


class Tick(Struct, frozen=True, kw_only=True):
    """The last step of the scheduler: when, by whom, and how soon the next one may be expected."""

    at: datetime
    holder: str
    interval: float


class FleetRepository:
    """The processes of an installation and the few facts they share."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database, self._clock = database, clock

    async def seen(
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
        """Say that a process is alive, and will be taken for alive for `ttl`. The locks are those it holds now."""
        now = present(self._database, self._clock)
        says = {
            "role": role,
            "hostname": hostname,
            "pid": pid,
            "slots": slots,
            "busy": busy,
            "draining": draining,
            "seen_until": present(self._database, self._clock, after=ttl),
        }
        locks = {"lock_file": lock_file, "lock_key": lock_key}
        statement = insert_into(self._database, workers).values(worker=worker, started_at=now, **says, **locks)
        # A process that was declared dead by mistake has leases alone from then on, or that could happen for ever.
        kept = {name: case((workers.c.died_at.is_(None), statement.excluded[name]), else_=None) for name in locks}
        async with self._database.writing() as connection:
            await connection.execute(statement.on_conflict_do_update(index_elements=["worker"], set_=says | kept))

    async def left(self, worker: str) -> None:
        """Say that a process has gone in good order."""
        async with self._database.writing() as connection:
            await connection.execute(delete(workers).where(workers.c.worker == worker))

    async def workers(self) -> list[WorkerInfo]:
        """Everyone heard of within a day, the living first."""
        alive = case((workers.c.seen_until >= present(self._database, self._clock), 1), else_=0).label("alive")
        shown = [workers.c[name] for name in WorkerInfo.__struct_fields__ if name != "alive"]
        query = select(*shown, alive).order_by(alive.desc(), workers.c.started_at, workers.c.worker)
        async with self._database.reading() as connection:
            rows = (await connection.execute(query)).mappings().all()
        return [WorkerInfo(**{**row, "alive": bool(row["alive"])}) for row in rows]

    async def get_fact(self, name: str) -> Any:
        """What was set under this name, None if nothing was."""
        async with self._database.reading() as connection:
            return (await connection.execute(select(facts.c.value).where(facts.c.name == name))).scalar()

    async def set_fact(self, name: str, value: Any) -> None:
        """Keep a JSON value under a name; None forgets it."""
        wanted = check_json(name, value, hint="use text, numbers, lists and objects")
        now = present(self._database, self._clock)
        statement = insert_into(self._database, facts).values(name=name, value=wanted, updated_at=now)
        upsert = statement.on_conflict_do_update(index_elements=["name"], set_={"value": wanted, "updated_at": now})
        async with self._database.writing() as connection:
            await connection.execute(delete(facts).where(facts.c.name == name) if wanted is None else upsert)

    async def installation(self, new: str) -> str:
        """The id of the installation; `new` becomes it if there is none."""
        statement = insert_into(self._database, facts).values(
            name=_INSTALLATION, value=new, updated_at=present(self._database, self._clock)
        )
        async with self._database.writing() as connection:
            await connection.execute(statement.on_conflict_do_nothing(index_elements=["name"]))
        return str(await self.get_fact(_INSTALLATION))

    async def drain(self) -> None:
        """Ask all workers to take no more work."""
        await self.set_fact(_DRAIN, True)

    async def resume(self) -> None:
        """Undo `drain`."""
        await self.set_fact(_DRAIN, None)

    async def is_draining(self) -> bool:
        """Whether workers have been asked to take no more work."""
        return await self.get_fact(_DRAIN) is True

    async def tick(self, holder: str, interval: timedelta, at: datetime | None = None) -> None:
        """Say that the scheduler has made a step, `at` that moment or now, and makes one every `interval` at least."""
        if at is None:
            async with self._database.reading() as connection:
                at = await present_moment(self._database, self._clock, connection)
        await self.set_fact(_TICK, {"at": at, "holder": holder, "interval": interval.total_seconds()})

    async def last_tick(self) -> Tick | None:
        """The last step of the scheduler, None before the first."""
        told = await self.get_fact(_TICK)
        if told is None:
            return None
        return Tick(at=datetime.fromisoformat(told["at"]), holder=told["holder"], interval=told["interval"])

    async def last_tick_and_now(self) -> tuple[Tick | None, datetime]:
        """The last step of the scheduler, and what time it is by the same clock."""
        async with self._database.reading() as connection:
            now = await present_moment(self._database, self._clock, connection)
        return await self.last_tick(), now
