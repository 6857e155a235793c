"""The search index on PostgreSQL. Tables: see `tables.py`.

The tokens of a document are a `tsvector`, made here and not by the server: its text configurations and locales know
neither all scripts nor the same words as SQLite. A document also has tokens without a place: that of its stream, and
that of its period of 12 days (`:@<number>`), see `postgres_find.py`.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from sqlalchemy.exc import DBAPIError

from floodmark.errors import Unavailable
from floodmark.process.failpoints import failpoint
from floodmark.store.database import PostgresDatabase
from floodmark.store.postgres_connection import Connection

from .document_ids import IdAllocator, first_id, second_of
from .documents import GAP, SearchDocument, digest_of
from .expressions import like_pattern, stream_token
from .port import EVERYTHING, IndexHit, SearchFilter
from .postgres_find import OPEN, READ_FIRST, PostgresFinder, period_token
from .query import Node
from .state import IndexState, count_documents, decode_state, encode_state, is_same_progress, new_state

_STATE = "SELECT value FROM search_state WHERE id = 1"
_EMPTY = "TRUNCATE search_documents, search_streams, search_fields"
_SET_STATE = "INSERT INTO search_state (id, value) VALUES (1, $1) ON CONFLICT (id) DO UPDATE SET value = excluded.value"
_KNOWN = """
SELECT d.id, s.stream, d.key, d.revision
  FROM search_documents d JOIN search_streams s ON s.stream_id = d.stream_id WHERE d.hash = ANY ($1::bigint[])
"""
_STREAM_IDS = "SELECT stream, stream_id FROM search_streams WHERE stream = ANY ($1::text[])"
_ADD_STREAMS = "INSERT INTO search_streams (stream) SELECT unnest($1::text[]) ON CONFLICT (stream) DO NOTHING"
_ADD_FIELDS = "INSERT INTO search_fields (name) SELECT unnest($1::text[]) ON CONFLICT (name) DO NOTHING"
_LAST_IN = """
SELECT n.second, (SELECT max(d.id) FROM search_documents d WHERE d.id >= n.first AND d.id < n.next)
  FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS n(second, first, next)
"""
_REMOVE = "DELETE FROM search_documents WHERE id = ANY ($1::bigint[])"
_ADD = """
INSERT INTO search_documents (id, stream_id, key, revision, hash, tokens)
SELECT n.id, n.stream_id, n.key, n.revision, n.hash, n.tokens::tsvector
  FROM unnest($1::bigint[], $2::int[], $3::text[], $4::int[], $5::bigint[], $6::text[])
    AS n(id, stream_id, key, revision, hash, tokens)
"""

# New tokens wait in a list, which every search reads, until it is full and is moved into the index of tokens. A short
# list is for the searches; while the index is filled a longer one saves most of the work. A list of 16 MB took longer
# than a statement may. `work_mem` is what is moved at once, and stays moved when the statement is cancelled.
_LIST_KILOBYTES, _LIST_KILOBYTES_FILLING = 512, 4096
# A commit that a crash of the server loses is made again: documents and state are lost together.
_BEGIN_STEP = """
SELECT value, set_config('gin_pending_list_limit', $1, true), set_config('work_mem', '4MB', true),
       set_config('synchronous_commit', 'off', true)
  FROM search_state WHERE id = 1 FOR UPDATE
