"""The search index on SQLite, in a file of its own: beside `floodmark.db` it is `floodmark-search.db`.

In the file of the items, the long transactions of the index would starve the writer of items. How far the index is
built is in its file too, so that a killed process leaves both or none. The file can be deleted at any time.

    words      FTS5 without content: title, body and marks of each document
    documents  the item of each document. A row of `words` without one is never shown
    streams    the numbers of streams; their documents have the token `::<number>`
    fields     the names of fields that documents have
    state      how far the index is built, as JSON

FTS5 before SQLite 3.43 removes a document only by its exact tokens. They are made again from the earlier revision of
the item, and compared by a digest. If they differ, the row of `words` stays until the index is built again.
"""

import sqlite3
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from floodmark.process.failpoints import failpoint

from .document_ids import IdAllocator, first_id, ids_between
from .documents import SearchableItem, SearchDocument, digest_of, document_of
from .expressions import fts5_expression, like_pattern, stream_token
from .port import EVERYTHING, GLANCED_AT, MOST_RANKED, MOST_STREAM_TOKENS, IndexDamaged, IndexHit, SearchFilter
from .query import Node
from .sqlite_file import IndexFile, MissingFile, transaction
from .state import IndexState, count_documents, decode_state, encode_state, is_same_progress, new_state

ReadEarlier = Callable[[Sequence[tuple[str, str, int]]], Awaitable[list[SearchableItem]]]
"""Returns revisions of items that are still stored, by stream, key and revision."""

_TABLES = ("words", "documents", "streams", "fields", "state")
_SCHEMA = (
    """CREATE VIRTUAL TABLE words USING fts5(title, body, marks, content='', tokenize="ascii tokenchars ':_-.'")""",
    "CREATE TABLE documents (id INTEGER PRIMARY KEY, stream_id INTEGER NOT NULL, key TEXT NOT NULL,"
    " revision INTEGER NOT NULL, hash INTEGER NOT NULL, digest INTEGER NOT NULL)",
    "CREATE INDEX documents_hash ON documents (hash)",
    "CREATE TABLE streams (stream_id INTEGER PRIMARY KEY, stream TEXT NOT NULL UNIQUE)",
    "CREATE TABLE fields (name TEXT PRIMARY KEY) WITHOUT ROWID",
    "CREATE TABLE state (value TEXT NOT NULL)",
)

_KNOWN = """
SELECT d.id, d.stream_id, s.stream, d.key, d.revision, d.digest
  FROM json_each(?) h JOIN documents d ON d.hash = h.value JOIN streams s ON s.stream_id = d.stream_id
"""
_LAST_IN = "SELECT max(id) FROM documents WHERE id >= ? AND id < ?"
_ADD_WORDS = "INSERT INTO words (rowid, title, body, marks) VALUES (?, ?, ?, ?)"
_REMOVE_WORDS = "INSERT INTO words (words, rowid, title, body, marks) VALUES ('delete', ?, ?, ?, ?)"
_ADD = "INSERT INTO documents (id, stream_id, key, revision, hash, digest) VALUES (?, ?, ?, ?, ?, ?)"
# The row of a document whose words could not be removed stays without a stream, so that its id is not used again.
_RETIRE = "UPDATE documents SET stream_id = 0, key = '', hash = 0 WHERE id = ?"

# In the order of the index itself: nothing is sorted, and reading ends at the limit.
_FIND = """
SELECT d.id, s.stream, d.key, d.revision
  FROM words w JOIN documents d ON d.id = w.rowid JOIN streams s ON s.stream_id = d.stream_id
 WHERE w.words MATCH :query AND w.rowid >= :first AND w.rowid < :end {condition}
 ORDER BY w.rowid DESC LIMIT :limit
"""
# Without words: all documents in the order of their ids. CROSS JOIN keeps that order.
_FIND_ALL = """
SELECT d.id, s.stream, d.key, d.revision
  FROM documents d CROSS JOIN streams s ON s.stream_id = d.stream_id
 WHERE d.id >= :first AND d.id < :end {condition}
 ORDER BY d.id DESC LIMIT :limit
"""
_RANK = f"""
SELECT d.id, s.stream, d.key, d.revision
  FROM (SELECT w.rowid AS id, bm25(words, 4.0, 1.0, 0.0) AS score FROM words w
         WHERE w.words MATCH :query AND w.rowid >= :first AND w.rowid < :end {{condition}}
         ORDER BY w.rowid DESC LIMIT {MOST_RANKED}) r
  JOIN documents d ON d.id = r.id JOIN streams s ON s.stream_id = d.stream_id
 ORDER BY r.score, r.id DESC LIMIT :limit
"""
_IN_STREAMS = """
AND (SELECT stream_id FROM documents WHERE id = w.rowid) IN (SELECT value FROM json_each(:stream_ids))
"""
_ALL_IN_STREAMS = "AND d.stream_id IN (SELECT value FROM json_each(:stream_ids))"


