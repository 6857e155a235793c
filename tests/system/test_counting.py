"""Counts by the minute and by the day: each end and each item once, whoever counts and whenever it is killed."""

import asyncio
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import delete, func, insert, select, text, update

from floodmark.model.batch import Batch, Item
from floodmark.model.ids import floor_id
from floodmark.model.job import Priority
from floodmark.model.minutes import MinuteRow
from floodmark.model.outcome import Done
from floodmark.observability.events import DepthMeasured
from floodmark.process import failpoints
from floodmark.process.failpoints import COUNT_POINT, FailpointError
from floodmark.repositories.minutes import KEPT
from floodmark.rules.minutes import MINUTE, begin_of_minute
from floodmark.scheduler.counting import MinuteCounter
from floodmark.store.tables import consumers, job_executions, minutes, outbox, stream_days
from floodmark.testing.factories import Opened, count_of, given_lease, rows_of, settle
from floodmark.wiring.resources import Resources
from system.test_overview import plan_of

pytest_plugins = ("backends",)
pytestmark = pytest.mark.spec("B10")

DAY = timedelta(days=1)
ENDED = ("done", "dead", "cancelled", "skipped")


@pytest.fixture(autouse=True)
def _a_short_past(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first count looks at the last day; two hours are enough here."""
    monkeypatch.setattr("floodmark.repositories.minutes._FIRST", timedelta(hours=2))


@pytest.fixture(params=["sqlite", "postgres_only"])
def opened(request: pytest.FixtureRequest) -> Opened:
    found: Opened = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def arm(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Fail-points are dead in a process that was not started for them."""
    monkeypatch.setattr("floodmark.repositories.minutes.failpoint", failpoints.hit)
    yield failpoints.arm
    failpoints.arm("")


@pytest.fixture
async def resources(opened: Opened) -> AsyncIterator[Resources]:
    async with opened() as resources:
        yield resources


def an_execution(number: int, created: datetime, state: str, ended: datetime | None = None, **columns: Any) -> Any:
    return {
        "execution_id": f"{floor_id(created)}{number:020x}",
        "job_id": f"job-{number}",
        "job_name": "news",
        "scheduled_for": created,
        "state": state,
        "priority": 2,
        "created_at": created,
        "started_at": None,
        "completed_at": ended,
        "attempt": 0,
        "duration_seconds": None,
        **columns,
    }


async def store(resources: Resources, executions: Sequence[Any]) -> None:
    async with resources.database.writing() as connection:
        await connection.execute(insert(job_executions), executions)


async def end(resources: Resources, execution: Any, state: str, at: datetime) -> None:
    async with resources.database.writing() as connection:
        this = job_executions.c.execution_id == execution["execution_id"]
        await connection.execute(update(job_executions).where(this).values(state=state, completed_at=at))


async def ask_again(resources: Resources) -> None:
    """Time passes: every minute with unfinished executions is due."""
    async with resources.database.writing() as connection:
        due = update(minutes).where(minutes.c.recount_at.is_not(None))
        await connection.execute(due.values(recount_at=minutes.c.minute))


async def count_all(resources: Resources) -> None:
    await ask_again(resources)
    while await resources.repositories.minutes.count():
        # Those that are counted for ever, because they are young, are fewer than a portion.
        pass


async def counted(resources: Resources, hours: float = 3) -> dict[datetime, MinuteRow]:
    report = await resources.repositories.minutes.read(hours)
    assert report.step_minutes == 1
    return {row.at: row for row in report.rows}


def ends_of(rows: dict[datetime, MinuteRow]) -> Counter[tuple[datetime, str]]:
    return Counter({(at, state): getattr(row, state) for at, row in rows.items() for state in ENDED})


async def test_executions_count_in_the_minute_in_which_they_end(resources: Resources) -> None:
    now = begin_of_minute(datetime.now(UTC))
    long_ago, lately = now - timedelta(minutes=90), now - timedelta(minutes=5)
    waits = an_execution(1, long_ago, "waiting")
    runs = an_execution(2, lately, "running", started_at=lately + timedelta(seconds=3), attempt=1)
    quick = an_execution(3, lately, "done", lately + MINUTE, started_at=lately + MINUTE, attempt=1)
    await store(resources, [waits, runs, quick, an_execution(4, lately, "skipped", lately)])

    await count_all(resources)

    rows = await counted(resources)
    assert +ends_of(rows) == {(lately + MINUTE, "done"): 1, (lately, "skipped"): 1}
    assert (rows[lately].created, rows[lately].unfinished, rows[long_ago].unfinished) == (3, 1, 1)
    assert rows[lately].started == 2
    assert rows[lately].lateness_p50_seconds == pytest.approx(3, abs=2)
    assert rows[lately].lateness_max_seconds == pytest.approx(60, abs=0.01)
    assert len(rows) == 180, "quiet minutes are shown too"

    await end(resources, waits, "dead", now)
    await end(resources, runs, "cancelled", now)
    for _ in range(2):
        await count_all(resources)

    rows = await counted(resources)
    expected = {(lately + MINUTE, "done"): 1, (lately, "skipped"): 1, (now, "dead"): 1, (now, "cancelled"): 1}
    assert +ends_of(rows) == expected
    assert sum(row.unfinished for row in rows.values()) == 0
    # All have ended: only the youngest minutes are counted again.
    [row] = await resources.database.fetch(select(func.count().label("open")).where(minutes.c.recount_at.is_not(None)))
    assert row["open"] <= 3


async def test_an_end_is_counted_even_if_it_is_deleted_or_retried_afterwards(resources: Resources) -> None:
    at = begin_of_minute(datetime.now(UTC)) - timedelta(minutes=10)
    gone, retried, open_one = (an_execution(n, at, "dead", at) for n in range(3))
    open_one |= {"state": "waiting", "completed_at": None}
    await store(resources, [gone, retried, open_one])
    await count_all(resources)
    async with resources.database.writing() as connection:
        this = job_executions.c.execution_id
        await connection.execute(delete(job_executions).where(this == gone["execution_id"]))
        queued = {"state": "queued", "completed_at": None}
        await connection.execute(update(job_executions).where(this == retried["execution_id"]).values(**queued))
    await count_all(resources)
    await end(resources, retried, "done", at + MINUTE)
    await count_all(resources)
    assert +ends_of(await counted(resources)) == {(at, "dead"): 2, (at + MINUTE, "done"): 1}


async def test_runs_that_were_repeated_say_nothing_about_lateness(resources: Resources) -> None:
    """Their first start is no longer known."""
    at = begin_of_minute(datetime.now(UTC)) - timedelta(minutes=10)
    end_at, second = at + MINUTE, timedelta(seconds=1)
    one = {"started_at": at + 2 * second, "attempt": 1, "duration_seconds": 58.0}
    several = {"started_at": end_at - second, "attempt": 1, "duration_seconds": 40.0}
    retried, rescued = {**one, "attempt": 2}, {**one, "rescues": 1}
    columns = [one, several, retried, rescued]
    rows = [an_execution(n, at, "done", end_at, **{"rescues": 0, **more}) for n, more in enumerate(columns)]
    await store(resources, rows)
    await count_all(resources)
    row = (await counted(resources))[at]
    assert (row.created, row.started) == (4, 1)
    assert row.lateness_max_seconds == pytest.approx(2, abs=0.01)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.thorough
async def test_two_leaders_count_each_end_once(opened: Opened, seed: int) -> None:
    """In any order, and while executions end."""
    chance = random.Random(seed)
    now = begin_of_minute(datetime.now(UTC))
    created = [now - timedelta(minutes=chance.randrange(30, 60)) for _ in range(60)]
    executions = [an_execution(n, at, "queued") for n, at in enumerate(created)]
    expected = Counter[tuple[datetime, str]]()
    async with opened() as one, opened() as other:
        await store(one, executions)
        for part in range(0, len(executions), 20):
            await ask_again(one)
            await asyncio.gather(*(leader.repositories.minutes.count() for leader in (one, other, one)))
            for execution in executions[part : part + 20]:
                state, at = chance.choice(ENDED), now - timedelta(minutes=chance.randrange(30))
                await end(one, execution, state, at)
                expected[at, state] += 1
        for _ in range(4):
            await ask_again(one)
            await asyncio.gather(*(leader.repositories.minutes.count() for leader in (one, other)))
        await count_all(one)
        assert +ends_of(await counted(other)) == expected


@pytest.mark.thorough
async def test_an_error_between_two_writes_changes_nothing(resources: Resources, arm: Callable[[str], None]) -> None:
    at = begin_of_minute(datetime.now(UTC)) - timedelta(minutes=10)
    await store(resources, [an_execution(1, at, "done", at + MINUTE)])
    await resources.repositories.minutes.count()
    arm(f"{COUNT_POINT}:raise")
    await ask_again(resources)
    with pytest.raises(FailpointError):
        await count_all(resources)
    await count_all(resources)
    assert +ends_of(await counted(resources)) == {(at + MINUTE, "done"): 1}


async def test_minutes_without_a_leader_are_counted_later_and_old_ones_deleted(resources: Resources) -> None:
    now = begin_of_minute(datetime.now(UTC))
    counting = resources.repositories.minutes
    async with resources.database.writing() as connection:
        # The last leader counted two hours ago; items were counted since.
        rows = [{"minute": now - timedelta(hours=2), "created": 0}, {"minute": now - KEPT - DAY, "created": 3}]
        await connection.execute(insert(minutes), rows)
        await connection.execute(insert(minutes).values(minute=now - timedelta(hours=1), items_new=7))
    await store(resources, [an_execution(1, now - timedelta(hours=1), "done", now)])
    await count_all(resources)
    await counting.prune()
    rows_now = await counted(resources)
    assert (rows_now[now].done, rows_now[now - timedelta(hours=1)].items_new) == (1, 7)
    # Two hours, and the minutes that began during the test.
    begun = (begin_of_minute(datetime.now(UTC)) - now) // MINUTE
    assert 121 <= await count_of(resources, minutes) <= 121 + begun
    # One step of several minutes adds them up.
    report = await counting.read(24 * 7)
    assert (report.step_minutes, sum(row.done for row in report.rows)) == (30, 1)
    assert sum(row.items_new for row in report.rows) == 7
    assert report.counted_at is not None


async def test_the_longest_queue_of_a_minute_is_kept(resources: Resources) -> None:
    counter = MinuteCounter(resources.repositories.minutes, resources.events)
    for depth in (3, 9, 4):
        resources.events.emit(DepthMeasured({Priority.NORMAL: depth, Priority.LOW: 1}))
    await counter.step()
    # The pause after a step grows with its duration, so a second one may be too early.
    counter = MinuteCounter(resources.repositories.minutes, resources.events)
    resources.events.emit(DepthMeasured({Priority.NORMAL: 2}))
    await counter.step()
    assert max(row.queued for row in (await counted(resources)).values()) == 10


async def test_executions_are_found_by_their_ids(resources: Resources) -> None:
    """The history may have millions of rows."""
    at = begin_of_minute(datetime.now(UTC))
    await store(resources, [an_execution(n, at, "done", at) for n in range(10)])
    query = resources.repositories.minutes._query.params(first=floor_id(at), last=floor_id(at + MINUTE))
    compiled = query.compile(resources.database.engine, compile_kwargs={"literal_binds": True})
    plan = await plan_of(resources, str(compiled), ())
    assert "Seq Scan on executions" not in plan
    assert "SCAN executions\n" not in plan
    assert "pk_job_executions" in plan or "sqlite_autoindex_executions_1" in plan, plan


# ---- Days ----


async def keep(resources: Resources, stream: str, count: int, *, changes: int = 0, first: int = 0) -> None:
    """Store new items of a stream, and change some of them."""
    lease = await given_lease(resources, name=f"{stream}-{first}", stream=stream)
    for revision, number in ((1, count), (2, changes)):
        batch = tuple(Item(f"{first + n:05}", {"n": n, "revision": revision}) for n in range(number))
        if batch:
            await resources.keeping.keep(lease, Batch(batch, {"n": revision}))
    await settle(resources, lease, Done())


async def relay(resources: Resources) -> None:
    async def publish(_: Any) -> None:
        pass

    while await resources.keeping.relay(publish, limit=1000):
        pass


async def count_days(resources: Resources) -> None:
    while await resources.repositories.days.count():
        pass


async def days_of(resources: Resources) -> dict[str, tuple[int, int]]:
    """New and changed items by stream: all were stored today, or yesterday just before midnight."""
    found: dict[str, tuple[int, int]] = {}
    for row in await rows_of(resources, stream_days):
        new, changed = found.get(row["stream"], (0, 0))
        found[row["stream"]] = new + row["new"], changed + row["changed"]
    return found


async def test_items_count_on_the_day_and_in_the_minute_in_which_they_are_stored(resources: Resources) -> None:
    await count_days(resources)
    await keep(resources, "a", 5, changes=2)
    await keep(resources, "b", 3)
    await relay(resources)
    for _ in range(2):
        await count_days(resources)
    assert await days_of(resources) == {"a": (5, 2), "b": (3, 0)}
    today = datetime.now(UTC).date()
    days = await resources.repositories.days.page("a", since=today - DAY)
    assert sum(day.new for day in days) == 5
    assert {day.day for day in days} <= {today, today - DAY}
    assert await resources.repositories.days.page("a", until=today - 2 * DAY) == []
    rows = (await counted(resources)).values()
    assert (sum(row.items_new for row in rows), sum(row.items_changed for row in rows)) == (8, 2)


async def test_days_are_filled_from_items_whose_events_are_gone(resources: Resources) -> None:
    await keep(resources, "a", 5, changes=2)
    await keep(resources, "b", 3)
    await relay(resources)
    async with resources.database.writing() as connection:
        newest = select(func.max(outbox.c.position)).scalar_subquery()
        await connection.execute(delete(outbox).where(outbox.c.position < newest))
        stored = {"a": datetime(2026, 1, 31, 23, 59, 59, tzinfo=UTC), "b": datetime(2026, 2, 1, tzinfo=UTC)}
        for stream, at in stored.items():
            for table in ("items", "item_revisions"):
                changed = text(f"UPDATE {table} SET collected_at = :at WHERE stream = :stream")
                value = at if resources.database.dialect == "postgresql" else f"{at:%Y-%m-%d %H:%M:%S.%f}+00:00"
                await connection.execute(changed, {"at": value, "stream": stream})
    # Stored before the count begins, and not numbered yet: it is counted by its event.
    await keep(resources, "c", 4, changes=1)
    await count_days(resources)
    await keep(resources, "a", 2, first=10)
    await relay(resources)
    await count_days(resources)
    assert await days_of(resources) == {"a": (7, 2), "b": (3, 0), "c": (4, 1)}
    found = await resources.repositories.days.page("a", until=datetime(2026, 2, 1, tzinfo=UTC).date())
    assert [(f"{day.day}", day.new, day.changed) for day in found] == [("2026-01-31", 5, 2)]
    [row] = await rows_of(resources, consumers, name="days")
    assert row["state"] is None


async def test_counting_starts_again_if_events_after_its_position_are_gone(resources: Resources) -> None:
    await keep(resources, "a", 5)
    await relay(resources)
    await count_days(resources)
    await keep(resources, "b", 5)
    await relay(resources)
    async with resources.database.writing() as connection:
        newest = select(func.max(outbox.c.position)).scalar_subquery()
        await connection.execute(delete(outbox).where(outbox.c.position < newest))
    await count_days(resources)
    assert await days_of(resources) == {"a": (5, 0), "b": (5, 0)}


@pytest.mark.thorough
async def test_days_are_filled_in_portions_while_items_are_stored_and_two_leaders_count(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("floodmark.repositories.days._ITEMS_AT_ONCE", 7)
    monkeypatch.setattr("floodmark.repositories.days._EVENTS_AT_ONCE", 5)
    async with opened() as one, opened() as other:
        for number, stream in enumerate("abcd"):
            await keep(one, stream, 10 + number, changes=number)
        await relay(one)
        more = True
        for number in range(100):
            more = any(await asyncio.gather(one.repositories.days.count(), other.repositories.days.count()))
            if number < 6:
                await keep(one, "abcd"[number % 4], 3, changes=1, first=100 * (number + 1))
                await relay(one)
            elif not more:
                break
        assert not more
        assert await days_of(one) == {"a": (16, 2), "b": (17, 3), "c": (15, 3), "d": (16, 4)}


_COUNT = """
import asyncio, datetime, sys
from floodmark.settings import Settings
from floodmark.repositories import minutes
from floodmark.wiring.resources import open_resources

async def main():
    minutes._FIRST = datetime.timedelta(minutes=12)
    async with open_resources(Settings(database_url=sys.argv[1])) as resources:
        while await resources.repositories.days.count():
            pass
        while await resources.repositories.minutes.count():
            pass

asyncio.run(main())
"""


@pytest.mark.thorough
async def test_a_process_that_is_killed_while_it_counts_loses_and_doubles_nothing(
    sqlite: Opened, sqlite_copy: str
) -> None:
    """While it counts stored items, while it follows events, and while it counts executions."""
    run = [sys.executable, "-c", _COUNT, sqlite_copy]

    async def count(kill_at: int = 0) -> int:
        failing = {failpoints.VARIABLE: f"{COUNT_POINT}:kill@{kill_at}"} if kill_at else {}
        process = await asyncio.create_subprocess_exec(*run, env={**os.environ, **failing})
        return await process.wait()

    async with sqlite() as resources:
        await keep(resources, "a", 5, changes=2)
        await relay(resources)
        assert await count(kill_at=1) == -signal.SIGKILL
        await count_days(resources)
        await keep(resources, "b", 4)
        await relay(resources)
        assert await count(kill_at=1) == -signal.SIGKILL
        at = begin_of_minute(datetime.now(UTC)) - timedelta(minutes=10)
        await store(resources, [an_execution(1, at, "done", at + MINUTE)])
        assert await count(kill_at=2) == -signal.SIGKILL
        assert +ends_of(await counted(resources)) == {}
        assert await count() == 0
        assert await days_of(resources) == {"a": (5, 2), "b": (4, 0)}
        rows = await counted(resources)
        assert rows[at + MINUTE].done == 1
        # With the two that have stored the items.
        assert sum(ends_of(rows).values()) == 3
        assert sum(row.items_new for row in rows.values()) == 4
