"""How late items are stored, as people read it: `explain`, the report, the command and the API."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert, update

from command_line import CommandLine
from floodmark.errors import InvalidInput, NotFound
from floodmark.model.audit import Actor
from floodmark.model.batch import Batch, Item, Poll, PollResult
from floodmark.model.outcome import Done
from floodmark.operations.local import LocalOperations
from floodmark.operations.views import Views
from floodmark.rules.explain import explain
from floodmark.rules.measures import Measures, encode_measures, record
from floodmark.runtime.scheduler_role import SchedulerRole
from floodmark.sinks.sql import SqlSink
from floodmark.store.tables import activity, budget_hours, budgets, jobs
from floodmark.testing.factories import Opened, given_job, given_lease, settle
from floodmark.wiring.resources import Resources

pytest_plugins = ("backends",)
pytestmark = pytest.mark.spec("B4", "T14")

HOUR = timedelta(hours=1)


@pytest.fixture(params=["sqlite", "redis_on_postgres"])
def opened(request: pytest.FixtureRequest) -> Opened:
    found: Opened = request.getfixturevalue(request.param)
    return found


@pytest.fixture
async def resources(opened: Opened) -> AsyncIterator[Resources]:
    async with opened() as resources:
        yield resources


@pytest.fixture
def operations(resources: Resources) -> LocalOperations:
    return LocalOperations(resources, Actor(who="ada", via="cli"))


async def given_budget(resources: Resources, name: str = "news", **columns: Any) -> None:
    now = datetime.now(UTC)
    usual = {"name": name, "requests": 60, "interval_seconds": 1.01, "price": 1000.0, "sources": 3, "next_free": now}
    async with resources.database.writing() as connection:
        await connection.execute(insert(budgets).values(**{**usual, "created_at": now - 100 * HOUR, **columns}))
        hour = now.replace(minute=0, second=0, microsecond=0)
        rows = [{"budget": name, "hour": hour - n * HOUR, "requests": 100} for n in (0, 3, 30)]
        await connection.execute(insert(budget_hours).values(rows))


async def given_source(resources: Resources, name: str, *delays: float, is_polled: bool = True, **more: Any) -> None:
    """An adaptive job that was polled an hour ago and now, and found items with these delays."""
    now = datetime.now(UTC)
    columns = {"schedule_type": "adaptive", "budget": "news", "next_run": now + HOUR, **more}
    job_id = await given_job(resources, name=name, **columns)
    if is_polled:
        first = Measures((now - HOUR).timestamp(), polls=1, requests=1)
        result = PollResult(found=len(delays), expected=2.5, delays=delays)
        known = encode_measures(record(first, result, now=now.timestamp(), requests=2, polls=1))
        async with resources.database.writing() as connection:
            await connection.execute(insert(activity).values(job_id=job_id, measured=known, polled_at=now))


async def test_a_poll_is_explained_and_reported(resources: Resources, operations: LocalOperations) -> None:
    """Two polls of a source that posts every hour, stored as a worker stores them."""
    await given_budget(resources)
    lease = await given_lease(resources, name="harbour", source="telegram", schedule_type="adaptive", budget="news")
    views, job = Views(resources.database, resources.clock), await resources.repositories.jobs.get("harbour")
    never = await views.load(job, leader="host-1")
    assert never.poll is not None
    assert (never.poll.items, never.poll.polled_at) == (None, None)

    sink, now = SqlSink(resources.keeping, resources.events), datetime.now(UTC)
    for at in (now - 2 * HOUR, now - HOUR):
        items = [Item(str(n), n, at - n * HOUR) for n in range(24, 0, -1)]
        fresh = [Item(f"{at}", 1, at - timedelta(minutes=10))]
        await sink.keep(lease, Batch([*items, *fresh], {"at": at.isoformat()}, poll=Poll(at, 3)))
    job = await resources.repositories.jobs.get("harbour")
    view = await views.load(job, leader="host-1")
    assert view.poll is not None
    assert view.poll.items == pytest.approx(1, abs=0.6)
    assert "why now: about" in explain(view).sentence
    await settle(resources, lease, Done())
    async with resources.database.writing() as connection:
        await connection.execute(update(jobs).values(next_run=now + 3 * HOUR))
    waiting = explain(await views.load(await resources.repositories.jobs.get("harbour"), leader="host-1"))
    assert waiting.code == "not_due"
    assert "new posts expected, 1 h since the last look, due in 2 h" in waiting.sentence

    report = await operations.freshness()
    [source] = report.sources
    assert (source.name, source.source, source.budget) == ("harbour", "telegram", "news")
    # The first poll teaches, but says nothing about delays. The item of the second one is an hour and ten minutes old.
    assert source.found == pytest.approx(1, rel=0.01)
    assert source.mean_delay_seconds == pytest.approx(70 * 60, rel=0.1)
    assert source.requests == pytest.approx(6, rel=0.02)
    assert source.interval_seconds == pytest.approx(3600, rel=0.01)
    [budget] = report.budgets
    assert budget.uniform_delay_seconds == pytest.approx(1800, rel=0.01)
    assert budget.gain == pytest.approx(1800 / (70 * 60), rel=0.1)


async def test_the_slowest_sources_come_first_page_by_page(resources: Resources, operations: LocalOperations) -> None:
    await given_budget(resources)
    await given_budget(resources, "other", requests=5000, period="week")
    await given_source(resources, "new", is_polled=False)
    await given_source(resources, "silent")
    await given_source(resources, "quick", 1.0, 2.0)
    await given_source(resources, "slow", 1.0, 9000.0)
    await given_source(resources, "elsewhere", 60.0, budget="other")
    await given_source(resources, "paused", 99999.0, paused=True)
    await given_source(resources, "by the clock", 99999.0, schedule_type="interval", interval_seconds=60.0)
    names, cursor = [], None
    while True:
        report = await operations.freshness(limit=2, cursor=cursor)
        names += [source.name for source in report.sources]
        assert [budget.name for budget in report.budgets] == ["news", "other"]
        if (cursor := report.next) is None:
            break
    assert names == ["slow", "elsewhere", "quick", "silent", "new"]

    report = await operations.freshness(budget="news")
    assert [source.name for source in report.sources] == ["slow", "quick", "silent", "new"]
    assert [source.last_poll is None for source in report.sources] == [False, False, False, True]
    [news] = report.budgets
    assert (news.sources, news.never_polled) == (4, 1)
    # In the last day: the hour of 30 hours ago is older.
    assert news.used == 200
    assert 23 * 3500 / 1.01 < news.allowed <= 24 * 3600 / 1.01
    [other] = (await operations.freshness(budget="other")).budgets
    assert other.used == 300
    with pytest.raises(NotFound, match="there is no budget 'nwes'"):
        await operations.freshness(budget="nwes")
    with pytest.raises(InvalidInput, match="is not a cursor"):
        await operations.freshness(cursor="x")


async def test_more_sources_than_are_read_at_once_are_all_counted(sqlite: Opened) -> None:
    async with sqlite() as resources:
        await given_budget(resources)
        row = {"source": "python", "target": "t", "schedule_type": "adaptive", "budget": "news"}
        async with resources.database.writing() as connection:
            values = [{**row, "job_id": f"{n:032}", "name": f"job-{n}"} for n in range(1200)]
            await connection.execute(insert(jobs), values)
        await given_source(resources, "slow", 500.0)
        report = await LocalOperations(resources, Actor(who="ada", via="cli")).freshness(limit=2)
        assert [source.name for source in report.sources] == ["slow", "job-0"]
        assert (report.budgets[0].sources, report.budgets[0].never_polled) == (1201, 1200)


async def test_the_leader_exports_its_budgets(resources: Resources) -> None:
    await given_budget(resources)
    await given_budget(resources, "weekly", period="week", interval_seconds=30.0, price=None)
    role = SchedulerRole(resources)
    await role.leader.step()
    await role.measure()
    found = resources.registry.get_sample_value
    names = ("news", "weekly")
    assert [found("floodmark_budget_requests_allowed", {"budget": name}) for name in names] == [60, 2]
    assert [found("floodmark_budget_price", {"budget": name}) for name in names] == [1000, None]


def test_the_command_shows_budgets_and_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, migrated_sqlite: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    cli = CommandLine.installed(tmp_path, migrated_sqlite)
    assert "No adaptive jobs yet." in cli.good("freshness").out
    cli.good("budgets", "set", "news", "--per-minute", "30")
    cli.good("add", "feed", "https://example.com/feed.xml", "--name", "feed", "--adaptive", "--budget", "news")
    shown = cli.good("freshness", "--budget", "news").out
    assert "news  30 a minute, 1 source (1 never polled)" in shown
    assert "nothing measured yet" in shown
    assert "never" in shown
    found = cli.good("freshness", "--json").json
    assert [source["name"] for source in found["sources"]] == ["feed"]
    cli.refused("freshness", "--budget", "nwes", says="there is no budget 'nwes'")
