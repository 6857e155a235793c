"""Rows of watches as values, and the lock of all changes."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict
from sqlalchemy import func, select, update

from floodmark.model.watches import WatchFields
from floodmark.store.async_engine import AsyncConnection
from floodmark.store.database import Database
from floodmark.store.dialects import insert_into
from floodmark.store.tables import consumers, outbox

CONSUMER = "watches"
# Columns with another name than their field: `where` is a word of SQL, and `channels` are the states of channels.
_COLUMNS = {"where": "conditions", "notify": "channels"}
_LISTS = ("where", "streams", "sources", "tags", "notify")


class EvaluatorState(Struct, frozen=True, kw_only=True):
    """The row of the evaluator in `consumers`. `generation` counts the changes of watches."""

    position: int
    generation: int
    memory: dict[str, Any]


def fields_of(row: Mapping[str, Any]) -> WatchFields:
    """Return the fields that people set."""
    values = {name: row[_COLUMNS.get(name, name)] for name in WatchFields.__struct_fields__}
    return WatchFields(**values | {name: tuple(values[name] or ()) for name in _LISTS})


def columns_of(fields: WatchFields) -> dict[str, Any]:
    """Return the columns of the fields that people set."""
    values = asdict(fields)
    return {_COLUMNS.get(name, name): list(value) if name in _LISTS else value for name, value in values.items()}


async def read_state(database: Database) -> EvaluatorState | None:
    """Return the state of the evaluator; None if there was never a watch."""
    async with database.reading() as connection:
        return await _read(connection, is_locked=False)


async def lock_state(database: Database, connection: AsyncConnection) -> EvaluatorState:
    """Lock the state of the evaluator until the end of the transaction. Every change of watches and matches does."""
    found = await _read(connection, is_locked=True)
    if found is None:
        last = await last_position(connection)
        new = insert_into(database, consumers).values(name=CONSUMER, position=last, state={"generation": 0})
        await connection.execute(new.on_conflict_do_nothing(index_elements=["name"]))
        found = await _read(connection, is_locked=True)
        assert found is not None
    return found


async def store_state(connection: AsyncConnection, state: EvaluatorState, **values: Any) -> None:
    """Write the state, within its lock."""
    memory = {**state.memory, "generation": state.generation}
    this = update(consumers).where(consumers.c.name == CONSUMER)
    await connection.execute(this.values(position=state.position, state=memory, **values))


async def last_position(connection: AsyncConnection) -> int:
    """Return the position of the newest event."""
    query = select(func.max(outbox.c.position)).where(outbox.c.position.is_not(None))
    return int((await connection.execute(query)).scalar() or 0)


async def _read(connection: AsyncConnection, *, is_locked: bool) -> EvaluatorState | None:
    query = select(consumers.c.position, consumers.c.state).where(consumers.c.name == CONSUMER)
    row = (await connection.execute(query.with_for_update() if is_locked else query)).first()
    if row is None:
        return None
    memory = dict(row.state or {})
    return EvaluatorState(position=row.position, generation=memory.pop("generation", 0), memory=memory)
