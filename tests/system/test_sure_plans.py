"""Hot statements look rows up by their keys, whatever the statistics of the tables say.

Each is planned while the tables have been filled, emptied, analysed and vacuumed in random orders. Statistics then say
that large indexes have no rows, so that reading all of one seems to cost no more than reading one entry.
"""

import json
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from random import Random
from types import ModuleType
from typing import Any

import asyncpg
import pytest

from floodmark.inbound import plain_postgres, triggers
from floodmark.repositories import events
from floodmark.sinks import letters
from floodmark.sinks import repository as sink_repository
from floodmark.store import known_ledgers
from floodmark.store.database import _PLAN_ONCE
from floodmark.store.planned import Planned
from floodmark.store.postgres import firing, forcing, keeping, leasing, spending, upkeep
from floodmark.store.postgres_connection import _server_settings

pytest_plugins = ("backends",)

_MODULES = (
    *(firing, forcing, keeping, leasing, spending, upkeep, known_ledgers),
    *(plain_postgres, letters, sink_repository, events),
)
_GROWING = {
    *("executions", "jobs", "job_dependencies", "watermarks", "items", "item_revisions", "outbox", "completeness"),
    *("trigger_deliveries", "sink_letters"),
}
# Read in order, as far as a LIMIT goes: the queue, leases that expired, what is due, what is to be sent or deleted.
_IN_ORDER = {
    *("ix_job_executions_queued", "ix_job_executions_running", "ix_jobs_next_run", "pk_job_executions"),
    *("ix_outbox_unsent", "ix_outbox_position", "pk_outbox", "ix_job_dependencies_depends_on", "pk_job_dependencies"),
}
# The same, but from a time on: waiting executions whose time has come.
_FROM_A_TIME = "ix_job_executions_waiting"
# Small whatever the tables are: patterns with wildcards, each of which is compared with every delivery.
_WHOLE = {"ix_jobs_open_webhook", "ix_jobs_open_channel"}
# The parts of a key of which one alone finds many rows.
_WHOLE_KEYS = {
    "uq_job_executions_job_id_scheduled_for": ("job_id", "scheduled_for"),
    "pk_items": ("stream", "key"),
    "pk_item_revisions": ("stream", "key"),
}
_SIZES = (0, 0, 30, 3000)
_KEYED = re.compile(r" = ")
_RANGE = re.compile(r" > .* <= ")
# Parts of statements that look like statements by themselves.
_PARTS = {"forcing._JOB", "events._RANGE"}

Plan = Mapping[str, Any]


def hot_statements() -> dict[str, str]:
    """Return the statements of the modules by name; parts of statements are among them."""
    found = dict[str, str]()
    for module in _MODULES:
        found |= {f"{_last_name(module)}.{name}": value for name, value in _texts(module)}
    found |= {
        f"triggers.{kind}": triggers._read_statement(kind, triggers._PATTERNS[kind, True], triggers._POSTGRES_GIVEN)
        for kind in ("webhook", "channel")
    }
    return {name: text for name, text in found.items() if name not in _PARTS}


def _texts(module: ModuleType) -> Iterator[tuple[str, str]]:
    for name, value in vars(module).items():
        several = value.items() if isinstance(value, dict) else (("", value),)
        for key, statement in several:
            text = statement.postgresql if isinstance(statement, Planned) else statement
            if isinstance(text, str) and re.match(r"\s*(WITH|SELECT|INSERT|UPDATE|DELETE)\b", text):
                yield f"{name}{key}", text


def _last_name(module: ModuleType) -> str:
    return module.__name__.rpartition(".")[2]


@pytest.fixture
async def connection(pg_clean: str) -> AsyncIterator[asyncpg.Connection]:
    """A connection with the settings of hot statements, and without their time limits."""
    opened = await asyncpg.connect(pg_clean, server_settings={**_server_settings(600, 600), **_PLAN_ONCE})
    yield opened
    await opened.close()


async def prepare(connection: asyncpg.Connection) -> dict[str, int]:
    """Prepare all statements under their names; return the number of parameters of each. Parts cannot be prepared."""
    counts = {}
    for name, text in hot_statements().items():
        try:
            await connection.execute(f'PREPARE "{name}" AS {text}')
        except (asyncpg.PostgresSyntaxError, asyncpg.UndefinedTableError):
            continue
        counts[name] = max((int(number) for number in re.findall(r"\$(\d+)", text)), default=0)
    return counts


async def shake(connection: asyncpg.Connection, random: Random) -> None:
    """Fill the tables, empty some of them, and let the server count rows, in a random order."""
    for _ in range(random.randint(1, 3)):
        await _fill(connection, random)
        if random.random() < 0.6:
            some = random.choice([["executions", "jobs", "watermarks", "items", "outbox"], ["executions"], ["jobs"]])
            for table in some:
                await connection.execute(f"DELETE FROM {table}")
        counted = random.choice(["ANALYZE", "VACUUM", "VACUUM (ANALYZE, TRUNCATE off)", "VACUUM ANALYZE", "SELECT 1"])
        await connection.execute(counted)


