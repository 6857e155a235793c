"""A large installation in a database: jobs, a month of executions, a year of items, and their search index.

Rows are made by the database itself, without the indexes that can be made afterwards. Texts are taken from a pool of
posts, so that words are as frequent as in languages. The search index has the tokens that the indexer would write.

One in ten executions and one in five items belong to few jobs, so that some histories and streams are long.
"""

import asyncio
import re
import sqlite3
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, closing, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg
import msgspec
from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy import insert, text

from floodmark.model.batch import PollResult
from floodmark.rules.measures import Measures, encode_measures, record
from floodmark.search.documents import SearchableItem, SearchDocument, document_of
from floodmark.search.postgres import _tsvector
from floodmark.search.state import encode_state, new_state
from floodmark.search.tokens import VERSION
from floodmark.store.database import SqliteDatabase
from floodmark.store.tables import budgets
from floodmark.wiring.resources import Resources
from floodmark.wiring.search_on_demand import index_path

from ._posts import Corpus, make_corpus

# The number of a job with a long history, whose stream has many items.
BUSY = 1
_EVENTS, _POOL = 100_000, 20_000
_BUDGETS = ("news", "shops", "police")
# Tables whose indexes are made after their rows.
_INDEXED_LATER = ("jobs", "executions", "items", "search_documents")
_YEAR, _MONTH = 31_536_000, 2_592_000
# Documents of the search index are numbered by the seconds since the year 1.
_EPOCH, _SECOND_BITS, _PERIOD_BITS = 62_135_596_800, 10, 20
# A token of a stream and one of a period are added for each document.
_OWN_TOKENS = re.compile(r" '::1' ':@\d+'$")


class Sizes(Struct, frozen=True):
    """The number of rows."""

    jobs: int
    executions: int
    items: int
    queued: int = 0
    """How many of the executions wait in the queue."""


class _Dialect(Struct, frozen=True):
    """How a database writes the same expressions."""

    series: str
    at: str
    pad: str
    hexadecimal: str
    identity: str
    once: str

    def moment(self, now: int, seconds: str) -> str:
        """Return the time of so many seconds before `now`."""
        return self.at.format(at=f"{now} - ({seconds})")


_DIALECTS = {
    "postgresql": _Dialect(
        series="generate_series(CAST(1 AS bigint), {count}) AS series(n)",
        at="to_timestamp({at})",
        pad="lpad(CAST({n} AS text), {length}, '0')",
        hexadecimal="lpad(to_hex({n}), 12, '0')",
        identity="OVERRIDING SYSTEM VALUE",
        once="OFFSET 0",
    ),
    "sqlite": _Dialect(
        series="(WITH RECURSIVE series(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM series WHERE n < {count})"
        " SELECT n FROM series) AS series",
        at="strftime('%Y-%m-%d %H:%M:%f000+00:00', {at}, 'unixepoch')",
        pad="printf('%0{length}d', {n})",
        hexadecimal="printf('%012x', {n})",
        identity="",
        once="LIMIT -1 OFFSET 0",
    ),
}


class PooledPost(Struct, frozen=True):
    """A post of the pool: its data and its tokens, as each database stores them."""

    number: int
    data: str
    vector: str
    title: str
    body: str
    marks: str


async def fill(resources: Resources, sizes: Sizes, *, is_searchable: bool = False) -> None:
    """Write an installation of this size. `is_searchable`: with its search index."""
    statements, pool = _Statements(resources.database.dialect, sizes), make_pool(make_corpus())
    if isinstance(resources.database, SqliteDatabase):
        # The index has a file of its own, and is written beside the rows.
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(asyncio.to_thread(_fill_sqlite, resources.database.path, statements, pool))
            if is_searchable:
                tasks.create_task(_index_sqlite(resources, statements, pool))
    else:
        await _fill_postgres(resources.settings.database_url, statements, pool, is_searchable=is_searchable)
        if is_searchable:
            await _finish_index(resources, _state_of(statements))
    await _fill_budgets(resources, sizes)


def make_pool(corpus: Corpus) -> list[PooledPost]:
    """Return the posts that all items have their texts from."""
    return [_pooled(number, content) for number, (_, content) in enumerate(corpus.posts(_POOL))]


