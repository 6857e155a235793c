"""Hot statements that were planned while the tables were empty and analysed read few rows of large tables."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import asyncpg
import pytest

from floodmark.model.execution import State
from floodmark.model.ids import new_id
from floodmark.model.job import DueJob, Priority
from floodmark.model.outcome import Dead, Done, Retry
from floodmark.store.database import _PLAN_ONCE, PostgresDatabase
from floodmark.store.port import FIRST_PLACE, Decision, NewExecution, Offer, Settlement
from floodmark.store.postgres_connection import Connection
from floodmark.store.replanning import has_grown
from floodmark.testing.factories import TTL, Opened
from floodmark.watches.event_reader import EventReader
from floodmark.wiring.resources import Resources

pytest_plugins = ("backends",)

JOBS, ENDED, ROWS = 10_000, 100_000, 50
# Every third job is due. The ids of ended executions are those of old ones.
FILL = (
    f"""INSERT INTO jobs (job_id, name, source, target, stream, schedule_type, interval_seconds, next_run)
    SELECT 'j' || n, 'n' || n, 'python', 'nothing', 's' || n, 'interval', 60,
           now() + (n % 3 - 1) * interval '1 hour' FROM generate_series(1, {JOBS}) n""",
    f"INSERT INTO watermarks (stream, fence, holder) SELECT 's' || n, 1, 'x' FROM generate_series(1, {JOBS}) n",
    f"""INSERT INTO executions (execution_id, job_id, job_name, scheduled_for, state, priority, completed_at,
                                created_at)
    SELECT '00d' || n, 'j' || n % {JOBS} + 1, 'n', now() - n * interval '1 second', 'done', 2, now(), now()
      FROM generate_series(1, {ENDED}) n""",
    """INSERT INTO executions (execution_id, job_id, job_name, scheduled_for, state, priority, queue_rank, created_at)
    SELECT 'q' || n, 'j' || n, 'n', now() + n * interval '1 second', 'queued', 2, now() - interval '1 hour', now()
      FROM generate_series(1, 3000) n""",
    """INSERT INTO executions (execution_id, job_id, job_name, scheduled_for, state, priority, fence, worker,
                               lease_until, started_at, created_at)
    SELECT 'r' || n, 'j' || n, 'n', now() + n * interval '1 second', 'running', 2, 1, 'w', now() - interval '1 minute',
           now(), now() FROM generate_series(3001, 6000) n""",
    """INSERT INTO executions (execution_id, job_id, job_name, scheduled_for, state, priority, hold, created_at)
    SELECT 'h' || n, 'j' || n, 'n', now() + n * interval '1 second', 'waiting', 2, 'overlap', now()
      FROM generate_series(9500, 9999) n""",
    """INSERT INTO executions (execution_id, job_id, job_name, scheduled_for, state, priority, not_before, created_at)
    SELECT 'w' || n, 'j' || n, 'n', now() + n * interval '1 second', 'waiting', 2, now() - interval '1 minute', now()
      FROM generate_series(6001, 9000) n""",
)
_READ = """
SELECT sum(seq_tup_read + COALESCE(idx_tup_fetch, 0))::bigint + (SELECT sum(idx_tup_read)::bigint
  FROM pg_stat_user_indexes) FROM pg_stat_user_tables
