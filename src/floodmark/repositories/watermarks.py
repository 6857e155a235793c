"""Watermarks: how far each stream is collected. Table: `watermarks`."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import select

from floodmark.errors import InvalidInput
from floodmark.model.streams import StreamState
from floodmark.store.async_engine import AsyncConnection
from floodmark.store.tables import jobs, watermarks

from .job_checks import check_json
from .name_search import no_such_stream
from .repository import Repository, bound_limit

MOST_SHOWN = 1000

_EXAMPLE = 'for example {"id": 4812}'

_SELECT = select(*(watermarks.c[name] for name in StreamState.__struct_fields__))


class Watermarks(Repository):
    """Shows and moves watermarks. A move fences off the current worker: its later batches are refused."""

    async def show(self, stream: str) -> StreamState:
        """Return the state of a stream; `NotFound` suggests similar names."""
        async with self._database.reading() as connection:
            return await _read(connection, stream)

    async def page(self, after: str | None = None, limit: int = 100) -> list[StreamState]:
        """Return streams in order of name. The next page is `after` the last one."""
        query = _SELECT if after is None else _SELECT.where(watermarks.c.stream > after)
        query = query.order_by(watermarks.c.stream).limit(bound_limit(limit, MOST_SHOWN))
        return [StreamState(**row) for row in await self._database.fetch(query)]

    async def holds_items(self, stream: str) -> bool:
        """Return whether items of another stream are stored under this name."""
        query = select(watermarks.c.stream).where(watermarks.c.items_stream == stream).limit(1)
        return await self._database.fetch_value(query) is not None

    async def is_known(self, stream: str) -> bool:
        """Return whether the stream was ever collected, or belongs to a job."""
        async with self._database.reading() as connection:
            return await _is_known(connection, stream)

    async def set(self, stream: str, value: Mapping[str, Any]) -> StreamState:
        """Continue from `value`, which only the source of the stream understands. The stream must be known."""
        if not isinstance(value, Mapping):
            raise InvalidInput(f"a watermark is an object, not {value!r:.60}", hint=_EXAMPLE)
        wanted = check_json("the watermark", dict(value), hint=_EXAMPLE)
        return await self._move(stream, {"value": wanted, "moved_at": self._now()})

    async def reset(self, stream: str) -> StreamState:
        """Start again, as if the stream had never been collected. Its items stay."""
        cleared: dict[str, Any] = dict.fromkeys(("value", "moved_at", "last_parsed_at", "last_checked_at"))
        return await self._move(stream, cleared)

    async def _move(self, stream: str, values: dict[str, Any]) -> StreamState:
        # A reset keeps the row: a fence that starts again at 1 would let an old worker in.
        values = {**values, "holder": None, "lease_until": None, "high_water": None}
        statement = self._insert_into(watermarks).values(stream=stream, fence=1, **values)
        statement = statement.on_conflict_do_update(
            index_elements=["stream"], set_={**values, "fence": watermarks.c.fence + 1}
        )
        async with self._database.writing() as connection:
            # A typing mistake must not create a stream.
            if not await _is_known(connection, stream):
                raise await no_such_stream(connection, stream)
            await connection.execute(statement)
            return await _read(connection, stream)


async def _read(connection: AsyncConnection, stream: str) -> StreamState:
    row = (await connection.execute(_SELECT.where(watermarks.c.stream == stream))).mappings().first()
    if row is None:
        raise await no_such_stream(connection, stream)
    return StreamState(**row)


async def _is_known(connection: AsyncConnection, stream: str) -> bool:
    source, _, target = stream.partition(":")
    # One query for each index.
    named = select(jobs.c.job_id).where(jobs.c.stream == stream)
    unnamed = select(jobs.c.job_id).where(jobs.c.stream.is_(None), jobs.c.target == target, jobs.c.source == source)
    known = select(watermarks.c.stream).where(watermarks.c.stream == stream)
    return (await connection.execute(known.union_all(named, unnamed).limit(1))).first() is not None
