"""How far each sink has delivered the events. Tables: `consumers`, one row for each sink: `sink:<name>`; `sinks`.

The leader writes them, and operators pause, resume and replay. All changes of a position are conditional, so that an
operator and the leader do not undo each other's changes.
"""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import Any

from msgspec import Struct
from sqlalchemy import RowMapping, Select, delete, func, literal, select, update

from floodmark.errors import NotFound
from floodmark.model.clock import Clock
from floodmark.model.sinks import SinkRow
from floodmark.repositories.consumers import Consumers
from floodmark.repositories.events import BOUNDS, EventLog
from floodmark.repositories.repository import Repository
from floodmark.rules.sinks import sink_state
from floodmark.store.database import Database
from floodmark.store.planned import Planned, execute_planned, fetch_planned, plan
from floodmark.store.rows import decode_json, read_moment
from floodmark.store.tables import consumers
from floodmark.store.types import to_text

from .tables import sink_letters, sinks

_KIND = "sink:"
_LONGEST_ERROR = 1000
_NAMES_SHOWN = 5


# The time of the database; on SQLite that of the process counts.
_READ = f"""
SELECT c.position, c.place, c.state, c.paused, COALESCE(s.failures, 0), s.retry_at,
       EXISTS (SELECT 1 FROM sink_letters l WHERE l.sink = ?2 AND l.is_retried), {BOUNDS}, {{now}}
  FROM consumers c LEFT JOIN sinks s ON s.name = ?2 WHERE c.name = ?1
"""
_LOAD = Planned(_READ.format(now="NULL"), plan(_READ.format(now="clock_timestamp()")).postgresql)
_WRITE = """
UPDATE consumers SET position = ?3, state = NULL, error = NULL, failed_at = NULL, moved_at = {now}
 {without_waiting} WHERE name = ?1 AND position = ?2
"""
# PostgreSQL need not wait for its disk: a position that is lost in a power cut only repeats events.
_AT_ONCE = "FROM (SELECT set_config('synchronous_commit', 'off', true)) s"
_MOVE = Planned(
    _WRITE.format(now="?4", without_waiting=""),
    plan(_WRITE.format(now="COALESCE(?4::timestamptz, clock_timestamp())", without_waiting=_AT_ONCE)).postgresql,
)


class StoredSink(Struct, frozen=True, kw_only=True):
    """What the leader reads about a sink before each delivery."""

    position: int
    place: str | None
    state: Any
    paused: bool
    failures: int
    rest: float
    """Seconds until it is tried again; at most 0: at once."""
    oldest: int
    newest: int
    has_retries: bool
    """Dead letters are to be sent again."""