def _pooled(number: int, content: str) -> PooledPost:
    data = {"title": content[:40], "text": content, "author": f"author{number % 500}", "kind": "message"}
    found = document_of(SearchableItem("s", "k", 1, datetime.now(UTC), data))
    tokens = (" ".join(run) for run in found.runs)
    return PooledPost(number, msgspec.json.encode(data).decode(), _vector_of(found), *tokens)


def _vector_of(document: SearchDocument) -> str:
    return _OWN_TOKENS.sub("", _tsvector(document, 1, 1))


class _Statements:
    """The statements that write the rows, in order."""

    def __init__(self, dialect: str, sizes: Sizes) -> None:
        self.sizes, self.now, self._sql = sizes, int(time.time()), _DIALECTS[dialect]

    def groups(self) -> Iterable[Sequence[str]]:
        """Yield the statements, except those of the search index. Each group may run beside the others."""
        yield self._jobs(), self._watermarks(), self._outbox(), self._counted()
        yield self._executions(), self._minutes()
        yield self._items(), self._days()

    def _ago(self, seconds: str) -> str:
        return self._sql.moment(self.now, seconds)

    def _pad(self, number: str, length: int) -> str:
        return self._sql.pad.format(n=number, length=length)

    def _series(self, count: int) -> str:
        return self._sql.series.format(count=count)

    def _name(self, number: str) -> str:
        return f"'source-' || {self._pad(number, 7)}"

    def _jobs(self) -> str:
        kinds = "CASE n % 4 WHEN 0 THEN 'web' WHEN 1 THEN 'feed' WHEN 2 THEN 'telegram' ELSE 'python' END"
        german, english = (self._json(value) for value in ('["de", "news"]', '["en"]'))
        return f"""
            INSERT INTO jobs (job_id, name, source, target, stream, tags, schedule_type, interval_seconds, budget,
                              next_run, planned_until, created_at)
            SELECT 'job' || {self._pad("n", 29)}, {self._name("n")}, {kinds},
                   CASE n % 4 WHEN 3 THEN 'nothing' ELSE 'https://site-' || n || '.example/' END, {self._name("n")},
                   CASE n % 3 WHEN 0 THEN {german} ELSE {english} END,
                   CASE n % 10 WHEN 0 THEN 'adaptive' ELSE 'interval' END, CASE n % 10 WHEN 0 THEN NULL ELSE 86400 END,
                   CASE n % 30 WHEN 0 THEN 'news' WHEN 10 THEN 'shops' WHEN 20 THEN 'police' END,
                   {self._ago("-86400 - n")}, {self._ago("3600")}, {self._ago(str(_YEAR))}
              FROM {self._series(self.sizes.jobs)}"""

    def _watermarks(self) -> str:
        return f"""
            INSERT INTO watermarks (stream, fence, last_checked_at, last_parsed_at, moved_at)
            SELECT {self._name("n")}, 1, {self._ago("(n * 7919) % 200000")}, {self._ago("(n * 7919) % 900000")},
                   {self._ago("3600")}
              FROM {self._series(self.sizes.jobs)}"""

    def _executions(self) -> str:
        count = self.sizes.executions
        last = {"running": count - 20, "waiting": count - 60, "queued": count - 60 - self.sizes.queued}
        age = f"(({count} - n) * {_MONTH} / {count})"
        # The busy jobs: those with the numbers 1, 11, ... 91.
        job = f"(CASE WHEN n % 10 = 0 AND n <= {last['queued']} THEN 1 + n % 100 ELSE 1 + n % {self.sizes.jobs} END)"
        state = (
            " ".join(f"WHEN n > {first} THEN '{state}'" for state, first in last.items())
            + " WHEN n % 501 = 0 THEN 'dead' WHEN n % 97 = 0 THEN 'skipped' ELSE 'done' END"
        )
        # Computed once for each row.
        each = f"""
            SELECT n, {age} AS age, {job} AS job, CASE {state} AS state, n > {last["queued"]} AS is_open,
                   {self._ago(age)} AS at
              FROM {self._series(count)} {self._sql.once}"""
        return f"""
            INSERT INTO executions (execution_id, job_id, job_name, scheduled_for, state, priority, attempt, created_at,
                                    started_at, completed_at, duration_seconds, items_new, error_message, reason,
                                    not_before, lease_until, queue_rank, worker)
            SELECT {self._sql.hexadecimal.format(n=f"({self.now} - age) * 1000")} || {self._pad("n", 20)},
                   'job' || {self._pad("job", 29)}, {self._name("job")}, at, state, 2, 1, at,
                   CASE WHEN state = 'queued' THEN NULL ELSE at END, CASE WHEN is_open THEN NULL ELSE at END,
                   CASE WHEN is_open THEN NULL ELSE 0.5 END, n % 5,
                   CASE WHEN state = 'dead' THEN 'HTTP ' || (500 + n % 4) || ' from https://shop.example/' || n END,
                   CASE WHEN state = 'waiting' THEN 'asked to slow down' END,
                   CASE WHEN state = 'waiting' THEN {self._ago("-600 - n % 3600")} END,
                   CASE WHEN state = 'running' THEN {self._ago("-86400")} END,
                   CASE WHEN state = 'queued' THEN at END, CASE WHEN state = 'queued' THEN NULL ELSE 'bench' END
              FROM ({each}) AS each"""

    def _minutes(self) -> str:
        """Return what the leader has counted by the minute: all executions ended in the minute they began in."""
        is_open = "completed_at IS NULL"
        sums = ", ".join(
            f"sum(CASE WHEN state = '{state}' THEN 1 ELSE 0 END)" for state in ("done", "dead", "cancelled", "skipped")
        )
        minute = (
            "date_trunc('minute', created_at)"
            if self._is_postgres
            else "substr(created_at, 1, 17) || '00.000000+00:00'"
        )
        return f"""
            INSERT INTO minutes (minute, created, unfinished, started, counted_at, done, dead, cancelled, skipped)
            SELECT {minute}, count(*), sum(CASE WHEN {is_open} THEN 1 ELSE 0 END), count(*), max(created_at), {sums}
              FROM executions GROUP BY 1"""

    def _stream_number(self) -> str:
        # One in five belongs to one of 20 streams. The others are written one stream after the other.
        jobs, items = self.sizes.jobs, self.sizes.items
        return f"(CASE WHEN n % 5 = 0 THEN 1 + (n / 5) % {min(20, jobs)} ELSE 1 + (n - 1) * {jobs} / {items} END)"

    def _age_of_item(self) -> str:
        return f"(({self.sizes.items} - n) * {_YEAR} / {self.sizes.items})"

    def _items(self) -> str:
        at = self._ago(self._age_of_item())
        return f"""
            INSERT INTO items (stream, key, occurred_at, collected_at, data, content_hash, fence)
            SELECT {self._name(self._stream_number())}, {self._pad("n", 9)}, {at}, {at}, pool.data,
                   {self._pad("n", 32)}, 1
              FROM {self._series(self.sizes.items)} JOIN pool ON pool.number = (n * 7919) % {_POOL}"""

    def _outbox(self) -> str:
        at = self._ago(self._age_of_item())
        return f"""
            INSERT INTO outbox (seq, stream, key, revision, created_at, position, sent_at) {self._sql.identity}
            SELECT n, {self._name(self._stream_number())}, {self._pad("n", 9)}, 1, {at}, n, {at}
              FROM {self._series(self.sizes.items)} WHERE n > {self.sizes.items - _EVENTS}"""

    def _days(self) -> str:
        day = "CAST(collected_at AT TIME ZONE 'UTC' AS date)" if self._is_postgres else "substr(collected_at, 1, 10)"
        return f"""
            INSERT INTO stream_days (stream, day, new)
            SELECT stream, {day}, count(*) FROM items GROUP BY stream, {day} ORDER BY stream, {day}"""

    def _counted(self) -> str:
        return f"INSERT INTO consumers (name, position) VALUES ('days', {self.sizes.items})"

    def streams(self, table: str) -> str:
        """Return the statement that numbers the streams of the search index."""
        return f"""
            INSERT INTO {table} (stream_id, stream) {self._sql.identity}
            SELECT n, {self._name("n")} FROM {self._series(self.sizes.jobs)}"""

    def documents(self) -> dict[str, str]:
        """Return the statements that write the documents of the search index, by table."""
        second = f"({self.now + _EPOCH} - {self._age_of_item()})"
        number, stream = f"({second} << {_SECOND_BITS})", self._stream_number()
        source = f"FROM {self._series(self.sizes.items)}"
        pooled = f"{source} JOIN pool ON pool.number = (n * 7919) % {_POOL}"
        # The hash only serves to replace a document.
        head, values = "(id, stream_id, key, revision, hash,", f"{number}, {stream}, {self._pad('n', 9)}, 1, n,"
        if self._is_postgres:
            own = f"('''::' || {stream} || ''' '':@' || ({second} >> {_PERIOD_BITS}) || '''')::tsvector"
            return {
                "search_documents": f"INSERT INTO search_documents {head} tokens)"
                f" SELECT {values} pool.vector || {own} {pooled}"
            }
        marks = f"'::' || {stream} || ' ' || pool.marks"
        return {
            "words": "INSERT INTO words (rowid, title, body, marks)"
            f" SELECT {number}, pool.title, pool.body, {marks} {pooled}",
            "documents": f"INSERT INTO documents {head} digest) SELECT {values} 0 {source}",
        }

    @property
    def _is_postgres(self) -> bool:
        return bool(self._sql.identity)

    def _json(self, value: str) -> str:
        return f"'{value}'::jsonb" if self._is_postgres else f"'{value}'"


