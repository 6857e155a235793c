"""A job whose executions wait for each other: the end of one queues the next, however many wait."""

import sqlite3
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import insert, text

from floodmark.model.execution import Hold, State
from floodmark.model.ids import new_id
from floodmark.model.outcome import Cancelled, Dead, Done, Outcome, Released, Retry, Snooze
from floodmark.rules.rank import rank_delays
from floodmark.store.database import PostgresDatabase, SqliteDatabase
from floodmark.store.port import Settlement
from floodmark.store.postgres import leasing, upkeep
from floodmark.store.postgres_connection import Connection
from floodmark.store.sqlite import leasing as sqlite_leasing
from floodmark.store.sqlite import upkeep as sqlite_upkeep
from floodmark.store.tables import job_dependencies, job_executions
from floodmark.testing.factories import (
    Opened,
    change_executions,
    change_jobs,
    execution_of,
    given_executions,
    given_job,
    requeue,
    settle,
    state_of,
    take,
)
from floodmark.wiring.resources import Resources

pytest_plugins = ("backends",)
pytestmark = [pytest.mark.spec("E7"), pytest.mark.every_database]

NOW = datetime.now(UTC)
HOUR = timedelta(hours=1)


@pytest.fixture(params=["sqlite", "redis_on_postgres"])
def opened(request: pytest.FixtureRequest) -> Opened:
    found: Opened = request.getfixturevalue(request.param)
    return found


@pytest.fixture
async def resources(opened: Opened) -> AsyncIterator[Resources]:
    async with opened() as resources:
        yield resources


async def given_held(resources: Resources, job_id: str, count: int, **columns: Any) -> list[str]:
    """Executions that wait for their turn, written in the opposite order; their ids, in the order of their instants."""
    ids = [new_id() for _ in range(count)]
    usual = {"job_id": job_id, "job_name": "busy", "state": State.WAITING, "hold": Hold.OVERLAP, "priority": 2}
    rows = [
        {**usual, "execution_id": execution_id, "scheduled_for": NOW - HOUR + timedelta(seconds=number), **columns}
        for number, execution_id in enumerate(ids)
    ]
    async with resources.database.writing() as connection:
        await connection.execute(insert(job_executions), rows[::-1])
    return ids


async def given_backlog(resources: Resources, count: int, **columns: Any) -> list[str]:
    """A queued execution of a new job, and this many that wait behind it; all ids in order."""
    job_id = await given_job(resources, overlap="queue")
    [first] = await given_executions(resources, [job_id])
    await change_executions(resources, [first], scheduled_for=NOW - 2 * HOUR)
    return [first, *await given_held(resources, job_id, count, **columns)]


async def end(resources: Resources, outcome: Outcome) -> str:
    """Take the one execution that can start, and end it; its id."""
    [lease] = await take(resources)
    assert await settle(resources, lease, outcome)
    return lease.execution_id


@pytest.mark.spec("E7", "G8")
async def test_the_end_of_one_execution_queues_the_next(resources: Resources) -> None:
    """Whatever its end is, in the order of their instants, and without anybody else looking."""
    ids = await given_backlog(resources, 4)
    ends: list[Outcome] = [Done(), Dead(error="gone"), Cancelled(reason="enough"), Done(), Done()]
    assert [await end(resources, outcome) for outcome in ends] == ids


async def test_one_that_goes_on_later_lets_nobody_pass(resources: Resources) -> None:
    """A retry, a limit and a release are no end: the next execution is not due before them."""
    first, second = await given_backlog(resources, 1)
    for outcome in (Retry(error="odd", after=HOUR), Snooze(after=HOUR, reason="slow"), Released()):
        assert await end(resources, outcome) == first
        assert await state_of(resources, second) is State.WAITING
        await resources.upkeep.wake(limit=10)
        assert await state_of(resources, second) is State.WAITING
        await change_executions(resources, [first], not_before=NOW - HOUR)
        await resources.queue.put(await resources.upkeep.wake(limit=10), again=True)
    assert [await end(resources, Done()), await end(resources, Done())] == [first, second]