"""
Step = Callable[[Resources], Awaitable[int]]


class Measured(NamedTuple):
    """The rows that a step has handled, and the rows and index entries that the server has read for it."""

    rows: int
    read: int


async def claim_and_settle(resources: Resources) -> int:
    leasing = resources.leasing
    leases = await leasing.claim_next(ROWS, worker="w", ttl=TTL)
    await leasing.extend(leases, ttl=TTL) if leases else None
    outcomes = (Done(), Retry(error="e", after=timedelta(hours=1)), Dead(error="e"))
    settled = [Settlement(lease=x, outcome=outcomes[n % 3], duration=1.0) for n, x in enumerate(leases)]
    await leasing.settle(settled) if settled else None
    return len(leases)


async def claim_by_id(resources: Resources) -> int:
    ids = [f"q{number}" for number in range(2000, 2000 + ROWS)]
    leases = await resources.leasing.claim(ids, worker="w", ttl=TTL)
    leases += await resources.leasing.claim(["q2100"], worker="w", ttl=TTL)
    # Already claimed: these are examined to be parked.
    await resources.leasing.claim(ids[:10], worker="w", ttl=TTL)
    return len(leases)


async def offer(resources: Resources) -> int:
    leases = await resources.leasing.claim([f"q{n}" for n in range(2500, 2500 + ROWS)], worker="w", ttl=TTL)
    await resources.leasing.offer([Offer(lease=lease, worker="v") for lease in leases], within=TTL)
    return len(await resources.leasing.claim_offers(ROWS, worker="v", ttl=TTL, within=TTL))


async def wake(resources: Resources) -> int:
    return len(await resources.upkeep.wake(limit=ROWS))


async def rescue(resources: Resources) -> int:
    return len((await resources.upkeep.rescue(limit=ROWS, rescue_max=3)).queued)


async def requeue(resources: Resources) -> int:
    return len(await resources.upkeep.queued(after=FIRST_PLACE, older_than=timedelta(minutes=1), limit=ROWS))


async def prune(resources: Resources) -> int:
    return await resources.upkeep.prune(history=timedelta(days=-36500), events=timedelta(), limit=ROWS)


async def fire(resources: Resources) -> int:
    return (await resources.firing.fire(_decide, limit=ROWS)).written


async def force(resources: Resources) -> int:
    requests = [resources.runs.request(f"n{number}") for number in range(9001, 9001 + ROWS)]
    await resources.runs.force_all(requests)
    return ROWS


def _decide(due: Sequence[DueJob], now: datetime) -> list[Decision]:
    return [
        Decision(
            job=job,
            executions=(
                NewExecution(execution_id=new_id(), scheduled_for=now, state=State.QUEUED, priority=Priority.NORMAL),
            ),
            next_run=now + timedelta(hours=1),
            planned_until=now,
        )
        for job in due
    ]


STEPS = (claim_and_settle, claim_by_id, offer, wake, rescue, requeue, prune, fire, force)


# Steps of the leader whose plans may be bad until the sizes are compared.
PLANNED_AGAIN = (wake, requeue)


@pytest.fixture
async def typed(pg_clean: str) -> AsyncIterator[asyncpg.Connection]:
    """SQL by hand."""
    connection = await asyncpg.connect(pg_clean)
    yield connection
    await connection.close()


async def run_all(connection: asyncpg.Connection, *statements: str) -> None:
    """Run statements; the server counts what they have read at once, not when a step is measured."""
    for statement in statements:
        await connection.execute(statement)
    await connection.execute("SELECT pg_stat_force_next_flush()")


async def measure(resources: Resources, step: Step) -> Measured:
    before = await _reads(resources)
    rows = await step(resources)
    return Measured(rows, await _reads(resources) - before)


async def _reads(resources: Resources) -> int:
    async def work(connection: Connection) -> int:
        await connection.execute("SELECT pg_stat_force_next_flush()")
        await connection.execute("SELECT pg_stat_clear_snapshot()")
        return int(await connection.fetchval(_READ))

    assert isinstance(resources.database, PostgresDatabase)
    return await resources.database.hot("measure", work)


@pytest.mark.spec("B17", "G8")
@pytest.mark.parametrize("is_planned_again", [False, True], ids=["once", "again"])
@pytest.mark.parametrize("came_and_went", [False, True], ids=["empty", "emptied"])
async def test_steps_that_were_planned_for_empty_tables_read_few_rows_of_large_ones(
    postgres_only: Opened, typed: asyncpg.Connection, came_and_went: bool, is_planned_again: bool
) -> None:
    """`came_and_went`: the server counted the rows of tables whose rows had just been deleted.

    Work that is fired and done within a second is done before the sizes of the tables are compared.
    """
    steps = [step for step in STEPS if is_planned_again or step not in PLANNED_AGAIN]
    async with postgres_only() as resources:
        assert isinstance(resources.database, PostgresDatabase)
        resources.database.replanning.every = 0.0 if is_planned_again else 3600.0
        if came_and_went:
            await run_all(typed, *FILL[:2], "DELETE FROM jobs", "DELETE FROM watermarks")
        await typed.execute("ANALYZE")
        for step in steps:
            await step(resources)
        await run_all(typed, *FILL)

        measured = {step.__name__: await measure(resources, step) for step in steps}

    assert {name: found.rows for name, found in measured.items() if found.rows < ROWS} == {}
    # None reads the history, or all jobs for each row. Some read all waiting or queued executions.
    assert {name: found for name, found in measured.items() if found.read > ENDED / 10} == {}


EVENTS, AT_ONCE = 10_000, 500
# Half of the events have a position, as if they had been relayed.
FILL_EVENTS = (
    f"""INSERT INTO items (stream, key, collected_at, data, content_hash, execution_id, fence)
    SELECT 's', 'k' || n, now(), '{{}}', 'h', 'e', 1 FROM generate_series(1, {EVENTS}) n""",
    f"""INSERT INTO outbox (stream, key, revision, created_at, position, sent_at)
    SELECT 's', 'k' || n, 1, now(), CASE WHEN n <= {EVENTS} / 2 THEN n END, CASE WHEN n <= {EVENTS} / 2 THEN now() END
      FROM generate_series(1, {EVENTS}) n""",
)
EMPTY_EVENTS = ("DELETE FROM items", "DELETE FROM outbox")


async def relay(resources: Resources) -> int:
    async def discard(_: object) -> None:
        pass

    return await resources.keeping.relay(discard, limit=AT_ONCE)


async def read_for_sinks(resources: Resources) -> int:
    return len(await resources.repositories.events.rows_after(0, AT_ONCE))


async def read_for_exports(resources: Resources) -> int:
    return len((await resources.repositories.item_pages.changes(0, AT_ONCE)).rows)


async def read_for_the_search(resources: Resources) -> int:
    return len(await resources.search.items.after(0, AT_ONCE))


async def read_for_watches(resources: Resources) -> int:
    return len(await EventReader(resources.database, resources.clock).after(0, AT_ONCE))


@pytest.mark.spec("B17", "G8")
@pytest.mark.parametrize("step", [relay, read_for_sinks, read_for_exports, read_for_the_search, read_for_watches])
@pytest.mark.parametrize("counted_by", ["ANALYZE", "VACUUM", "VACUUM (ANALYZE, TRUNCATE off)"])
async def test_each_event_is_looked_up_though_the_statistics_say_that_there_are_none(
    postgres_only: Opened, typed: asyncpg.Connection, step: Step, counted_by: str
) -> None:
    """Even before the next comparison of sizes: a burst of events comes within a second."""
    async with postgres_only() as resources:
        assert isinstance(resources.database, PostgresDatabase)
        resources.database.replanning.every = 3600.0
        assert await step(resources) == 0
        analysed = f"{counted_by} items, item_revisions, outbox"
        await run_all(typed, *FILL_EVENTS, *EMPTY_EVENTS, analysed, *FILL_EVENTS)
        measured = await measure(resources, step)

    assert measured.rows == AT_ONCE
    # A plan that reads all events for each event reads five million. The server may analyse the tables meanwhile.
    assert measured.read < 20 * EVENTS


@pytest.mark.spec("B17", "G6")
async def test_the_pruner_looks_only_at_the_oldest_events(postgres_only: Opened, typed: asyncpg.Connection) -> None:
    """Not at all events to find that none is old enough."""
    async with postgres_only() as resources:
        # An index still has the rows that other tests have deleted.
        await run_all(typed, "VACUUM executions, outbox", *FILL_EVENTS)

        async def prune_nothing(resources: Resources) -> int:
            return await resources.upkeep.prune(history=timedelta(days=90), events=timedelta(days=30), limit=ROWS)

        measured = await measure(resources, prune_nothing)

    assert measured.rows == 0
    assert measured.read < EVENTS / 10


@pytest.mark.spec("B17", "G8")
async def test_the_newest_position_is_read_once_whatever_index_is_used(
    postgres_only: Opened, typed: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was read for every event when the statistics made another plan seem cheaper."""
    for name, value in (("enable_bitmapscan", "on"), ("enable_indexscan", "off"), ("enable_indexonlyscan", "off")):
        monkeypatch.setitem(_PLAN_ONCE, name, value)
    async with postgres_only() as resources:
        assert isinstance(resources.database, PostgresDatabase)
        resources.database.replanning.every = 3600.0
        assert await relay(resources) == 0
        await run_all(typed, *FILL_EVENTS, *EMPTY_EVENTS, "ANALYZE items, item_revisions, outbox", *FILL_EVENTS)
        measured = await measure(resources, relay)

    assert measured.rows == AT_ONCE
    assert measured.read < 20 * EVENTS


@pytest.mark.spec("B17")
def test_plans_are_made_again_when_a_table_has_grown_fourfold() -> None:
    assert not has_grown({"jobs": 0}, {"jobs": 8})
    assert has_grown({"jobs": 0}, {"jobs": 9})
    assert not has_grown({"jobs": 100, "items": 5}, {"jobs": 400, "items": 8})
    assert has_grown({"jobs": 100, "items": 5}, {"jobs": 401, "items": 5})
    assert not has_grown({"jobs": 100}, {"jobs": 0})
