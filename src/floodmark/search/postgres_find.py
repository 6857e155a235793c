"""Searches in the index on PostgreSQL.

The newest documents are read first, without the index of tokens: a frequent word is found among them, and PostgreSQL
would read all its matches. Then the index is asked, for longer and longer periods: a rare word has few matches, and of
a frequent one not all are read. No statement depends on statistics, which are wrong for a table that was just filled.
"""

from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

from msgspec import Struct

from floodmark.store.async_engine import AsyncConnection

from .document_ids import first_id, ids_between, second_of_id
from .expressions import stream_token, tsquery
from .port import GLANCED_AT, MOST_RANKED, MOST_STREAM_TOKENS, IndexHit, SearchFilter
from .query import Node
from .state import IndexState

T = TypeVar("T")

OPEN = """
SELECT set_config('enable_seqscan', 'off', true), set_config('max_parallel_workers_per_gather', '0', true),
       (SELECT value FROM search_state WHERE id = 1)
"""
"""Prepares a transaction for a search, and returns the state of the index in the last column."""

_STREAM_IDS = "SELECT stream_id FROM search_streams WHERE stream = ANY ($1::text[])"
_COLUMNS = "SELECT id, stream_id, key, revision FROM search_documents"
# Only for the rows that are left: a stream of the index has always a name.
_NAMED = """
SELECT f.id, (SELECT s.stream FROM search_streams s WHERE s.stream_id = f.stream_id) AS stream, f.key, f.revision
  FROM ({found}) f
"""
READ_FIRST = 20_000
"""How many of the newest documents are read without the index of tokens. It takes about ten milliseconds."""
_EDGE = "SELECT id FROM search_documents WHERE id < $1 ORDER BY id DESC OFFSET $2 LIMIT 1"
# A query of its own, so that the text is parsed once and not for each row.
_QUERY = "(SELECT $3::text::tsquery)"
# A function in place of the operator @@: the index of tokens cannot be used.
_FIND_NEWEST = f"""
{_COLUMNS} WHERE id >= $1 AND id < $2 AND ts_match_vq(tokens, {_QUERY}) {{condition}}
 ORDER BY id DESC LIMIT $4
"""
# A sum in place of the id: only the index of tokens can be used.
_FIND = f"""
{_COLUMNS} WHERE id + 0 >= $1 AND id + 0 < $2 AND tokens @@ {_QUERY} {{condition}}
 ORDER BY id + 0 DESC LIMIT $4
"""
_IN_STREAMS = "AND stream_id = ANY ($5::int[])"
# Without words: all documents in the order of the primary key.
_FIND_ALL = f"{_COLUMNS} WHERE id >= $1 AND id < $2 {{condition}} ORDER BY id DESC LIMIT $3"
_ALL_IN_STREAMS = "AND stream_id = ANY ($4::int[])"
# Thousands of matches are compared, so only their ids are sent.
_IDS = "SELECT array_agg(f.id) FROM ({found}) f"
# The weights of D, C, B and A. Words of the title have A, all others D.
_RANK = _NAMED.format(
    found=f"""
{_COLUMNS} WHERE id = ANY ($1::bigint[])
 ORDER BY ts_rank('{{0.1, 0.1, 0.1, 0.4}}', tokens, (SELECT $2::text::tsquery), 1) DESC, id DESC LIMIT $3
"""
)

# A period has 12 days.
_PERIOD_BITS = 20
# How many periods are searched at once, before all others.
_PERIODS = (4, 16, 64)


class _Bounds(Struct, frozen=True):
    """What a search is limited to: ids from `first` until before `end`, and with many streams their numbers.

    `query` is None for a search without words that is not limited to few streams.
    """

    first: int
    end: int
    query: str | None
    stream_ids: list[int] | None = None

    @property
    def more(self) -> tuple[Any, ...]:
        """The arguments of the condition."""
        return () if self.stream_ids is None else (self.stream_ids,)

    def complete(self, statement: str) -> str:
        """Return one of the statements with its condition."""
        condition = _ALL_IN_STREAMS if self.query is None else _IN_STREAMS
        return statement.format(condition="" if self.stream_ids is None else condition)


def period_token(document_id: int) -> str:
    """Return the token of the period of a document."""
    return _token(second_of_id(document_id) >> _PERIOD_BITS)