async def test_a_pause_holds_the_backlog_in_its_order(resources: Resources) -> None:
    """Only what a person asks for runs meanwhile."""
    ids = await given_backlog(resources, 3)
    await change_executions(resources, ids[3:], trigger="manual")
    [lease] = await take(resources)
    await change_jobs(resources, [lease.job.job_id], paused=True)
    assert await settle(resources, lease, Done())

    assert await end(resources, Done()) == ids[3]
    assert await resources.upkeep.wake(limit=10) == []
    assert [(await execution_of(resources, i))["hold"] for i in ids[1:3]] == [Hold.OVERLAP] * 2
    await change_jobs(resources, [lease.job.job_id], paused=False)
    await resources.queue.put(await resources.upkeep.wake(limit=10), again=True)
    assert [await end(resources, Done()), await end(resources, Done())] == ids[1:3]


async def test_what_was_queued_when_the_job_was_paused_comes_first_again(resources: Resources) -> None:
    """It met the pause, the others did not: they stay behind it."""
    first, second = await given_backlog(resources, 1)
    job_id = (await execution_of(resources, first))["job_id"]
    await change_jobs(resources, [job_id], paused=True)
    assert await take(resources) == []
    assert (await execution_of(resources, first))["hold"] == Hold.PAUSED

    await change_jobs(resources, [job_id], paused=False)
    await resources.queue.put(await resources.upkeep.wake(limit=10), again=True)
    assert [await end(resources, Done()), await end(resources, Done())] == [first, second]


async def test_jitter_and_limits_hold_after_the_turn_has_come(resources: Resources) -> None:
    """Its share of the jitter is not over when its turn comes; then a limit is set."""
    first, second = await given_backlog(resources, 1, not_before=datetime.now(UTC) + HOUR)
    assert await end(resources, Done()) == first
    row = await execution_of(resources, second)
    assert (row["state"], row["hold"], row["reason"]) == ("waiting", None, None)
    assert row["not_before"] > datetime.now(UTC)

    await change_executions(resources, [second], not_before=NOW - HOUR)
    async with resources.database.writing() as connection:
        await connection.execute(
            text("INSERT INTO limits (key, until, reason) VALUES ('slow', :until, 'flood')"),
            {"until": "2100-01-01T00:00:00.000000Z" if resources.database.dialect == "sqlite" else NOW + HOUR},
        )
    await change_jobs(resources, [row["job_id"]], limit_key="slow")
    await resources.queue.put(await resources.upkeep.wake(limit=10), again=True)
    assert await take(resources) == []
    row = await execution_of(resources, second)
    assert (row["state"], row["reason"]) == ("waiting", "flood")


@pytest.mark.spec("V7")
async def test_a_job_that_waits_for_another_catches_up(resources: Resources) -> None:
    """One success is enough for all that was due before it. What is due later waits for the next success."""
    ids = await given_backlog(resources, 4)
    job_id, needed = (await execution_of(resources, ids[0]))["job_id"], await given_job(resources)
    async with resources.database.writing() as connection:
        await connection.execute(insert(job_dependencies).values(job_id=job_id, depends_on=needed))
    await change_jobs(resources, [needed], last_success=NOW - HOUR + timedelta(seconds=2.5))

    assert [await end(resources, Done()) for _ in ids[:4]] == ids[:4]

    await resources.upkeep.wake(limit=10)
    assert (await execution_of(resources, ids[4]))["hold"] == Hold.OVERLAP
    await change_jobs(resources, [needed], last_success=datetime.now(UTC) + HOUR)
    await resources.queue.put(await resources.upkeep.wake(limit=10), again=True)
    assert await end(resources, Done()) == ids[4]


@pytest.mark.spec("G2")
async def test_a_put_that_is_lost_is_made_up_for(resources: Resources) -> None:
    """The worker dies when the outcome is written and before the queue knows of the next execution."""
    _, second = await given_backlog(resources, 1)
    [lease] = await take(resources)
    settled = await resources.leasing.settle([Settlement(lease=lease, outcome=Done(), duration=0.1)])

    assert (settled.mine, [queued.execution_id for queued in settled.woken]) == ([True], [second])
    assert [queued.execution_id for queued in await requeue(resources)] == [second]
    assert await end(resources, Done()) == second


