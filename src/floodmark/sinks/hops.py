"""Hops of events: how many times in a row Floodmark's own events have led to them. Tables: `execution_hops`, `items`.

A sink sends the number with its events, and a trigger adds one, so that a loop of triggers ends.
"""

from collections.abc import Sequence

from sqlalchemy import select

from floodmark.store.database import Database
from floodmark.store.dialects import chunks
from floodmark.store.port import Event
from floodmark.store.tables import execution_hops, items


class EventHops:
    """Finds the hops of events."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def find(self, events: Sequence[Event]) -> dict[tuple[str, str], int]:
        """Return the hops by stream and key, for events that a trigger of Floodmark's own events has led to."""
        if await self._database.fetch_value(select(execution_hops.c.execution_id).limit(1)) is None:
            # Nearly always: one quick query for a batch.
            return {}
        keys: dict[str, list[str]] = {}
        for event in events:
            keys.setdefault(event.stream, []).append(event.key)
        found: dict[tuple[str, str], int] = {}
        query = select(items.c.stream, items.c.key, execution_hops.c.hops).join(
            execution_hops, execution_hops.c.execution_id == items.c.execution_id
        )
        async with self._database.reading() as connection:
            for stream, some in ((stream, part) for stream, all_keys in keys.items() for part in chunks(all_keys)):
                rows = await connection.execute(query.where(items.c.stream == stream, items.c.key.in_(some)))
                found |= {(row.stream, row.key): row.hops for row in rows}
        return found
