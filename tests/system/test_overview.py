"""Everything at a glance: right on both databases, the same far away, and cheap."""

from collections.abc import AsyncIterator
from datetime import timedelta
from io import StringIO
from typing import Any

import msgspec
import pytest
from rich.console import Console
from sqlalchemy import event, text

from api.serving import served
from floodmark.api.changed_executions import ChangedExecutions, unfinished_queries
from floodmark.cli.top import frame
from floodmark.model.audit import Actor
from floodmark.model.batch import Batch, Item
from floodmark.model.execution import Hold, State
from floodmark.model.fleet import Overview
from floodmark.model.outcome import Dead, Retry
from floodmark.notifications.trouble_repository import TroubleRepository
from floodmark.operations.local import LocalOperations
from floodmark.operations.overview import OverviewReader
from floodmark.outbound.breakers import Breakers
from floodmark.outbound.limits import Limits
from floodmark.repositories.fleet import FleetRepository
from floodmark.rules.breaker import Breaker, BreakerState
from floodmark.testing.factories import Opened, given_executions, given_job, given_lease, given_queued, settle
from floodmark.wiring.resources import Resources

pytest_plugins = ("backends",)
pytestmark = [pytest.mark.spec("V8", "V9"), pytest.mark.every_database]

DAY = timedelta(days=1)


@pytest.fixture(params=["sqlite", "postgres_only"])
def opened(request: pytest.FixtureRequest) -> Opened:
    found: Opened = request.getfixturevalue(request.param)
    return found


@pytest.fixture
async def resources(opened: Opened) -> AsyncIterator[Resources]:
    async with opened() as resources:
        yield resources


def office_of(resources: Resources) -> LocalOperations:
    return LocalOperations(resources, Actor(who="ada"))


async def stock(resources: Resources) -> None:
    """Something of everything."""
    given, fleet = (resources.database, resources.clock), FleetRepository(resources.database, resources.clock)
    busy = await given_lease(resources, name="busy")
    for number in range(3):
        batch = Batch(tuple(Item(f"{number}/{n}", {"n": n}) for n in range(4)), {"n": number})
        await resources.keeping.keep(busy, batch)
    await given_lease(resources, name="starting")
    await settle(resources, await given_lease(resources, name="shaky"), Retry(after=DAY, error="ValueError: no [bold]"))
    await settle(resources, await given_lease(resources, name="broken"), Dead(error="TimeoutError: \x1b[31m no answer"))
    held = await given_job(resources, name="held")
    await given_executions(resources, [held], state=State.WAITING, hold=Hold.PAUSED)
    await given_queued(resources, 2)
    await given_job(resources, name="timed", schedule_type="interval", interval_seconds=60.0)
    await Limits(*given).set("account 1", timedelta(hours=1), "FloodWait", 0.5)
    opened = Breaker(state=BreakerState.OPEN, open_until=resources.clock.now() + DAY, trips=1, reason="refused")
    await Breakers(*given).change("web:shop.test", lambda *_: opened)
    await Breakers(*given).change("web:fine.test", lambda *_: Breaker(state=BreakerState.CLOSED))
    await resources.leases.acquire(resources.settings.scheduler_leader_key, holder="one", ttl=timedelta(seconds=30))
    await fleet.tick("one", timedelta(seconds=5))
    ttl = timedelta(seconds=30)
    await fleet.record_presence("one", role="worker", hostname="h", pid=1, slots=4, busy=2, draining=False, ttl=ttl)
    await OverviewReader(*given, resources.repositories).measure()


async def test_an_overview_tells_what_runs_waits_fails_and_how_fresh_it_is(resources: Resources) -> None:
    empty = await office_of(resources).overview()
    assert (empty.leader, empty.scheduler, empty.running, empty.measured_at) == (None, "down", [], None)
    assert "no leader" in shown(empty, 100)
    await stock(resources)

    seen = await office_of(resources).overview()

    assert (seen.leader, seen.scheduler, seen.draining, len(seen.workers)) == ("one", "ok", False, 1)
    assert seen.queue == {"high": 0, "normal": 2, "low": 0}
    runs = {run.job_name: run for run in seen.running}
    assert (seen.running_count, set(runs)) == (2, {"busy", "starting"})
    assert (runs["busy"].kept, runs["busy"].is_least, runs["starting"].kept) == (12, False, 0)
    assert runs["busy"].kept_at is not None
    assert runs["starting"].kept_at is None
    assert seen.kept_last_minute == 12
    waits = {row.job_name: row for row in seen.waiting}
    assert (seen.waiting_count, set(waits)) == (2, {"shaky", "held"})
    assert waits["shaky"].until is not None
    assert waits["held"].hold is Hold.PAUSED
    assert [row.key for row in seen.limits] == ["account 1"]
    assert [row.key for row in seen.breakers] == ["web:shop.test"], "those that are closed are of no interest"
    assert (seen.dead_letters, [(row.job_name, row.state) for row in seen.failed]) == (
        1,
        [("broken", State.DEAD), ("shaky", State.WAITING)],
    )
    [fresh] = seen.freshness
    assert (fresh.source, fresh.jobs, fresh.stale, fresh.checked_at) == ("test", 1, 0, None)
    assert seen.measured_at is not None