async def _fill(connection: asyncpg.Connection, random: Random) -> None:
    mark, jobs, events = random.randrange(10**9), random.choice(_SIZES), random.choice(_SIZES)
    await connection.execute(
        f"""INSERT INTO jobs (job_id, name, target, stream, interval_seconds, next_run, trigger_webhook)
        SELECT '{mark}j' || n, '{mark}n' || n, 'nothing', '{mark}s' || n, 60, now(), '/' || n
          FROM generate_series(1, {jobs}) n;
        INSERT INTO watermarks (stream, fence) SELECT '{mark}s' || n, 1 FROM generate_series(1, {jobs}) n;
        INSERT INTO items (stream, key, collected_at, data, content_hash, fence)
        SELECT 's', '{mark}k' || n, now(), '{{}}', 'h', 1 FROM generate_series(1, {events}) n;
        INSERT INTO outbox (stream, key, revision, created_at, sent_at)
        SELECT 's', 'k' || n, 1, now(), CASE WHEN n % 2 = 0 THEN now() END FROM generate_series(1, {events}) n"""
    )
    states = {
        "done": "completed_at = now()",
        "queued": "queue_rank = now()",
        "running": "lease_until = now()",
        "held": "state = 'waiting', hold = 'overlap'",
        "timed": "state = 'waiting', not_before = now()",
    }
    for state, values in states.items():
        count = random.choice(_SIZES)
        names, cells = zip(*(value.split(" = ") for value in values.split(", ")), strict=True)
        columns = {"state": f"'{state}'", **dict(zip(names, cells, strict=True))}
        await connection.execute(
            f"""INSERT INTO executions (execution_id, job_id, job_name, scheduled_for, priority, {", ".join(columns)})
            SELECT '{mark}{state}' || n, '{mark}j' || n % 1000, 'n', now() + n * interval '1 s', 2,
                   {", ".join(columns.values())} FROM generate_series(1, {count}) n ON CONFLICT DO NOTHING"""
        )


async def plan(connection: asyncpg.Connection, name: str, parameters: int) -> Plan:
    given = f"({', '.join(['NULL'] * parameters)})" if parameters else ""
    found = json.loads(await connection.fetchval(f'EXPLAIN (FORMAT JSON) EXECUTE "{name}"{given}'))
    root: Plan = found[0]["Plan"]
    return root


def unsure_scans(node: Plan, *, is_limited: bool = False) -> Iterator[str]:
    """Yield the scans of a plan that read more the larger a table is."""
    kind, table, index = node["Node Type"], node.get("Relation Name"), node.get("Index Name", "")
    if table in _GROWING and kind != "ModifyTable":
        condition = node.get("Index Cond", "")
        is_keyed = bool(_KEYED.search(condition) or _RANGE.search(condition))
        # Of the history of a job, or of a stream, only the newest may be read.
        is_keyed &= is_limited or all(part in condition for part in _WHOLE_KEYS.get(index, ()))
        is_in_order = is_limited and (index in _IN_ORDER or (index == _FROM_A_TIME and condition != ""))
        if not is_keyed and not is_in_order and index not in _WHOLE:
            yield f"{kind} of {table} by {index or 'nothing'}: {condition or node.get('Filter')}"
    if kind == "Limit":
        is_limited = True
    elif kind in {"Sort", "Aggregate"}:
        # Everything is read before the first row comes out.
        is_limited = False
    for child in node.get("Plans", ()):
        yield from unsure_scans(child, is_limited=is_limited)


async def find_unsure(connection: asyncpg.Connection, rounds: int, seed: int) -> dict[str, set[str]]:
    found = dict[str, set[str]]()
    counts = await prepare(connection)
    assert {
        "leasing._CLAIM_NEXT",
        "leasing._SETTLE",
        "upkeep._WAKE",
        "firing._DUE",
        "plain_postgres._READSwebhook",
    } <= {*counts}
    for number in range(rounds):
        random = Random(seed + number)
        await shake(connection, random)
        await connection.execute("DISCARD PLANS")
        for name, parameters in counts.items():
            for scan in unsure_scans(await plan(connection, name, parameters)):
                found.setdefault(name, set()).add(f"{scan}, round {seed + number}")
        if random.random() < 0.7:
            await connection.execute("TRUNCATE executions, jobs, watermarks, items, outbox CASCADE")
    return found


@pytest.mark.spec("B17", "G8")
async def test_no_statistics_lead_to_a_plan_that_reads_more_the_larger_a_table_is(
    connection: asyncpg.Connection,
) -> None:
    # In the first rounds each fault that was found by many rounds occurs.
    assert await find_unsure(connection, rounds=4, seed=1) == {}


@pytest.mark.spec("B17", "G8")
@pytest.mark.thorough
async def test_no_random_statistics_do_so_either(connection: asyncpg.Connection) -> None:
    assert await find_unsure(connection, rounds=25, seed=100) == {}


async def test_a_statement_that_depends_on_statistics_is_found(connection: asyncpg.Connection) -> None:
    """The anti-join that read all unfinished executions for every settled one."""
    await connection.execute(
        "PREPARE unsure AS SELECT 1 FROM jobs j WHERE j.name = ANY ($1::text[]) AND NOT EXISTS"
        " (SELECT 1 FROM executions o WHERE o.job_id = j.job_id AND o.completed_at IS NULL)"
    )
    await shake(connection, Random(1))
    assert [*unsure_scans(await plan(connection, "unsure", 1))] != []