class PostgresFinder(Struct, frozen=True):
    """Searches on one connection."""

    connection: AsyncConnection
    state: IndexState
    read_first: int = READ_FIRST

    async def find(self, query: Node | None, within: SearchFilter, *, before: int | None, limit: int) -> list[IndexHit]:
        """Return the newest matches, newest first."""
        if query is None and within.streams is not None and len(within.streams) > MOST_STREAM_TOKENS:
            found = await self._glance(within.streams, within, before)
            if len(found) >= limit:
                return found[:limit]
        return await self._newest(self._hits, query, within, before, limit)

    async def rank(self, query: Node, within: SearchFilter, *, limit: int) -> list[IndexHit]:
        """Return the best of the newest matches, best first."""
        newest = await self._newest(self._ids, query, within, None, MOST_RANKED)
        best = await self.connection.exec_driver_sql(_RANK, (newest, tsquery(query), limit))
        return [IndexHit._make(row) for row in best]

    async def _newest(
        self,
        read: Callable[[str, _Bounds, tuple[Any, ...]], Awaitable[list[T]]],
        query: Node | None,
        within: SearchFilter,
        before: int | None,
        limit: int,
    ) -> list[T]:
        bounds = await self._bounds(query, within, before)
        if bounds is None:
            return []
        if bounds.query is None:
            return await read(_FIND_ALL, bounds, (bounds.first, bounds.end, limit))
        edge = 0
        if self.state.documents > self.read_first:
            edge = (await self.connection.exec_driver_sql(_EDGE, (bounds.end, self.read_first))).scalar() or 0
        lowest = max(bounds.first, edge)
        found = await read(_FIND_NEWEST, bounds, (lowest, bounds.end, bounds.query, limit))
        for first, end, period_tokens in _windows(bounds.first, lowest):
            if len(found) >= limit:
                break
            narrowed = f"({bounds.query}) & ({period_tokens})" if period_tokens else bounds.query
            found += await read(_FIND, bounds, (first, end, narrowed, limit - len(found)))
        return found

    async def _glance(self, streams: frozenset[str], within: SearchFilter, before: int | None) -> list[IndexHit]:
        """Return those of the newest documents that are in many streams."""
        first, end = ids_between(within.since, within.until, self.state.moved)
        bounds = _Bounds(first, end if before is None else min(end, before), None)
        newest = await self._hits(_FIND_ALL, bounds, (bounds.first, bounds.end, GLANCED_AT))
        return [hit for hit in newest if hit.stream in streams]

    async def _hits(self, statement: str, bounds: _Bounds, arguments: tuple[Any, ...]) -> list[IndexHit]:
        query = _NAMED.format(found=bounds.complete(statement))
        rows = await self.connection.exec_driver_sql(query, (*arguments, *bounds.more))
        return sorted((IndexHit._make(row) for row in rows), reverse=True)

    async def _ids(self, statement: str, bounds: _Bounds, arguments: tuple[Any, ...]) -> list[int]:
        query = _IDS.format(found=bounds.complete(statement))
        return (await self.connection.exec_driver_sql(query, (*arguments, *bounds.more))).scalar() or []

    async def _bounds(self, query: Node | None, within: SearchFilter, before: int | None) -> _Bounds | None:
        """Return the bounds; None if the index has none of the streams."""
        first, end = ids_between(within.since, within.until, self.state.moved)
        end = end if before is None else min(end, before)
        if within.streams is None:
            return _Bounds(first, end, tsquery(query))
        ids = list((await self.connection.exec_driver_sql(_STREAM_IDS, (sorted(within.streams),))).scalars())
        if not ids:
            return None
        if len(ids) > MOST_STREAM_TOKENS:
            return _Bounds(first, end, tsquery(query), ids)
        return _Bounds(first, end, tsquery(query, map(stream_token, ids)))


def _windows(first: int, end: int) -> Iterator[tuple[int, int, str]]:
    """Yield parts of the ids from `first` until before `end`, the greatest ones first, with the tokens of periods."""
    for count in _PERIODS:
        if end <= first:
            return
        last = second_of_id(end - 1) >> _PERIOD_BITS
        lowest = max(last - count + 1, 0)
        edge = max(first, first_id(lowest << _PERIOD_BITS))
        yield edge, end, " | ".join(f"'{_token(period)}'" for period in range(lowest, last + 1))
        end = edge
    if end > first:
        yield first, end, ""


def _token(period: int) -> str:
    return f":@{period}"