class _Known(NamedTuple):
    """A document that the index has."""

    id: int
    stream_id: int
    stream: str
    key: str
    revision: int
    digest: int


class SqliteSearchIndex:
    """Searches on one thread, and builds the index on another."""

    def __init__(self, path: Path, read_earlier: ReadEarlier) -> None:
        self._read_earlier = read_earlier
        self._writer = IndexFile(path, cache_kilobytes=32_000)
        self._reader = IndexFile(path, cache_kilobytes=16_000, only_reads=True)

    async def read_state(self) -> IndexState | None:
        """Return how far it is built, None if there is none."""
        with suppress(MissingFile):
            return await self._reader.run(_read_state)
        return None

    async def begin(self, version: str, position: int) -> IndexState:
        """Make it empty, to be filled with all items and then with the events after `position`."""
        state = new_state(version, position)
        try:
            await self._writer.run(partial(_create, state=state), creates=True)
        except IndexDamaged:
            await self._writer.delete()
            await self._writer.run(partial(_create, state=state), creates=True)
        return state

    async def add(self, documents: Sequence[SearchDocument], before: IndexState, after: IndexState) -> bool:
        """Add or replace documents and move the state, in one transaction."""
        try:
            known = await self._writer.run(partial(_find_known, documents=documents))
            replaced = [one for document in documents if (one := _earlier(document, known)) is not None]
            removals = await self._removals(replaced)
            new = [one for one in documents if (one.stream, one.key) not in known or _earlier(one, known) is not None]
            work = partial(_add, new=new, replaced=replaced, removals=removals, before=before, after=after)
            return await self._writer.run(work)
        except MissingFile:
            # Deleted meanwhile.
            return False

    async def find(
        self, query: Node | None, within: SearchFilter = EVERYTHING, *, before: int | None = None, limit: int = 50
    ) -> list[IndexHit]:
        """Return the newest matches, newest first."""
        return await self._search(_FIND, query, within, before=before, limit=limit)

    async def rank(self, query: Node, within: SearchFilter = EVERYTHING, *, limit: int = 50) -> list[IndexHit]:
        """Return the best of the newest matches, best first."""
        return await self._search(_RANK, query, within, before=None, limit=limit)

    async def list_streams(self, pattern: str = "*") -> list[str]:
        """Return the streams that it knows. Upper and lower case of a pattern do not matter."""
        return await self._list("SELECT stream FROM streams WHERE stream LIKE ? ESCAPE '\\'", like_pattern(pattern))

    async def list_fields(self) -> list[str]:
        """Return the names of fields that its documents have."""
        return await self._list("SELECT name FROM fields")

    async def close(self) -> None:
        """Close the file."""
        await self._writer.close()
        await self._reader.close()

    async def _removals(self, replaced: Sequence[_Known]) -> list[tuple[int, str, str, str]]:
        """Return the rows of `words` to remove: those whose tokens could be made again."""
        if not replaced:
            return []
        found: list[tuple[int, str, str, str]] = []
        by_place = {(one.stream, one.key, one.revision): one for one in replaced}
        for item in await self._read_earlier(list(by_place)):
            one, document = by_place[item.stream, item.key, item.revision], document_of(item)
            if document.digest == one.digest:
                found.append((one.id, *_columns(document, one.stream_id)))
        return sorted(found)

    async def _search(
        self, statement: str, query: Node | None, within: SearchFilter, *, before: int | None, limit: int
    ) -> list[IndexHit]:
        work = partial(_search, statement=statement, query=query, within=within, before=before, limit=limit)
        with suppress(MissingFile):
            return await self._reader.run(work)
        return []

    async def _list(self, query: str, *arguments: str) -> list[str]:
        with suppress(MissingFile):
            return await self._reader.run(lambda connection: [name for (name,) in connection.execute(query, arguments)])
        return []


def _create(connection: sqlite3.Connection, *, state: IndexState) -> None:
    with transaction(connection):
        for table in _TABLES:
            connection.execute(f"DROP TABLE IF EXISTS {table}")
        for statement in _SCHEMA:
            connection.execute(statement)
        connection.execute("INSERT INTO state (value) VALUES (?)", (encode_state(state),))
        failpoint("search.begun")


def _read_state(connection: sqlite3.Connection) -> IndexState | None:
    row = connection.execute("SELECT value FROM state").fetchone()
    return None if row is None else decode_state(row[0])


def _find_known(
    connection: sqlite3.Connection, *, documents: Sequence[SearchDocument]
) -> dict[tuple[str, str], _Known]:
    hashes = msgspec.json.encode([digest_of(one.stream, one.key) for one in documents]).decode()
    rows = (_Known(*row) for row in connection.execute(_KNOWN, (hashes,)))
    return {(one.stream, one.key): one for one in rows}