async def _fill_postgres(url: str, statements: _Statements, pool: Sequence[PooledPost], *, is_searchable: bool) -> None:
    async with _filler(url) as connection:
        await connection.execute("CREATE TABLE pool (number int PRIMARY KEY, data jsonb, vector tsvector)")
        await connection.execute("CREATE TEMPORARY TABLE texts (number int, data text, vector text)")
        rows = [(post.number, post.data, post.vector) for post in pool]
        await connection.copy_records_to_table("texts", records=rows)
        await connection.execute("INSERT INTO pool SELECT number, data::jsonb, vector::tsvector FROM texts")
        await connection.execute("ANALYZE pool")
        made = await _drop_indexes(connection)
    groups = list(statements.groups())
    if is_searchable:
        groups.append([statements.streams("search_streams"), *statements.documents().values()])
    async with asyncio.TaskGroup() as tasks:
        for group in groups:
            tables = list(dict.fromkeys(map(_table_of, group)))
            later = [statement for statement in made if _table_of(statement) in tables]
            made = [statement for statement in made if statement not in later]
            tasks.create_task(_run_all(url, [*group, *later, f"VACUUM ANALYZE {', '.join(tables)}"]))
    await _run_all(url, [*made, "DROP TABLE pool"])


def _table_of(statement: str) -> str:
    found = re.search(r"(?:INSERT INTO|ON(?: ONLY)?|ALTER TABLE) (?:public\.)?(\w+)", statement)
    assert found is not None
    return found[1]


