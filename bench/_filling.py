"""A large installation in a database: jobs, a month of executions, a year of items."""

from datetime import UTC, datetime, timedelta

import asyncpg
from msgspec import Struct
from sqlalchemy import insert, text

from floodmark.model.batch import PollResult
from floodmark.rules.measures import Measures, encode_measures, record
from floodmark.store.tables import budgets
from floodmark.wiring.resources import Resources

_EVENTS = 100_000
_BUDGETS = ("news", "shops", "police")


class Sizes(Struct, frozen=True):
    """The number of rows."""

    jobs: int
    executions: int
    items: int


_SERIES = {
    "postgresql": "generate_series(CAST(1 AS bigint), {count}) AS series(n)",
    "sqlite": "(WITH RECURSIVE series(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM series WHERE n < {count})"
    " SELECT n FROM series) AS series",
}
_AGO = {
    "postgresql": "now() - ({seconds}) * interval '1 second'",
    "sqlite": "strftime('%Y-%m-%d %H:%M:%f000+00:00', 'now', printf('%+d seconds', -({seconds})))",
}
_PAD = {"postgresql": "lpad(({n})::text, {length}, '0')", "sqlite": "printf('%0{length}d', {n})"}
# Ids begin with the time of their creation in milliseconds.
_ID = {
    "postgresql": "lpad(to_hex((extract(epoch FROM now()) * 1000)::bigint - ({seconds})::bigint * 1000), 12, '0')"
    " || lpad(n::text, 20, '0')",
    "sqlite": "printf('%012x', CAST(strftime('%s', 'now') AS INTEGER) * 1000 - CAST({seconds} AS INTEGER) * 1000)"
    " || printf('%020d', n)",
}
_JSON = {"postgresql": "('{text}')::jsonb", "sqlite": "'{text}'"}
_TEXT = "x" * 200


async def fill(resources: Resources, sizes: Sizes) -> None:
    """Write an installation of this size: sources of several kinds, a month of executions, a year of items."""
    dialect = resources.database.dialect

    def ago(seconds: str) -> str:
        return _AGO[dialect].format(seconds=seconds)

    def pad(n: str, length: int) -> str:
        return _PAD[dialect].format(n=n, length=length)

    def series(count: int) -> str:
        return _SERIES[dialect].format(count=count)

    name = f"'source-' || {pad('n', 7)}"
    of_job = f"'source-' || {pad(f'1 + n % {sizes.jobs}', 7)}"
    job_id = f"'job' || {pad(f'1 + n % {sizes.jobs}', 29)}"
    # One in a row after the other, so that the rows of a stream are written together.
    of_stream = f"'source-' || {pad(f'1 + (n - 1) * {sizes.jobs} / {sizes.items}', 7)}"
    age, month = f"({sizes.executions} - n) * 2592000 / {sizes.executions}", sizes.executions
    stored = f"({sizes.items} - n) * 31536000 / {sizes.items}"
    kinds = "CASE n % 4 WHEN 0 THEN 'web' WHEN 1 THEN 'feed' WHEN 2 THEN 'telegram' ELSE 'python' END"
    state = (
        f"CASE WHEN n > {month} - 20 THEN 'running' WHEN n > {month} - 60 THEN 'waiting' WHEN n % 500 = 0 THEN 'dead'"
        " WHEN n % 97 = 0 THEN 'skipped' ELSE 'done' END"
    )
    is_open = f"n > {month} - 60"
    german, english = (_json(dialect, value) for value in ('["de", "news"]', '["en"]'))
    tags = f"CASE n % 3 WHEN 0 THEN {german} ELSE {english} END"
    data = _json(dialect, f'{{"title": "A post", "text": "{_TEXT}"}}')
    statements = [
        f"""INSERT INTO jobs (job_id, name, source, target, stream, tags, schedule_type, interval_seconds, budget,
                              next_run, planned_until, created_at)
            SELECT 'job' || {pad("n", 29)}, {name}, {kinds}, 'nothing', {name}, {tags},
                   CASE n % 10 WHEN 0 THEN 'adaptive' ELSE 'interval' END, CASE n % 10 WHEN 0 THEN NULL ELSE 86400 END,
                   CASE n % 30 WHEN 0 THEN 'news' WHEN 10 THEN 'shops' WHEN 20 THEN 'police' END,
                   {ago("-86400 - n")}, {ago("3600")}, {ago("31536000")} FROM {series(sizes.jobs)}""",
        f"""INSERT INTO watermarks (stream, fence, last_checked_at, last_parsed_at, moved_at)
            SELECT {name}, 1, {ago("(n * 7919) % 200000")}, {ago("(n * 7919) % 900000")}, {ago("3600")}
              FROM {series(sizes.jobs)}""",
        f"""INSERT INTO executions (execution_id, job_id, job_name, scheduled_for, state, priority, attempt, created_at,
                                    started_at, completed_at, duration_seconds, items_new, error_message, reason,
                                    not_before, lease_until, worker)
            SELECT {_ID[dialect].format(seconds=age)}, {job_id}, {of_job}, {ago(age)}, {state}, 2, 1, {ago(age)},
                   {ago(age)}, CASE WHEN NOT ({is_open}) THEN {ago(age)} END,
                   CASE WHEN NOT ({is_open}) THEN 0.5 END, n % 5,
                   CASE WHEN {state} = 'dead' THEN 'HTTP ' || (500 + n % 4) || ' from https://shop.example/' || n END,
                   CASE WHEN {state} = 'waiting' THEN 'asked to slow down' END,
                   CASE WHEN {state} = 'waiting' THEN {ago("-600 - n % 3600")} END,
                   CASE WHEN {state} = 'running' THEN {ago("-86400")} END, 'bench' FROM {series(sizes.executions)}""",
        f"""INSERT INTO items (stream, key, occurred_at, collected_at, data, content_hash, fence)
            SELECT {of_stream}, {pad("n", 9)}, {ago(stored)}, {ago(stored)},
                   {data}, {pad("n", 32)}, 1
              FROM {series(sizes.items)}""",
        f"""INSERT INTO outbox (seq, stream, key, revision, created_at, position, sent_at)
            {"OVERRIDING SYSTEM VALUE" if dialect == "postgresql" else ""}
            SELECT n, {of_stream}, {pad("n", 9)}, 1, {ago(stored)}, n, {ago(stored)} FROM {series(sizes.items)}
             WHERE n > {sizes.items - _EVENTS}""",
    ]
    async with resources.database.working_long() as writing:
        for statement in statements:
            await writing.execute(text(statement))
    await _fill_budgets(resources, sizes)
    if dialect == "postgresql":
        url = resources.database.engine.url.set(drivername="postgresql").render_as_string(hide_password=False)
        # On its own connection: those of the pool have a deadline.
        connection = await asyncpg.connect(url)
        await connection.execute("VACUUM ANALYZE")
        await connection.close()


def _json(dialect: str, value: str) -> str:
    # A colon would be taken for a parameter.
    return _JSON[dialect].format(text=value.replace(":", "\\:"))


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
    async with resources.database.writing() as connection:
        await connection.execute(insert(budgets), rows)
        await connection.execute(copy, {"known": known})