class SinkRepository(Repository):
    """Reads and moves the positions of sinks."""

    def __init__(self, database: Database, clock: Clock) -> None:
        super().__init__(database, clock)
        self._consumers, self._log = Consumers(database, clock), EventLog(database, clock)

    def transaction(self) -> AbstractAsyncContextManager[object]:
        """Commit the changes of a block together, or none."""
        return self._database.writing()

    async def load(self, name: str) -> StoredSink | None:
        """Return a sink, if it has a position."""
        rows = await fetch_planned(self._database, _LOAD, _KIND + name, name)
        if not rows:
            return None
        position, place, state, paused, failures, retry_at, has_retries, oldest, newest, now = rows[0]
        again = read_moment(retry_at)
        return StoredSink(
            position=position,
            place=place,
            state=decode_json(state),
            paused=bool(paused),
            failures=failures,
            rest=0.0 if again is None else (again - (now or self._clock.now())).total_seconds(),
            oldest=oldest,
            newest=newest,
            has_retries=bool(has_retries),
        )

    async def register(self, name: str, kind: str, streams: str | None) -> None:
        """Record that a sink is configured."""
        values = {"kind": kind, "streams": streams, "is_configured": True}
        statement = self._insert_into(sinks).values(name=name, **values)
        async with self._database.writing() as connection:
            await connection.execute(statement.on_conflict_do_update(index_elements=["name"], set_=values))

    async def keep_only(self, names: Sequence[str]) -> None:
        """Record that only these sinks are configured."""
        async with self._database.writing() as connection:
            await connection.execute(update(sinks).where(sinks.c.name.not_in(names)).values(is_configured=False))

    async def start(self, name: str, position: int, *, place: str, state: Any = None) -> None:
        """Set the position of a sink that is new or starts again. A pause stays."""
        await self._consumers.start(_KIND + name, position, place=place, state=state)

    async def move(
        self, name: str, before: StoredSink, after: int, *, state: Any = None, place: str | None = None
    ) -> bool:
        """Move a position and end a series of failures; return False if it was moved meanwhile."""
        if state is None and place is None and not before.failures:
            now = to_text(self._clock.now()) if self._database.dialect == "sqlite" else None
            values = (_KIND + name, before.position, after, now)
            return await execute_planned(self._database, _MOVE, *values) > 0
        async with self._database.writing() as connection:
            is_moved = await self._consumers.move(_KIND + name, before.position, after, state=state)
            if is_moved and before.failures:
                await connection.execute(_this(name).values(failures=0, retry_at=None))
            if is_moved and place is not None:
                this = update(consumers).where(consumers.c.name == _KIND + name)
                await connection.execute(this.values(place=place))
        return is_moved

    async def fail(self, name: str, error: str, *, failures: int, rest: timedelta) -> None:
        """Record why an attempt failed, and when the next one is due."""
        async with self._database.writing() as connection:
            await self._consumers.record_error(_KIND + name, error[:_LONGEST_ERROR])
            await connection.execute(_this(name).values(failures=failures, retry_at=self._now(rest)))

    async def rows(self) -> list[SinkRow]:
        """Return all sinks by name."""
        return await self._complete(await self._database.fetch(self._select().order_by(consumers.c.name)))

    async def show(self, name: str) -> SinkRow:
        """Return one sink; `NotFound` names those there are."""
        rows = await self._database.fetch(self._select().where(consumers.c.name == _KIND + name))
        if rows:
            [found] = await self._complete(rows)
            return found
        known = [row.name for row in await self.rows()]
        hint = f"there are: {', '.join(known[:_NAMES_SHOWN])}" if known else "set SINKS, and start a scheduler"
        raise NotFound(f"there is no sink {name[:60]!r}", hint=hint)

    async def pause(self, name: str, *, paused: bool) -> None:
        """Pause a sink, or resume it: then it is tried at once."""
        async with self._database.writing() as connection:
            await self._consumers.pause(_KIND + name, paused=paused)
            if not paused:
                await connection.execute(_this(name).values(retry_at=None))

    async def replay(self, name: str, position: int) -> None:
        """Set a position, wherever it is: a delivery under way does not move it then."""
        values = {"position": position, "state": None, "error": None, "failed_at": None, "moved_at": self._now()}
        async with self._database.writing() as connection:
            await connection.execute(update(consumers).where(consumers.c.name == _KIND + name).values(**values))
            await connection.execute(_this(name).values(failures=0, retry_at=None))

    async def remove(self, name: str) -> None:
        """Remove a sink with its position and its dead letters."""
        async with self._database.writing() as connection:
            await self._consumers.remove(_KIND + name)
            await connection.execute(delete(sinks).where(sinks.c.name == name))
            await connection.execute(delete(sink_letters).where(sink_letters.c.sink == name))

    async def _complete(self, rows: Sequence[RowMapping]) -> list[SinkRow]:
        """Add the lag to what is stored about sinks."""
        oldest, newest = await self._log.bounds()
        found = []
        for row in rows:
            since = await self._log.waits_since(row["position"])
            events = max(0, newest - max(row["position"], oldest - 1))
            found.append(_row(row, events, 0.0 if since is None else (row["now"] - since).total_seconds()))
        return found

    def _select(self) -> Select[Any]:
        name = func.substr(consumers.c.name, len(_KIND) + 1)
        letters = select(func.count()).where(sink_letters.c.sink == name).correlate(consumers).scalar_subquery()
        columns = ("position", "place", "state", "paused", "error", "failed_at", "moved_at")
        return (
            select(
                name.label("name"),
                *(consumers.c[column] for column in columns),
                func.coalesce(sinks.c.kind, "?").label("kind"),
                sinks.c.streams,
                func.coalesce(sinks.c.is_configured, literal(False)).label("is_configured"),
                sinks.c.retry_at,
                self._now().label("now"),
                letters.label("letters"),
            )
            .outerjoin(sinks, sinks.c.name == name)
            .where(consumers.c.name.startswith(_KIND, autoescape=True))
        )


def _this(name: str) -> Any:
    return update(sinks).where(sinks.c.name == name)


def _row(row: RowMapping, lag_events: int, lag_seconds: float) -> SinkRow:
    is_failing = row["error"] is not None
    return SinkRow(
        name=row["name"],
        kind=row["kind"],
        place=row["place"],
        streams=row["streams"],
        state=sink_state(
            is_configured=row["is_configured"],
            is_paused=row["paused"],
            is_failing=is_failing,
            is_filling=row["state"] is not None,
        ),
        position=row["position"],
        lag_events=lag_events,
        lag_seconds=max(0.0, lag_seconds),
        dead_letters=row["letters"],
        error=row["error"],
        failed_at=row["failed_at"],
        retry_at=row["retry_at"] if is_failing else None,
        moved_at=row["moved_at"],
    )
