"""Budgets as people set them, and the jobs that use them, on both databases."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import insert, select, update

from floodmark.errors import Conflict, InvalidInput, NotFound
from floodmark.model.clock import SystemClock
from floodmark.model.job import ScheduleType, When
from floodmark.repositories.budgets import Budgets
from floodmark.repositories.jobs import Jobs
from floodmark.store.tables import activity, budget_hours
from floodmark.store.tables import budgets as table
from floodmark.triggers.parsing import when_of
from system.stores import AnyDatabase, a_spec

pytestmark = pytest.mark.every_database

ADAPTIVE = when_of(adaptive=True)
HOURLY = when_of(every="1h")


@pytest.fixture
def budgets(database: AnyDatabase) -> Budgets:
    return Budgets(database, SystemClock(), default_per_minute=12)


@pytest.fixture
def jobs(database: AnyDatabase, budgets: Budgets) -> Jobs:
    return Jobs(database, SystemClock(), budgets)


async def stored(database: AnyDatabase, name: str) -> dict[str, Any]:
    async with database.reading() as connection:
        return dict((await connection.execute(select(table).where(table.c.name == name))).mappings().one())


@pytest.mark.spec("B2")
async def test_a_budget_is_created_changed_listed_and_removed(database: AnyDatabase, budgets: Budgets) -> None:
    made = await budgets.put("news", requests=30, max_delay=timedelta(hours=1))
    assert (made.requests, made.period, made.max_delay_seconds, made.fairness) == (30, "minute", 3600, 0.25)
    assert (made.version, made.sources, made.price, made.used_this_hour) == (1, 0, None, 0)
    assert (await stored(database, "news"))["interval_seconds"] == pytest.approx(60.6 / 30)
    assert await budgets.put("news", requests=30, max_delay=timedelta(hours=1)) == made

    weekly = await budgets.put("news", requests=5000, period="week", fairness=0)
    assert (weekly.requests, weekly.period, weekly.max_delay_seconds, weekly.version) == (5000, "week", None, 2)
    assert (await stored(database, "news"))["interval_seconds"] == pytest.approx(604_800 / 5000, rel=1e-5)

    await budgets.put("alarms", requests=0.5)
    assert [row.name for row in await budgets.page()] == ["alarms", "news"]
    assert [row.name for row in await budgets.page(after="alarms", limit=1)] == ["news"]
    assert await budgets.remove("news") == weekly
    with pytest.raises(NotFound) as unknown:
        await budgets.show("news")
    assert unknown.value.hint == "there are: alarms"


@pytest.mark.spec("B2", "G9")
@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"requests": 0}, "0 is not a number of requests"),
        ({"requests": 5e-324}, "is not a number of requests"),
        ({"requests": -1}, "-1 is not a number of requests"),
        ({"requests": float("nan")}, "nan is not a number of requests"),
        ({"requests": 1_000_001}, "number of requests"),
        ({"period": "day"}, "'day' is not a period"),
        ({"max_delay": timedelta()}, "max_delay_seconds is out of range"),
        ({"fairness": 1.5}, "1.5 is not a fairness"),
        ({"fairness": float("nan")}, "nan is not a fairness"),
        ({"name": "a/b"}, "'a/b' is not a name of a budget"),
        ({"name": ""}, "'' is not a name of a budget"),
    ],
)
async def test_a_bad_budget_is_refused(budgets: Budgets, changes: dict[str, Any], says: str) -> None:
    given = {"name": "news", "requests": 30, **changes}
    with pytest.raises(InvalidInput) as refused:
        await budgets.put(given.pop("name"), **given)
    assert says in str(refused.value)
    assert refused.value.hint
    assert await budgets.page() == []


@pytest.mark.spec("B2", "T14")
async def test_a_change_never_gives_a_request_twice(database: AnyDatabase, budgets: Budgets) -> None:
    """A faster budget waits one of its own intervals after the last request, a slower one keeps its place."""
    await budgets.put("news", requests=1, period="week")
    before = SystemClock().now()
    async with database.writing() as connection:
        await connection.execute(update(table).values(next_free=before + timedelta(days=7)))

    faster = await budgets.put("news", requests=60)
    assert timedelta(seconds=0.9) < faster.next_free - before < timedelta(seconds=120)

    slower = await budgets.put("news", requests=6)
    assert slower.next_free == faster.next_free


@pytest.mark.spec("B2", "T14")
async def test_a_change_keeps_places_that_are_taken(database: AnyDatabase, budgets: Budgets) -> None:
    """Ten requests wait for their turns in the next minutes: the eleventh comes after them."""
    await budgets.put("news", requests=6)
    taken = SystemClock().now() + timedelta(seconds=10 * 10.1)
    async with database.writing() as connection:
        await connection.execute(update(table).values(next_free=taken))
    after = await budgets.put("news", requests=60)
    assert after.next_free - taken == timedelta(seconds=1.01 - 10.1)


async def test_the_use_of_a_budget_is_shown(database: AnyDatabase, budgets: Budgets) -> None:
    await budgets.put("news", requests=30)
    now = SystemClock().now().replace(minute=0, second=0, microsecond=0)
    ages = {timedelta(): 7, timedelta(hours=5): 20, timedelta(days=8): 100}
    rows = [{"budget": "news", "hour": now - age, "requests": used} for age, used in ages.items()]
    async with database.writing() as connection:
        await connection.execute(insert(budget_hours), rows)
    shown = await budgets.show("news")
    assert (shown.used_this_hour, shown.used_this_week) in ((7, 27), (0, 27))  # the hour may just have ended


@pytest.mark.spec("B1", "T14")
async def test_an_adaptive_job_gets_the_default_budget(jobs: Jobs, budgets: Budgets) -> None:
    assert await budgets.find("default") is None
    job = await jobs.add(a_spec(when=ADAPTIVE, name="news"))
    assert (job.when.schedule_type, job.budget, job.max_delay, job.weight) == (
        ScheduleType.ADAPTIVE,
        "default",
        None,
        1,
    )
    assert (await budgets.show("default")).requests == 12
    await budgets.put("default", requests=20)
    await jobs.add(a_spec("two", when=ADAPTIVE))
    assert (await budgets.show("default")).requests == 20

    cleared = await jobs.update(job, {"budget": None})
    assert cleared.budget == "default"
    declared = await jobs.declare(a_spec("three", name="three", when=ADAPTIVE))
    assert declared.job.budget == "default"
    assert (await jobs.add(a_spec("four"))).budget is None


@pytest.mark.spec("B1", "B2", "G9")
async def test_an_unknown_budget_is_refused(jobs: Jobs, budgets: Budgets) -> None:
    with pytest.raises(InvalidInput) as refused:
        await jobs.add(a_spec(name="news", when=ADAPTIVE, budget="news"))
    assert str(refused.value) == "there is no budget 'news'"
    assert refused.value.hint == "create it: floodmark budgets set news --per-minute 30"
    with pytest.raises(InvalidInput, match="there is no budget 'news'"):
        await jobs.declare_all([a_spec("a", name="a"), a_spec("b", name="b", budget="news")])
    assert await jobs.find() == []

    job = await jobs.add(a_spec(name="news"))
    with pytest.raises(InvalidInput, match="there is no budget 'news'"):
        await jobs.update(job, {"budget": "news"})
    assert await jobs.get("news") == job
    await budgets.put("news", requests=30)
    assert (await jobs.update(job, {"budget": "news", "weight": 2})).weight == 2


@pytest.mark.spec("B2")
async def test_a_budget_in_use_is_not_removed(jobs: Jobs, budgets: Budgets) -> None:
    await budgets.put("news", requests=30)
    for number in range(7):
        await jobs.add(a_spec(name=f"job-{number}", budget="news"))
    with pytest.raises(Conflict) as refused:
        await budgets.remove("news")
    assert str(refused.value) == "the budget news is used by job-0, job-1, job-2, job-3, job-4, ..."
    assert "floodmark edit job-0 --budget NAME" in refused.value.hint
    assert (await budgets.show("news")).requests == 30


@pytest.mark.spec("B2")
async def test_no_job_keeps_a_budget_that_was_removed_at_the_same_time(jobs: Jobs, budgets: Budgets) -> None:
    for number in range(10):
        name = f"budget-{number}"
        await budgets.put(name, requests=30)
        adding = jobs.add(a_spec(name=f"job-{number}", budget=name))
        added, removed = await asyncio.gather(adding, budgets.remove(name), return_exceptions=True)
        assert isinstance(added, InvalidInput) != isinstance(removed, Conflict), (added, removed)


_SCHEDULES = st.lists(st.sampled_from([ADAPTIVE, HOURLY, when_of(cron="0 6 * * *")]), min_size=1, max_size=6)


@pytest.mark.spec("B1", "T14")
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(schedules=_SCHEDULES)
@pytest.mark.thorough
async def test_a_job_keeps_what_was_learned_whatever_its_schedule(
    database: AnyDatabase, jobs: Jobs, schedules: list[When]
) -> None:
    job = await jobs.add(a_spec(when=ADAPTIVE))
    learned = {"job_id": job.job_id, "learned": b"what is known", "polled_at": SystemClock().now()}
    async with database.writing() as connection:
        await connection.execute(insert(activity).values(learned))
    for when in schedules:
        job = await jobs.update(job, {name: getattr(when, name) for name in When.__struct_fields__})
        is_adaptive = when.schedule_type is ScheduleType.ADAPTIVE
        assert (job.when, job.budget) == (when, "default" if is_adaptive else None)
    async with database.reading() as connection:
        query = select(activity.c.learned).where(activity.c.job_id == job.job_id)
        assert (await connection.execute(query)).scalar_one() == b"what is known"


@pytest.mark.spec("B1")
async def test_a_budget_that_was_chosen_stays_when_a_job_is_no_longer_adaptive(jobs: Jobs, budgets: Budgets) -> None:
    await budgets.put("news", requests=30)
    job = await jobs.add(a_spec(when=ADAPTIVE, budget="news", max_delay=timedelta(hours=2), weight=3))
    back = await jobs.update(job, {"schedule_type": "interval", "interval_seconds": 60})
    assert (back.budget, back.max_delay, back.weight) == ("news", timedelta(hours=2), 3)
