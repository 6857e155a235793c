"""Positions of the consumers of events. Table: `consumers`; a row stays until its consumer is removed.

A consumer reads events after its position (`EventLog.after`), processes them, and moves its position. To process each
event once, write the results and move the position in one transaction (`Database.writing`).
"""

from typing import Any

from sqlalchemy import delete, select, update

from floodmark.errors import NotFound
from floodmark.model.consumers import ConsumerRow
from floodmark.store.tables import consumers

from .repository import Repository


class Consumers(Repository):
    """Reads and moves positions."""

    async def find(self, name: str) -> ConsumerRow | None:
        """Return a consumer, if it has a position."""
        rows = await self._database.fetch(_select().where(consumers.c.name == name))
        return ConsumerRow(**rows[0]) if rows else None

    async def list(self, kind: str) -> list[ConsumerRow]:
        """Return all consumers of a kind, by name."""
        is_kind = consumers.c.name.startswith(f"{kind}:", autoescape=True)
        return [ConsumerRow(**row) for row in await self._database.fetch(_select().where(is_kind).order_by("name"))]

    async def start(self, name: str, position: int, *, place: str | None = None, state: Any = None) -> None:
        """Set the position of a consumer that is new or starts again. A pause stays."""
        values = {"place": place, "position": position, "state": state, "error": None, "failed_at": None}
        values["moved_at"] = self._now()
        statement = self._insert_into(consumers).values(name=name, **values)
        async with self._database.writing() as connection:
            await connection.execute(statement.on_conflict_do_update(index_elements=["name"], set_=values))

    async def add(self, name: str, position: int, *, place: str | None = None, state: Any = None) -> bool:
        """Set the position of a new consumer. Return False if it has one."""
        statement = self._insert_into(consumers).values(name=name, place=place, position=position, state=state)
        async with self._database.writing() as connection:
            return (await connection.execute(statement.on_conflict_do_nothing())).rowcount > 0

    async def move(self, name: str, before: int, after: int, *, state: Any = None) -> bool:
        """Move a position from `before` to `after`. Return False if another process moved it before."""
        values = {"position": after, "state": state, "error": None, "failed_at": None, "moved_at": self._now()}
        this = update(consumers).where(consumers.c.name == name, consumers.c.position == before)
        async with self._database.writing() as connection:
            return (await connection.execute(this.values(**values))).rowcount > 0

    async def record_error(self, name: str, error: str) -> None:
        """Record why the last attempt failed. The next move clears it."""
        await self._update(name, error=error, failed_at=self._now())

    async def pause(self, name: str, *, paused: bool) -> None:
        """Pause or resume a consumer."""
        await self._update(name, paused=paused)

    async def remove(self, name: str) -> None:
        """Remove a consumer and its position."""
        async with self._database.writing() as connection:
            done = await connection.execute(delete(consumers).where(consumers.c.name == name))
        _require(name, done.rowcount)

    async def _update(self, name: str, **values: Any) -> None:
        async with self._database.writing() as connection:
            done = await connection.execute(update(consumers).where(consumers.c.name == name).values(**values))
        _require(name, done.rowcount)


def _select() -> Any:
    return select(*(consumers.c[name] for name in ConsumerRow.__struct_fields__))


def _require(name: str, changed: int) -> None:
    if not changed:
        raise NotFound(f"there is no consumer {name!r}", hint="see the consumers with: floodmark sinks")
