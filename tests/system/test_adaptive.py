"""Adaptive jobs on every store: who is polled next, what a poll teaches, and that no budget is overdrawn."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace
from sqlalchemy import delete, func, insert, select, update

from floodmark.errors import Fenced, InvalidInput
from floodmark.model.batch import Batch, Item, Poll, Watermark
from floodmark.model.execution import Lease
from floodmark.model.job import DueJob
from floodmark.model.outcome import Done, Snooze
from floodmark.outbound.spending import RunBudget, spend_request
from floodmark.repositories.hints import Hints
from floodmark.rules.budgets import Terms
from floodmark.rules.freshness import decode_activity
from floodmark.rules.lessons import Known, next_run_of
from floodmark.rules.measures import decode_measures
from floodmark.rules.retries import Retries
from floodmark.scheduler.budgets import BudgetMeasurer
from floodmark.scheduler.scheduler import Scheduler, decide_adaptive
from floodmark.sinks.sql import SqlSink
from floodmark.sources.port import Context, Target
from floodmark.store.budget_rows import terms_of
from floodmark.store.port import Decision
from floodmark.store.tables import activity, budget_grants, budget_hours, budgets, job_executions, jobs
from floodmark.testing.eventually import eventually
from floodmark.testing.factories import Opened, expire, given_job, given_lease, rescue, rows_of, settle, take
from floodmark.wiring.resources import Resources
from floodmark.worker.executor import Executor, Interrupt
from floodmark.worker.polls import Polls
from floodmark.worker.worker import Worker

pytest_plugins = ("backends",)
pytestmark = pytest.mark.spec("B1", "T14")

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)


@pytest.fixture(params=["sqlite", "redis_on_postgres"])
def opened(request: pytest.FixtureRequest) -> Opened:
    found: Opened = request.getfixturevalue(request.param)
    return found


@pytest.fixture
async def resources(opened: Opened) -> AsyncIterator[Resources]:
    async with opened() as resources:
        yield resources


async def given_budget(resources: Resources, name: str = "news", requests: float = 60, **columns: Any) -> None:
    async with resources.database.writing() as connection:
        usual = {"name": name, "requests": requests, "interval_seconds": 60.6 / requests, "next_free": NOW}
        await connection.execute(insert(budgets).values(**{**usual, **columns}))


async def given_source(resources: Resources, name: str, *, budget: str | None = "news", **columns: Any) -> str:
    return await given_job(resources, name=name, schedule_type="adaptive", budget=budget, **columns)


async def change_job(resources: Resources, name: str, **values: Any) -> None:
    async with resources.database.writing() as connection:
        await connection.execute(update(jobs).where(jobs.c.name == name).values(**values))


async def change_budget(resources: Resources, **values: Any) -> None:
    async with resources.database.writing() as connection:
        await connection.execute(update(budgets).values(**values))


async def measure(resources: Resources) -> None:
    await BudgetMeasurer(resources.database, resources.clock, default_requests=60).step()


async def fire(resources: Resources) -> list[str]:
    """Let the leader take one step; returns the names of the jobs it fired, in order."""
    before = await count_fired(resources)
    await Scheduler(resources.firing, resources.queue, resources.events).step()
    query = select(job_executions.c.job_name).order_by(job_executions.c.execution_id).offset(before)
    return [row["job_name"] for row in await resources.database.fetch(query)]


async def hand_out(resources: Resources) -> list[str]:
    """Let the leader fire adaptive jobs; returns their names in its order."""
    names: list[str] = []

    def decide(terms: Terms, due: Sequence[DueJob], now: datetime) -> list[Decision]:
        names[:] = [job.name for job in due]
        return [decide_adaptive(job, terms, now) for job in due]

    await resources.firing.hand_out(decide, limit=100)
    return names


async def count_fired(resources: Resources) -> int:
    found: int = await resources.database.fetch_value(select(func.count()).select_from(job_executions))
    return found


async def free_places(resources: Resources, count: int) -> None:
    """Forget what was fired, and give the budget room for this number of runs."""
    async with resources.database.writing() as connection:
        await connection.execute(delete(budget_grants))
        await connection.execute(delete(job_executions))
        await connection.execute(update(budgets).values(interval_seconds=0.1999 / count))


async def in_order(resources: Resources, *names: str) -> None:
    """Plan these jobs, each an hour after the one before; the first one is due in an hour."""
    now = datetime.now(UTC)
    for number, name in enumerate(names, start=1):
        await change_job(resources, name, next_run=now + number * HOUR)


async def test_jobs_are_fired_in_order_also_before_they_are_due(resources: Resources) -> None:
    """No request is left unused: the first in line runs although it is due in an hour."""
    await given_budget(resources)
    for name in ("c", "a", "d", "b"):
        await given_source(resources, name)
    await measure(resources)
    await fire(resources)
    await free_places(resources, 2)
    await in_order(resources, "a", "b", "c", "d")

    assert await hand_out(resources) == ["a", "b", "c"]


async def test_as_many_are_fired_as_requests_are_free(resources: Resources) -> None:
    """With one request every ten seconds, one job of five is fired, and no other before it has asked for it."""
    await given_budget(resources, requests=6)
    for number in range(5):
        await given_source(resources, f"source-{number}")
    await measure(resources)

    assert len(await fire(resources)) == 1
    assert await fire(resources) == []
    [lease] = await take(resources)
    spent = await resources.spending.spend("news", lease.execution_id, patience=HOUR)
    assert spent is not None
    assert spent.seconds < 1
    # The next one is free in ten seconds.
    assert await fire(resources) == []


@pytest.mark.spec("B3")
async def test_a_hinted_job_is_fired_first_and_once(resources: Resources) -> None:
    await given_budget(resources)
    ids = [await given_source(resources, name) for name in ("a", "b", "c")]
    await measure(resources)
    await fire(resources)
    await free_places(resources, 1)
    await in_order(resources, "a", "b", "c")

    hints = Hints(resources.database, resources.clock)
    assert await hints.give_jobs([ids[2]]) == 1
    assert await hints.give_jobs([ids[2]]) == 0
    assert await hand_out(resources) == ["c", "a"]
    rows = await rows_of(resources, jobs)
    assert [row["hinted_at"] for row in rows if row["name"] == "c"] == [None]


@pytest.mark.spec("B3")
async def test_a_hint_during_a_run_is_kept_for_another_run(resources: Resources) -> None:
    """The post may have come after the page was read."""
    await given_budget(resources)
    job_id = await given_source(resources, "a")
    await measure(resources)
    assert await fire(resources) == ["a"]
    [lease] = await take(resources)
    await Hints(resources.database, resources.clock).give_jobs([job_id])
    await resources.spending.spend("news", lease.execution_id, patience=HOUR)
    await free_grants(resources)

    assert await fire(resources) == []
    assert await settle(resources, lease, Done())
    assert await fire(resources) == ["a"]


async def free_grants(resources: Resources) -> None:
    async with resources.database.writing() as connection:
        await connection.execute(delete(budget_grants))
        await connection.execute(update(budgets).values(next_free=NOW))


async def test_a_job_that_is_running_or_paused_is_not_fired(resources: Resources) -> None:
    await given_budget(resources)
    await given_source(resources, "running")
    await given_source(resources, "paused", paused=True)
    await measure(resources)
    assert await fire(resources) == ["running"]
    await free_grants(resources)
    assert await fire(resources) == []


async def test_a_job_without_a_budget_gets_the_default_one(resources: Resources) -> None:
    """As written with SQL: its author need not know of budgets."""
    await given_source(resources, "a", budget=None)
    await fire(resources)
    await measure(resources)
    assert await fire(resources) == ["a"]
    [budget] = await rows_of(resources, budgets)
    assert (budget["name"], budget["requests"], budget["sources"]) == ("default", 60, 1)


async def test_a_job_with_an_unknown_budget_is_invalid_until_there_is_one(resources: Resources) -> None:
    await given_source(resources, "a", budget="nwes")
    await fire(resources)
    await measure(resources)
    [job] = await rows_of(resources, jobs)
    assert job["invalid_reason"] == ("there is no budget 'nwes'. Create it: floodmark budgets set nwes --per-minute 60")

    await given_budget(resources, "nwes")
    await measure(resources)
    assert await fire(resources) == ["a"]


@pytest.mark.spec("B2")
async def test_requests_of_all_processes_are_spread_evenly(opened: Opened) -> None:
    """Two processes ask at once: every request has its own place, one interval after the one before."""
    async with opened() as one, opened() as other:
        await given_budget(one, requests=606)
        began = time.time()
        asked = [process.spending.spend("news", "x", patience=HOUR) for process in (one, other) for _ in range(15)]
        places = sorted([time.time() - began + spent.seconds for spent in await asyncio.gather(*asked) if spent])
        assert len(places) == 30
        last: datetime = await one.database.fetch_value(select(budgets.c.next_free))
        # Whatever the answers took: thirty places of a tenth of a second each.
        assert (last - datetime.fromtimestamp(began, UTC)).total_seconds() >= 2.99
        [hours] = [row["requests"] for row in await rows_of(one, budget_hours)]
        assert hours == 30


@pytest.mark.spec("B2")
async def test_a_request_that_is_far_away_is_refused_and_takes_no_place(resources: Resources) -> None:
    await given_budget(resources, requests=1, next_free=datetime.now(UTC) + HOUR)
    before = await resources.database.fetch_value(select(budgets.c.next_free))
    spent = await resources.spending.spend("news", "x", patience=timedelta(seconds=2))
    assert spent is not None
    assert spent.is_refused
    assert 3500 < spent.seconds <= 3600
    assert await resources.database.fetch_value(select(budgets.c.next_free)) == before
    assert await resources.spending.spend("no such budget", "x", patience=HOUR) is None


@pytest.mark.spec("B2")
async def test_a_run_spends_one_request_for_each_that_leaves(resources: Resources) -> None:
    """The place that a run took at its start is that of its first request."""
    await given_budget(resources, requests=60_000)
    run = RunBudget(resources.spending, "news", "x")
    await spend_request()
    assert await rows_of(resources, budget_hours) == []
    await run.begin()
    for _ in range(3):
        await spend_request()
    run.end()
    await spend_request()
    assert 3 <= run.count_new() <= 4
    with pytest.raises(InvalidInput, match="there is no budget 'gone'"):
        await RunBudget(resources.spending, "gone", "x").begin()


async def keep(resources: Resources, lease: Lease, *items: Item, at: datetime = NOW, **more: Any) -> None:
    batch = Batch(items, {"at": at.isoformat()} if items else None, poll=Poll(at, 1), **more)
    await SqlSink(resources.keeping, resources.events).keep(lease, batch)


async def given_poll(resources: Resources, **columns: Any) -> Lease:
    """A run of an adaptive job that is about to keep what it found."""
    await given_budget(resources, sources=10, price=1000.0)
    return await given_lease(resources, schedule_type="adaptive", budget="news", **columns)


async def learned(resources: Resources) -> Any:
    [row] = await rows_of(resources, activity)
    return decode_activity(row["learned"])


def posts(*ages: timedelta, before: datetime = NOW) -> list[Item]:
    return [Item(str((before - age).timestamp()), 1, before - age) for age in sorted(ages, reverse=True)]


async def test_new_items_teach_and_set_the_next_run(resources: Resources) -> None:
    lease = await given_poll(resources)
    await keep(resources, lease, *posts(*(n * HOUR for n in range(1, 25))))
    first = await learned(resources)
    # The oldest one only marks the beginning.
    assert first.items == pytest.approx(23, rel=0.05)
    assert first.seconds == pytest.approx(24 * 3600, rel=0.05)
    [job] = await rows_of(resources, jobs)
    assert NOW < job["next_run"] < NOW + DAY


async def test_a_lesson_is_learned_once_however_often_the_batch_is_kept(resources: Resources) -> None:
    """A worker that is killed after the commit keeps the same items again: they are not new."""
    lease = await given_poll(resources)
    items = posts(*(n * HOUR for n in range(1, 25)))
    await keep(resources, lease, *items)
    once = await learned(resources)
    await keep(resources, lease, *items)
    assert await learned(resources) == once
    await keep(resources, lease, *items, at=NOW + HOUR)
    again = await learned(resources)
    assert again.items < once.items
    assert again.until == (NOW + HOUR).timestamp()


@pytest.mark.spec("G1")
async def test_a_refused_batch_teaches_nothing(resources: Resources) -> None:
    """The lease has passed to another worker: neither items nor lessons of the first one are stored."""
    lease = await given_poll(resources)
    await expire(resources, lease)
    assert await rescue(resources)
    assert await take(resources, worker="b")
    for items in (posts(HOUR), []):
        with pytest.raises(Fenced):
            await keep(resources, lease, *items)
    assert await rows_of(resources, activity) == []


async def test_an_empty_poll_teaches_that_nothing_came(resources: Resources) -> None:
    lease = await given_poll(resources)
    await keep(resources, lease, *posts(*(n * HOUR for n in range(1, 25))))
    busy, [job] = await learned(resources), await rows_of(resources, jobs)
    await keep(resources, lease, at=NOW + 6 * HOUR)
    quiet, [later] = await learned(resources), await rows_of(resources, jobs)
    assert quiet.seconds > busy.seconds
    assert quiet.items < busy.items
    assert later["next_run"] > job["next_run"]
    [row] = await rows_of(resources, activity)
    measures = decode_measures(row["measured"])
    assert measures is not None
    assert measures.polls == pytest.approx(2, rel=0.1)
    assert measures.expected > 1
    assert measures.found == 0


async def test_edits_and_backfills_teach_nothing_new(resources: Resources) -> None:
    lease = await given_poll(resources)
    items = posts(*(n * HOUR for n in range(1, 25)))
    await keep(resources, lease, *items)
    before = await learned(resources)
    edited = [replace(item, data="edited") for item in items]
    await keep(resources, lease, *edited, at=NOW + timedelta(seconds=1))
    await keep(resources, lease, *posts(40 * DAY, 41 * DAY), at=NOW + timedelta(seconds=2), is_backfill=True)
    after = await learned(resources)
    assert after.is_dated
    assert after.items == pytest.approx(before.items, rel=1e-3)


async def test_pages_without_times_teach_by_their_changes(resources: Resources) -> None:
    lease = await given_poll(resources)
    await keep(resources, lease, Item("page", "one"))
    for hour in range(1, 25):
        # It changes every third hour, in the second of two batches of a poll.
        at = NOW + hour * HOUR
        await keep(resources, lease, at=at)
        await keep(resources, lease, Item("page", f"text {hour // 3}"), at=at)
    known = await learned(resources)
    assert not known.is_dated
    assert known.items / known.seconds * 3600 == pytest.approx(1 / 3, rel=0.4)
    [job] = await rows_of(resources, jobs)
    assert job["next_run"] > NOW + DAY


@pytest.mark.spec("B3")
async def test_changes_with_times_teach_as_new_items_do(resources: Resources) -> None:
    """Pages whose sitemap says when they were changed; a page without such a time teaches by its change."""
    lease = await given_poll(resources)
    await keep(resources, lease, Item("page", "one"), Item("other", "one"), has_times_of_change=True)
    assert not (await learned(resources)).is_dated
    for hour in range(1, 25):
        at = NOW + hour * HOUR
        changed = Item("page", f"text {hour}", at - HOUR / 4)
        for _ in range(2):
            await keep(resources, lease, changed, at=at, has_times_of_change=True)
    dated = await learned(resources)
    assert dated.is_dated
    assert dated.items / dated.seconds * 3600 == pytest.approx(1, rel=0.2), "once, however often it is kept"
    await keep(resources, lease, Item("other", "two"), at=NOW + 26 * HOUR, has_times_of_change=True)
    assert not (await learned(resources)).is_dated


async def test_a_job_keeps_what_it_learned_when_its_schedule_changes(resources: Resources) -> None:
    lease = await given_poll(resources)
    await keep(resources, lease, *posts(HOUR, 2 * HOUR))
    before = await learned(resources)
    await change_job(resources, lease.job.name, schedule_type="interval", interval_seconds=60)
    assert await learned(resources) == before
    await change_job(resources, lease.job.name, schedule_type="adaptive")
    await keep(resources, lease, at=NOW + HOUR)
    assert (await learned(resources)).until == (NOW + HOUR).timestamp()
    [job] = await rows_of(resources, jobs)
    # Its schedule was changed: the scheduler plans it anew, not the run that was under way.
    assert job["next_run"] is None


async def test_a_longest_delay_is_kept(resources: Resources) -> None:
    lease = await given_poll(resources, max_delay_seconds=600.0)
    await keep(resources, lease)
    [job] = await rows_of(resources, jobs)
    assert job["next_run"] <= NOW + timedelta(seconds=600)


@pytest.mark.spec("B2")
async def test_prices_follow_the_number_of_sources(resources: Resources) -> None:
    """Twice as many sources for the same requests: each request must find four times as much delay."""
    lease = await given_poll(resources)
    await given_source(resources, "second")
    await keep(resources, lease, *posts(*(n * HOUR for n in range(1, 25))))
    # Old enough to keep the price that it has found.
    await change_budget(resources, price=None, created_at=NOW - DAY)
    await measure(resources)
    first = await resources.database.fetch_value(select(budgets.c.price))
    assert first > 0
    for number in range(2):
        await given_source(resources, f"more-{number}")
    await measure(resources)
    assert await resources.database.fetch_value(select(budgets.c.price)) == pytest.approx(4 * first)


async def test_the_scheduler_is_woken_when_a_budget_gets_its_first_job(resources: Resources) -> None:
    """Without sources nothing is due: it would sleep until its next check, a minute later."""
    woken: list[bool] = []
    measurer = BudgetMeasurer(
        resources.database, resources.clock, default_requests=60, notify=lambda: woken.append(True)
    )
    await given_budget(resources)
    await measurer.step()
    await given_source(resources, "a")
    measurer._measured_at = 0.0
    await measurer.step()
    assert woken
    woken.clear()
    measurer._measured_at = 0.0
    await measurer.step()
    assert not woken


@pytest.mark.spec("B2")
async def test_a_weekly_budget_that_is_used_up_waits(resources: Resources) -> None:
    await given_budget(resources, requests=1000, period="week", interval_seconds=604.8)
    await given_source(resources, "a")
    await measure(resources)
    usual = await resources.database.fetch_value(select(budgets.c.interval_seconds))
    assert usual == pytest.approx(604.8, rel=0.05)
    async with resources.database.writing() as connection:
        hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - HOUR
        await connection.execute(insert(budget_hours).values(budget="news", hour=hour, requests=1000))
    await measure(resources)
    assert await resources.database.fetch_value(select(budgets.c.interval_seconds)) == 3600


class Site:
    """A source whose targets post at their own pace, and that notes each poll."""

    kind = "test"

    def __init__(self, every: Mapping[str, float]) -> None:
        self.every, self.began, self.polls = every, time.time(), list[tuple[str, float]]()

    def check(self, target: str, params: Mapping[str, Any]) -> None:
        """Everything goes."""

    async def collect(self, target: Target, since: Watermark | None, context: Context) -> AsyncIterator[Batch]:
        now = time.time()
        self.polls.append((target.name, now))
        posted = int((now - self.began) / self.every[target.name])
        first = 0 if since is None else since["posted"]
        items = [
            Item(str(n), n, datetime.fromtimestamp(self.began + n * self.every[target.name], UTC))
            for n in range(first, posted)
        ]
        if items:
            yield Batch(items, {"posted": posted})


@asynccontextmanager
async def fleet(resources: Resources, site: Site, workers: int) -> AsyncIterator[None]:
    """A leader and some workers in this process."""
    scheduler = Scheduler(resources.firing, resources.queue, resources.events)
    budget_measurer = BudgetMeasurer(resources.database, resources.clock, default_requests=60)

    stopping = asyncio.Event()

    async def lead() -> None:
        while not stopping.is_set():
            await budget_measurer.step()
            rest = await scheduler.step()
            await asyncio.sleep(min(0.5, 0.05 if rest is None else rest.total_seconds()))

    sink = SqlSink(resources.keeping, resources.events)
    retries = Retries(base=timedelta(seconds=1), longest=timedelta(seconds=1), chance=Random(1))
    polls = Polls(resources.spending, resources.clock, resources.events)
    executor = Executor({"test": site}, sink, retries, asyncio.Event(), polls)
    crew = [
        Worker(resources.queue, executor, resources.events, name=f"w{n}", slots=4, batch=4, ttl=timedelta(seconds=60))
        for n in range(workers)
    ]
    async with asyncio.TaskGroup() as tasks:
        for working in (lead(), *(worker.run() for worker in crew)):
            tasks.create_task(working)
        try:
            yield
        finally:
            stopping.set()
            for worker in crew:
                worker.stop()


async def planned_waits(resources: Resources) -> dict[str, float]:
    """The seconds from the last poll of each source to the next, if a request is free then."""
    await measure(resources)
    [budget] = await rows_of(resources, budgets)
    terms, names = terms_of(budget, sources=6), {row["job_id"]: row["name"] for row in await rows_of(resources, jobs)}
    waits = {}
    for row in await rows_of(resources, activity):
        learned = decode_activity(row["learned"])
        assert learned is not None
        next_run = next_run_of(learned, Known(learned=None, measured=None, terms=terms))
        waits[names[row["job_id"]]] = next_run.timestamp() - learned.until
    return waits


@pytest.mark.spec("B2")
@pytest.mark.thorough
async def test_busy_sources_are_polled_more_often_within_the_budget(resources: Resources) -> None:
    """Thirty requests a second for six sources, of which two post all the time; two workers."""
    every = {"busy-1": 0.05, "busy-2": 0.05, **{f"quiet-{n}": 20.0 for n in range(4)}}
    site = Site(every)
    await given_budget(resources, requests=1800)
    for name in every:
        await given_source(resources, name)
    async with fleet(resources, site, workers=2):
        await eventually(lambda: len(site.polls) >= 120, within=120)
    times = sorted(at for _, at in site.polls)
    # Any sixty polls in a row take at least 59 intervals, but for the half second that one may be late.
    interval = 60.6 / 1800
    assert min(later - earlier for earlier, later in zip(times, times[59:], strict=False)) > 59 * interval - 0.5
    waits = await planned_waits(resources)
    assert max(waits["busy-1"], waits["busy-2"]) < min(waits[f"quiet-{n}"] for n in range(4))
    assert {name for name, _ in site.polls} == set(every)


@pytest.mark.spec("B2")
async def test_a_run_without_a_free_request_waits_and_costs_no_attempt(resources: Resources) -> None:
    """As after a restart: more runs than the budget allows are leased at once."""
    lease = await given_poll(resources)
    await change_budget(resources, next_free=datetime.now(UTC) + HOUR)
    site = Site({lease.job.target: 1.0})
    retries = Retries(base=timedelta(seconds=1), longest=timedelta(seconds=1), chance=Random(1))
    polls = Polls(resources.spending, resources.clock, resources.events)
    sink = SqlSink(resources.keeping, resources.events)
    outcome = await Executor({"test": site}, sink, retries, asyncio.Event(), polls).execute(lease, Interrupt())
    assert isinstance(outcome, Snooze)
    assert outcome.reason == "the budget news is used up"
    assert site.polls == []