@asynccontextmanager
async def _filler(url: str) -> AsyncIterator[Any]:
    """A connection without deadlines."""
    connection = await asyncpg.connect(url)
    try:
        for setting in ("synchronous_commit = off", "maintenance_work_mem = '1GB'", "work_mem = '256MB'"):
            await connection.execute(f"SET {setting}")
        yield connection
    finally:
        await connection.close()


async def _run_all(url: str, statements: Sequence[str]) -> None:
    async with _filler(url) as connection:
        for statement in statements:
            began = time.perf_counter()
            await connection.execute(statement)
            _tell(statement, began)


def _tell(statement: str, began: float) -> None:
    print(f"  {time.perf_counter() - began:6.1f} s  {' '.join(statement.split())[:90]}", flush=True)


async def _drop_indexes(connection: Any) -> list[str]:
    """Drop the indexes of the large tables, and return the statements that make them again."""
    constraints = await connection.fetch(
        "SELECT conrelid::regclass::text AS name, conname, pg_get_constraintdef(oid) AS made FROM pg_constraint"
        " WHERE contype = 'u' AND conrelid = ANY ($1::regclass[])",
        ["executions", "items"],
    )
    for name, constraint, _ in constraints:
        await connection.execute(f'ALTER TABLE {name} DROP CONSTRAINT "{constraint}"')
    indexes = await connection.fetch(
        "SELECT i.indexname, i.indexdef FROM pg_indexes i WHERE i.tablename = ANY ($1::text[])"
        " AND NOT EXISTS (SELECT FROM pg_constraint c WHERE c.conname = i.indexname)",
        list(_INDEXED_LATER),
    )
    for name, _ in indexes:
        await connection.execute(f'DROP INDEX "{name}"')
    added = [f'ALTER TABLE {name} ADD CONSTRAINT "{constraint}" {made}' for name, constraint, made in constraints]
    return [*added, *(made for _, made in indexes)]


