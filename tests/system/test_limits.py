"""Limits of the whole fleet, on both databases: set at once, never shortened, shown, lifted."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import insert

from command_line import CommandLine
from floodmark.errors import NotFound
from floodmark.model.clock import SystemClock
from floodmark.model.outcome import Snooze
from floodmark.outbound.limits import Limits
from floodmark.outbound.tables import limits as table
from floodmark.repositories.jobs import Jobs
from floodmark.settings import Settings
from floodmark.wiring.resources import open_resources
from system.stores import AnyDatabase, Crew, a_spec

SCOPE = "telegram:reader1"
KEY = f"{SCOPE}:messages.getHistory"
MINUTE = timedelta(minutes=1)


@pytest.fixture
def limits(database: AnyDatabase) -> Limits:
    return Limits(database, SystemClock())


@pytest.mark.spec("T4")
async def test_a_limit_holds_from_the_moment_it_is_set(limits: Limits) -> None:
    until = await limits.set(KEY, MINUTE, "FloodWait\0", rate=0.5)
    assert timedelta(seconds=50) < until - datetime.now(UTC) < timedelta(seconds=70)
    [row] = await limits.page()
    assert (row.key, row.until, row.reason, row.hits, row.rate) == (KEY, until, "FloodWait␀", 1, 0.5)


async def test_a_shorter_limit_does_not_shorten_it(limits: Limits) -> None:
    until = await limits.set(KEY, MINUTE, "long", rate=0.5)
    assert await limits.set(KEY, timedelta(seconds=1), "short") == until
    [row] = await limits.page()
    assert (row.until, row.hits, row.rate) == (until, 2, 0.5)
    assert await limits.set(KEY, 2 * MINUTE, "longer", rate=0.25) > until
    assert (await limits.page())[0].rate == 0.25


async def test_no_server_can_stop_us_for_ever(limits: Limits) -> None:
    assert await limits.set(KEY, timedelta.max, "absurd") < datetime.now(UTC) + timedelta(days=31)
    assert await limits.set("past", -MINUTE, "absurd") > datetime.now(UTC) - MINUTE


@pytest.mark.spec("T4")
async def test_settling_an_execution_and_setting_a_limit_agree(limits: Limits, jobs: Jobs, crew: Crew) -> None:
    """Both write the same row, and whichever comes second keeps the later end and the pace."""
    job = await jobs.add(a_spec())
    until = await limits.set(KEY, 2 * MINUTE, "told", rate=0.5)
    await crew.run(jobs, job, Snooze(after=MINUTE, key=KEY, reason="settled"))
    [row] = await limits.page()
    assert (row.until, row.rate, row.reason) == (until, 0.5, "settled")


async def test_what_holds_for_a_scope_is_found_by_it_alone(limits: Limits) -> None:
    for key in (KEY, SCOPE, f"{SCOPE}0:m", "telegram", "TELEGRAM:reader1:m", "telegram:%:m", "telegram:reader_:m"):
        await limits.set(key, MINUTE, "wait")
    assert {limit.key for limit in await limits.holding(SCOPE)} == {KEY, SCOPE}
    assert {limit.key for limit in await limits.holding("telegram:%")} == {"telegram:%:m"}
    assert {limit.key for limit in await limits.holding("telegram:reader_")} == {"telegram:reader_:m"}
    [limit] = await limits.holding("TELEGRAM:reader1")
    assert timedelta(seconds=50) < limit.rest <= MINUTE
    assert limit.reason == "wait"


async def test_a_past_limit_is_told_only_for_the_sake_of_its_pace(limits: Limits) -> None:
    await limits.set(f"{SCOPE}:a", timedelta(), "over")
    await limits.set(f"{SCOPE}:b", timedelta(), "over", rate=0.5)
    [limit] = await limits.holding(SCOPE)
    assert (limit.key, limit.rate) == (f"{SCOPE}:b", 0.5)
    assert limit.rest <= timedelta()


async def test_a_limit_can_be_lifted(limits: Limits) -> None:
    await limits.set(KEY, MINUTE, "wait")
    assert (await limits.clear(KEY)).reason == "wait"
    assert await limits.page(with_past=True) == []
    with pytest.raises(NotFound):
        await limits.clear(KEY)


@pytest.mark.spec("T4")
async def test_what_waits_for_a_limit_goes_on_when_it_is_lifted(limits: Limits, jobs: Jobs, crew: Crew) -> None:
    """Those who were told themselves, and those of the same key who came later; nobody who waits for something else."""
    told, later, other = [await jobs.add(a_spec(name, name=name, limit_key=KEY)) for name in ("told", "later", "other")]
    await crew.run(jobs, other, Snooze(after=MINUTE, key="another", reason="another reason"))
    first = await crew.run(jobs, told, Snooze(after=2 * MINUTE, key=KEY, reason="FloodWait"))
    second = await jobs.force_run(later)
    assert await crew.leasing.claim_next(10, worker="w1", ttl=MINUTE) == []
    assert await crew.upkeep.wake(limit=10) == []
    await limits.clear(KEY)
    woken = {queued.execution_id for queued in await crew.upkeep.wake(limit=10)}
    assert woken == {first.execution_id, second.execution_id}


async def test_a_limit_among_a_thousand_can_be_lifted(limits: Limits, database: AnyDatabase) -> None:
    now = SystemClock().now()
    others = [{"key": f"k{n}", "until": now + MINUTE, "reason": "wait", "updated_at": now} for n in range(1000)]
    async with database.writing() as connection:
        await connection.execute(insert(table), others)
    await limits.set(KEY, timedelta(seconds=1), "short")
    assert (await limits.clear(KEY)).reason == "short"


# On the command line


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    monkeypatch.chdir(tmp_path)
    asyncio.run(_set_a_limit(tmp_path))
    return CommandLine(tmp_path)


async def _set_a_limit(folder: Path) -> None:
    async with open_resources(Settings(database_url=f"sqlite:///{folder}/.floodmark/floodmark.db")) as resources:
        await Limits(resources.database, resources.clock).set(KEY, timedelta(hours=1), "FloodWait", rate=0.5)


def test_limits_are_listed_and_lifted_by_hand(cli: CommandLine) -> None:
    told = cli.good("limits").out
    for shown in (KEY, "in 59 min", "0.5/s", "FloodWait"):
        assert shown in told
    assert cli.good("limits", "ls", "--json").json == cli.good("limits", "--json").json
    assert "Would clear the limit" in cli.good("limits", "clear", KEY, "--dry-run").out
    cli.refused("limits", "clear", KEY, says="it needs confirmation")
    cli.refused("limits", "clear", "unknown", "--yes", says="there is no limit 'unknown'")
    assert cli.good("limits", "clear", KEY, "--yes", "--json").json["key"] == KEY
    assert cli.good("limits", "--past", "--json").json == []