def _earlier(document: SearchDocument, known: dict[tuple[str, str], _Known]) -> _Known | None:
    """Return the earlier revision of a document that the index has."""
    found = known.get((document.stream, document.key))
    return found if found is not None and found.revision < document.revision else None


def _add(
    connection: sqlite3.Connection,
    *,
    new: Sequence[SearchDocument],
    replaced: Sequence[_Known],
    removals: Sequence[tuple[int, str, str, str]],
    before: IndexState,
    after: IndexState,
) -> bool:
    with transaction(connection):
        state = _read_state(connection)
        if state is None or not is_same_progress(state, before):
            return False
        connection.executemany(_REMOVE_WORDS, removals)
        removed = {row[0] for row in removals}
        connection.executemany("DELETE FROM documents WHERE id = ?", [(number,) for number in removed])
        connection.executemany(_RETIRE, [(one.id,) for one in replaced if one.id not in removed])
        failpoint("search.removed")
        moved = _insert(connection, new)
        done = count_documents(state, after, added=len(new), replaced=len(replaced), moved=moved)
        connection.execute("UPDATE state SET value = ?", (encode_state(done),))
        failpoint("search.written")
    failpoint("search.committed")
    return True


def _insert(connection: sqlite3.Connection, new: Sequence[SearchDocument]) -> int:
    """Insert documents, and return by how many seconds one was moved at most."""
    stream_ids = _number_streams(connection, {document.stream for document in new})
    allocator = IdAllocator(lambda second: _last_in(connection, second))
    numbered = [(allocator.allocate(one.at), one) for one in sorted(new, key=lambda document: document.at)]
    # In the order of ids: FTS5 writes its pages whenever an id is less than the one before.
    numbered.sort(key=lambda pair: pair[0])
    connection.executemany(_ADD_WORDS, [(number, *_columns(one, stream_ids[one.stream])) for number, one in numbered])
    connection.executemany(
        _ADD,
        [
            (number, stream_ids[one.stream], one.key, one.revision, digest_of(one.stream, one.key), one.digest)
            for number, one in numbered
        ],
    )
    names = {name for document in new for name in document.fields}
    connection.executemany("INSERT OR IGNORE INTO fields (name) VALUES (?)", [(name,) for name in sorted(names)])
    return allocator.moved


def _columns(document: SearchDocument, stream_id: int) -> tuple[str, str, str]:
    """Return the columns of `words`."""
    marks = " ".join((stream_token(stream_id), *document.marks))
    return " ".join(document.title), " ".join(document.body), marks


def _last_in(connection: sqlite3.Connection, second: int) -> int | None:
    row = connection.execute(_LAST_IN, (first_id(second), first_id(second + 1))).fetchone()
    return None if row is None else row[0]


def _number_streams(connection: sqlite3.Connection, names: set[str]) -> dict[str, int]:
    connection.executemany("INSERT OR IGNORE INTO streams (stream) VALUES (?)", [(name,) for name in sorted(names)])
    return _find_streams(connection, names)


def _find_streams(connection: sqlite3.Connection, names: Iterable[str]) -> dict[str, int]:
    query = "SELECT s.stream, s.stream_id FROM json_each(?) n JOIN streams s ON s.stream = n.value"
    return dict(connection.execute(query, (msgspec.json.encode(list(names)).decode(),)).fetchall())


def _search(
    connection: sqlite3.Connection,
    *,
    statement: str,
    query: Node | None,
    within: SearchFilter,
    before: int | None,
    limit: int,
) -> list[IndexHit]:
    state = _read_state(connection)
    if state is None:
        return []
    first, end = ids_between(within.since, within.until, state.moved)
    arguments: dict[str, Any] = {"first": first, "end": end if before is None else min(end, before), "limit": limit}
    if query is None and within.streams is not None and len(within.streams) > MOST_STREAM_TOKENS:
        rows = connection.execute(_FIND_ALL.format(condition=""), {**arguments, "limit": GLANCED_AT})
        found = [hit for hit in map(IndexHit._make, rows) if hit.stream in within.streams]
        if len(found) >= limit:
            return found[:limit]
    ids = None if within.streams is None else sorted(_find_streams(connection, within.streams).values())
    if ids == []:
        return []
    is_checked = ids is not None and len(ids) > MOST_STREAM_TOKENS
    expression, condition = fts5_expression(query, None if is_checked else ids), _IN_STREAMS
    if expression is None:
        statement, condition = _FIND_ALL, _ALL_IN_STREAMS
    else:
        arguments["query"] = expression
    if is_checked:
        arguments["stream_ids"] = msgspec.json.encode(ids).decode()
    rows = connection.execute(statement.format(condition=condition if is_checked else ""), arguments)
    return [IndexHit(*row) for row in rows]