def _fill_sqlite(path: Path, statements: _Statements, pool: Sequence[PooledPost]) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        _prepare(connection, pool)
        names = ", ".join(f"'{name}'" for name in _INDEXED_LATER)
        indexes = connection.execute(
            f"SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL AND tbl_name IN ({names})"
        ).fetchall()
        for name, _ in indexes:
            connection.execute(f"DROP INDEX {name}")
        for statement in (*(one for group in statements.groups() for one in group), *(made for _, made in indexes)):
            _run(connection, statement)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _prepare(connection: sqlite3.Connection, pool: Sequence[PooledPost]) -> None:
    # Without a journal each page is written once. It is not possible while another connection is open.
    with suppress(sqlite3.OperationalError):
        connection.execute("PRAGMA journal_mode=OFF")
    for pragma in ("synchronous=OFF", "cache_size=-1000000", "temp_store=MEMORY"):
        connection.execute(f"PRAGMA {pragma}")
    connection.execute("CREATE TEMPORARY TABLE pool (number INTEGER PRIMARY KEY, data, title, body, marks)")
    rows = [(post.number, post.data, post.title, post.body, post.marks) for post in pool]
    connection.executemany("INSERT INTO pool VALUES (?, ?, ?, ?, ?)", rows)


def _run(connection: sqlite3.Connection, statement: str) -> None:
    began = time.perf_counter()
    connection.execute(statement)
    _tell(statement, began)


def _state_of(statements: _Statements) -> str:
    """Return how far the search index is built: to the end."""
    count = statements.sizes.items
    return encode_state(replace(new_state(VERSION, count), is_filling=False, documents=count))


async def _finish_index(resources: Resources, state: str) -> None:
    async with resources.database.writing() as connection:
        await connection.execute(text("INSERT INTO search_state (id, value) VALUES (1, :value)"), {"value": state})
        await connection.execute(text("INSERT INTO search_fields (name) VALUES ('author'), ('title')"))


async def _index_sqlite(resources: Resources, statements: _Statements, pool: Sequence[PooledPost]) -> None:
    assert isinstance(resources.database, SqliteDatabase)
    await resources.search.index.begin(VERSION, statements.sizes.items)
    path = index_path(resources.database.path)
    await asyncio.to_thread(_fill_search_file, path, statements, pool, _state_of(statements))


def _fill_search_file(path: Path, statements: _Statements, pool: Sequence[PooledPost], state: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        _prepare(connection, pool)
        for statement in (statements.streams("streams"), *statements.documents().values()):
            _run(connection, statement)
        connection.execute("INSERT INTO fields (name) VALUES ('author'), ('title')")
        connection.execute("UPDATE state SET value = ?", (state,))
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


async def _fill_budgets(resources: Resources, sizes: Sizes) -> None:
    now = datetime.now(UTC)
    first = Measures((now - timedelta(days=3)).timestamp(), polls=1, requests=1)
    result = PollResult(found=9, expected=8.5, delays=(30.0, 90.0, 300.0, 4000.0))
    known = encode_measures(record(first, result, now=now.timestamp(), requests=90, polls=80))
    rows = [
        {"name": name, "requests": 60, "interval_seconds": 1.0, "next_free": now, "sources": sizes.jobs // 30}
        for name in _BUDGETS
    ]
    copy = text(
        "INSERT INTO activity (job_id, measured, polled_at)"
        " SELECT job_id, :known, created_at FROM jobs WHERE schedule_type = 'adaptive'"
    )
    async with resources.database.working_long() as connection:
        await connection.execute(insert(budgets), rows)
        await connection.execute(copy, {"known": known})