async def test_far_away_it_is_the_same(resources: Resources) -> None:
    await stock(resources)
    async with served(resources) as api:
        answer = await api.get("overview")
        found = msgspec.json.decode(answer.content, type=Overview)
    here = await office_of(resources).overview()
    assert msgspec.structs.replace(found, at=here.at) == here
    assert answer.json()["workers"][0]["leader"] is True


@pytest.mark.parametrize("name", ["overview", "letters"])
@pytest.mark.thorough
async def test_it_is_read_by_indexes_only(resources: Resources, name: str) -> None:
    """Whoever watches asks every second: the history may have a million rows."""
    await stock(resources)
    statements: list[tuple[str, Any]] = []

    def note(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        statements.append((statement, parameters))

    engine = resources.database.engine.sync_engine
    event.listen(engine, "before_cursor_execute", note)
    if name == "overview":
        await office_of(resources).overview()
    else:
        repository = TroubleRepository(resources.database, resources.clock, resources.repositories.staleness)
        await repository.dead_letters(await repository.now())
    event.remove(engine, "before_cursor_execute", note)
    asked = [(said, values) for said, values in statements if said.lstrip().startswith("SELECT")]
    assert len(asked) >= (8 if name == "overview" else 1)
    plans = [await plan_of(resources, *one) for one in asked]
    for (statement, _), plan in zip(asked, plans, strict=True):
        for table in ("executions", "jobs", "watermarks", "items"):
            whole = [f"Seq Scan on {table}"] if resources.database.dialect == "postgresql" else [f"SCAN {table}\n"]
            assert not any(words in plan for words in whole), f"{statement}\n{plan}"


async def test_the_live_feed_reads_unfinished_executions_and_no_history(resources: Resources) -> None:
    """It looks twice a second, and SQLite would read the whole history to find the newest of them."""
    await stock(resources)
    for query, name in zip(unfinished_queries(), ("running", "queued", "waiting"), strict=True):
        compiled = query.compile(resources.database.engine, compile_kwargs={"literal_binds": True})
        plan = await plan_of(resources, str(compiled), ())
        assert f"ix_job_executions_{name}" in plan, plan
        assert "TEMP B-TREE" not in plan
    changes = ChangedExecutions(resources.database, resources.clock)
    assert await changes.next() == []
    async with resources.database.writing() as connection:
        await connection.execute(text("UPDATE executions SET reason = 'seen' WHERE completed_at IS NULL"))
        await connection.execute(text("UPDATE executions SET lease_until = NULL WHERE completed_at IS NOT NULL"))
    found = await changes.next()
    assert {row.job_name for row in found} >= {"busy", "starting", "shaky", "held"}
    assert all(row.completed_at is None for row in found)
    assert await changes.next() == []


async def plan_of(resources: Resources, statement: str, values: Any) -> str:
    async with resources.database.writing() as connection:
        if resources.database.dialect == "postgresql":
            await connection.execute(text("SET LOCAL enable_seqscan = off"))
            found = await connection.exec_driver_sql(f"EXPLAIN {statement}", values)
            return "".join(f"{row[0]}\n" for row in found)
        found = await connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", values)
        return "".join(f"{row[-1]}\n" for row in found)


def shown(seen: Overview, width: int, height: int | None = None, trouble: str = "") -> str:
    paper = StringIO()
    Console(width=width, height=height, file=paper).print(frame(seen, width=width, height=height, trouble=trouble))
    return paper.getvalue()


async def test_it_is_drawn_for_every_terminal(sqlite: Opened) -> None:
    async with sqlite() as resources:
        await stock(resources)
        seen = await office_of(resources).overview()
    wide = shown(seen, 140)
    for words in (
        "leader one",
        "1 worker, 2 of 4 slots busy",
        "2 queued (normal 2)",
        "12 kept/min",
        "account 1",
        "web:shop.test",
        "ValueError: no [bold]",
        "retried",
        "dead",
        "TimeoutError",
        "paused",
    ):
        assert words in wide, wide  # fmt: skip
    assert "\x1b" not in wide
    assert all(title in wide for title in ("Running", "Limits", "Waiting", "Freshness", "Failed", "Workers"))
    for width, height in ((140, 50), (80, 24), (40, 12), (20, 5)):
        lines = shown(seen, width, height, "the database is away").splitlines()
        assert len(lines) <= max(height, 3), (width, height)
        assert max(len(line) for line in lines) <= width
    assert "Not available" in shown(seen, 80, 24, "the database is away")