"""
_EMPTY_LIST = "SELECT gin_clean_pending_list('ix_search_documents_tokens')"

_CANCELLED = "57014"


class PostgresSearchIndex:
    """Searches and builds the index in tables of the database."""

    def __init__(self, database: PostgresDatabase, *, read_first: int = READ_FIRST) -> None:
        self._database, self._read_first = database, read_first

    async def read_state(self) -> IndexState | None:
        """Return how far it is built, None if there is none."""
        async with self._database.reading() as connection:
            return _decode((await connection.exec_driver_sql(_STATE)).scalar())

    async def begin(self, version: str, position: int) -> IndexState:
        """Make it empty, to be filled with all items and then with the events after `position`."""
        state = new_state(version, position)

        async def work(connection: Connection) -> None:
            async with connection.transaction():
                await connection.execute(_SET_STATE, encode_state(state))
                await connection.execute(_EMPTY)
                failpoint("search.begun")

        await self._database.hot("search", work)
        return state

    async def add(self, documents: Sequence[SearchDocument], before: IndexState, after: IndexState) -> bool:
        """Add or replace documents and move the state, in one transaction."""

        async def work(connection: Connection) -> bool:
            async with connection.transaction():
                state = _decode(await connection.fetchval(_BEGIN_STEP, _list_limit(after)))
                if state is None or not is_same_progress(state, before):
                    return False
                new, replaced = await _compare(connection, documents)
                await connection.execute(_REMOVE, replaced)
                failpoint("search.removed")
                moved = await _insert(connection, new) if new else 0
                done = count_documents(state, after, added=len(new), replaced=len(replaced), moved=moved)
                await connection.execute(_SET_STATE, encode_state(done))
                if before.is_filling and not after.is_filling:
                    await connection.execute(_EMPTY_LIST)
                failpoint("search.written")
            failpoint("search.committed")
            return True

        return await self._database.hot("search", work)

    async def find(
        self, query: Node | None, within: SearchFilter = EVERYTHING, *, before: int | None = None, limit: int = 50
    ) -> list[IndexHit]:
        """Return the newest matches, newest first."""
        async with self._searching() as finder:
            return [] if finder is None else await finder.find(query, within, before=before, limit=limit)

    async def rank(self, query: Node, within: SearchFilter = EVERYTHING, *, limit: int = 50) -> list[IndexHit]:
        """Return the best of the newest matches, best first."""
        async with self._searching() as finder:
            return [] if finder is None else await finder.rank(query, within, limit=limit)

    async def list_streams(self, pattern: str = "*") -> list[str]:
        """Return the streams that it knows."""
        return await self._list("SELECT stream FROM search_streams WHERE stream LIKE $1", like_pattern(pattern))

    async def list_fields(self) -> list[str]:
        """Return the names of fields that its documents have."""
        return await self._list("SELECT name FROM search_fields")

    async def close(self) -> None:
        """Do nothing: the database is closed by its owner."""

    async def _list(self, query: str, *arguments: str) -> list[str]:
        async with self._database.reading() as connection:
            return list((await connection.exec_driver_sql(query, arguments)).scalars())

    @asynccontextmanager
    async def _searching(self) -> AsyncIterator[PostgresFinder | None]:
        """Yield what searches; None if there is no index."""
        try:
            async with self._database.engine.begin() as connection:
                *_, stored = (await connection.exec_driver_sql(OPEN)).one()
                state = _decode(stored)
                yield None if state is None else PostgresFinder(connection, state, self._read_first)
        except (DBAPIError, TimeoutError) as error:
            if isinstance(error, DBAPIError) and getattr(error.orig, "sqlstate", None) != _CANCELLED:
                raise
            seconds = self._database.connector.step.total_seconds()
            hint = "use longer words, or limit it with --stream or --since"
            raise Unavailable(f"the search took more than {seconds:.0f} s", hint=hint) from error


def _list_limit(state: IndexState) -> str:
    return f"{_LIST_KILOBYTES_FILLING if state.is_filling else _LIST_KILOBYTES}kB"


def _decode(stored: str | None) -> IndexState | None:
    return None if stored is None else decode_state(stored)


async def _compare(
    connection: Connection, documents: Sequence[SearchDocument]
) -> tuple[list[SearchDocument], list[int]]:
    """Return the documents to insert, and the ids of those that they replace."""
    hashes = [digest_of(one.stream, one.key) for one in documents]
    known = {
        (stream, key): (number, revision) for number, stream, key, revision in await connection.fetch(_KNOWN, hashes)
    }
    new = [one for one in documents if known.get((one.stream, one.key), (0, 0))[1] < one.revision]
    return new, [known[one.stream, one.key][0] for one in new if (one.stream, one.key) in known]


async def _insert(connection: Connection, new: Sequence[SearchDocument]) -> int:
    """Insert documents, and return by how many seconds one was moved at most."""
    stream_ids = await _number_streams(connection, {one.stream for one in new})
    ids, moved = await _allocate(connection, ordered := sorted(new, key=lambda document: document.at))
    rows = [
        (number, stream_ids[one.stream], one.key, one.revision, digest_of(one.stream, one.key), tokens)
        for number, one in zip(ids, ordered, strict=True)
        for tokens in [_tsvector(one, stream_ids[one.stream], number)]
    ]
    await connection.execute(_ADD, *zip(*rows, strict=True))
    await connection.execute(_ADD_FIELDS, sorted({name for document in new for name in document.fields}))
    return moved


async def _number_streams(connection: Connection, names: set[str]) -> dict[str, int]:
    found = dict(await connection.fetch(_STREAM_IDS, sorted(names)))
    missing = sorted(names - found.keys())
    if missing:
        await connection.execute(_ADD_STREAMS, missing)
        found |= dict(await connection.fetch(_STREAM_IDS, missing))
    return found


async def _allocate(connection: Connection, ordered: Sequence[SearchDocument]) -> tuple[list[int], int]:
    last: dict[int, int | None] = {}
    wanted = {second_of(document.at) for document in ordered}
    while True:
        seconds = sorted(wanted)
        edges = [first_id(second) for second in seconds], [first_id(second + 1) for second in seconds]
        last |= dict(await connection.fetch(_LAST_IN, seconds, *edges))
        allocator = IdAllocator(last.__getitem__)
        try:
            return [allocator.allocate(document.at) for document in ordered], allocator.moved
        except KeyError as unknown:
            # A second is full: ask for the one that the allocator tries next.
            wanted = {unknown.args[0]}


def _tsvector(document: SearchDocument, stream_id: int, number: int) -> str:
    """Return a document as the text of a `tsvector`. Words of the title have weight A."""
    places: dict[str, list[str]] = {}
    place = 1
    for run, weight in ((document.title, "A"), (document.body, ""), (document.marks, "")):
        for token in run:
            if token != GAP:
                places.setdefault(token, []).append(f"{place}{weight}")
            place += 1
        place += 1
    words = [f"'{token}':{','.join(found)}" for token, found in places.items()]
    return " ".join((*words, f"'{stream_token(stream_id)}'", f"'{period_token(number)}'"))