async def test_jobs_of_others_are_left_alone(resources: Resources) -> None:
    """A batch ends executions of several jobs; each job goes on by itself, one whose lease was lost does not."""
    backlogs = [await given_backlog(resources, 2) for _ in range(3)]
    leases = {lease.execution_id: lease for lease in await take(resources)}
    lost = leases[backlogs[2][0]]
    await change_executions(resources, [lost.execution_id], fence=lost.fence + 1)
    settlements = [Settlement(lease=leases[ids[0]], outcome=Done(), duration=0.1) for ids in backlogs]

    assert await resources.queue.settle(settlements) == [True, True, False]

    assert {lease.execution_id for lease in await take(resources)} == {ids[1] for ids in backlogs[:2]}


async def test_a_backlog_leaves_its_stream_to_other_jobs(resources: Resources) -> None:
    """Three jobs collect one stream, two of them have a backlog: they take turns, in both ways to name a stream."""
    busy = [await given_job(resources, overlap="queue", source="test", target="shared") for _ in range(2)]
    other = await given_job(resources, stream="test:shared", source="another", target="elsewhere")
    await given_executions(resources, [busy[0]])
    for job_id in busy:
        await given_held(resources, job_id, 5)
    [running] = await take(resources)
    await given_executions(resources, [other])
    assert await take(resources) == []

    turns = [running.job.job_id]
    assert await settle(resources, running, Done())
    for _ in range(6):
        [lease] = await take(resources)
        turns.append(lease.job.job_id)
        assert await settle(resources, lease, Done())

    assert set(turns[1:3]) == {busy[1], other}
    assert turns[3:] == [busy[0], busy[1], busy[0], busy[1]]


@pytest.mark.spec("G8")
@pytest.mark.parametrize("counted", [True, False], ids=["counted", "never counted"])
async def test_the_next_is_looked_up_by_index(postgres_only: Opened, counted: bool) -> None:
    """Neither what waits behind it nor the history of the job is read, whatever the server has counted."""
    nothing: list[Any] = [[]] * 14
    delays = rank_delays(HOUR)
    statements = (
        (leasing._SETTLE, (*nothing, delays)),
        (leasing._SETTLE_DONE, (*leasing._done_columns(()), delays)),
        (upkeep._WAKE, (10, delays)),
    )

    async def planned(connection: Connection) -> list[str]:
        return [str(await (await connection.prepare(statement)).explain(*given)) for statement, given in statements]

    async with postgres_only() as resources:
        assert isinstance(resources.database, PostgresDatabase)
        await given_backlog(resources, 500)
        await resources.database.hot("history", _with_history)
        if counted:
            await resources.database.hot("count", _count)
        for plan in await resources.database.hot("explain", planned):
            assert "ix_job_executions_held" in plan
            assert "uq_job_executions" not in plan
            assert "Seq Scan on executions" not in plan


async def _with_history(connection: Connection) -> None:
    await connection.execute(
        "INSERT INTO executions (execution_id, job_id, job_name, scheduled_for, state, priority, completed_at)"
        " SELECT 'x' || n, job_id, 'busy', now() - n * interval '1 day', 'done', 2, now()"
        "   FROM jobs, generate_series(1, 2000) n ON CONFLICT DO NOTHING"
    )


async def _count(connection: Connection) -> None:
    await connection.execute("ANALYZE")


@pytest.mark.spec("G8")
async def test_the_next_is_looked_up_by_index_on_sqlite(sqlite: Opened) -> None:
    """Without the index that the history is in as well."""

    def planned(connection: sqlite3.Connection) -> list[str]:
        statements = (sqlite_leasing._NEXT_HELD, sqlite_upkeep._NEXT_HELD, sqlite_upkeep._FREED)
        named = {"now": "", "limit": 1}
        arguments: tuple[Any, ...] = (("", "", "", ""), named, named)
        return [
            row[3]
            for statement, given in zip(statements, arguments, strict=True)
            for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}", given)
        ]

    async with sqlite() as resources:
        assert isinstance(resources.database, SqliteDatabase)
        steps = await resources.database.hot("explain", planned)
    assert any("ix_job_executions_held (hold=? AND job_id=? AND scheduled_for<?)" in step for step in steps)
    # By job and instant the history is indexed, too.
    assert not [step for step in steps if "sqlite_autoindex_executions_2" in step]
