"""Breakers that a fleet shares: on both databases, and with the resources of two processes on PostgreSQL."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from command_line import CommandLine
from floodmark.errors import NotFound, SlowDown, Transient
from floodmark.model.clock import SystemClock
from floodmark.model.outcome import Snooze
from floodmark.observability.events import BreakerMoved, Events
from floodmark.outbound.breakers import Breakers
from floodmark.outbound.caller import CallKey
from floodmark.repositories.jobs import Jobs
from floodmark.rules.breaker import Breaker, BreakerState, Thresholds, admit_call, record_failure
from floodmark.settings import Settings
from floodmark.testing.eventually import eventually
from floodmark.testing.factories import Opened
from floodmark.wiring.resources import Resources, open_resources
from system.stores import AnyDatabase, Crew, a_spec

pytest_plugins = ("backends",)

KEY = CallKey(scope="telegram:reader1", method="messages.getHistory")
USUAL = Thresholds()


@pytest.fixture
def breakers(database: AnyDatabase) -> Breakers:
    return Breakers(database, SystemClock())


async def fail(breakers: Breakers, times: int = 1, key: str = KEY.scope) -> None:
    for _ in range(times):
        await breakers.change(key, lambda b, now: record_failure(b, now, USUAL, reason="OSError\0"))


async def test_one_that_nobody_wrote_is_closed(breakers: Breakers) -> None:
    breaker, now = await breakers.read("nothing")
    assert breaker == Breaker()
    assert abs(now - datetime.now(UTC)) < timedelta(minutes=1)
    assert await breakers.page() == []


@pytest.mark.spec("F2")
async def test_everything_about_a_breaker_is_read_as_it_was_written(breakers: Breakers) -> None:
    until = datetime(2026, 6, 1, 12, 0, 0, 123456, tzinfo=UTC)
    for written in (
        Breaker(failed_at=(until, until + timedelta(microseconds=1)), reason="OSError"),
        Breaker(state=BreakerState.OPEN, open_until=until, trips=3, reason="OSError"),
        Breaker(state=BreakerState.HALF_OPEN, probe_until=until, trips=3),
    ):
        moved = await breakers.change(KEY.scope, lambda _b, _now, after=written: after)  # type: ignore[misc]
        assert moved.after == written
        assert (await breakers.read(KEY.scope))[0] == written


@pytest.mark.spec("F2")
async def test_failures_of_many_at_once_are_all_counted(breakers: Breakers) -> None:
    await asyncio.gather(*(fail(breakers) for _ in range(4)))
    assert (await breakers.show(KEY.scope)).failures == 4
    await fail(breakers)
    shown = await breakers.show(KEY.scope)
    assert (shown.state, shown.failures, shown.trips, shown.reason) == ("open", 0, 1, "OSError␀")


@pytest.mark.spec("F2")
async def test_of_many_that_ask_at_once_one_may_probe(breakers: Breakers) -> None:
    await fail(breakers, 5)
    await breakers.change(
        KEY.scope, lambda b, now: Breaker(state=b.state, open_until=now - timedelta(seconds=1), trips=b.trips)
    )
    asked = [breakers.change(KEY.scope, lambda b, now: admit_call(b, now, USUAL)) for _ in range(8)]
    moved = await asyncio.gather(*asked)
    assert sum(m.before.probe_until != m.after.probe_until for m in moved) == 1


async def test_the_open_ones_are_listed_first(breakers: Breakers) -> None:
    await fail(breakers, key="a")
    await fail(breakers, 5, key="b")
    assert [(row.key, row.state) for row in await breakers.page()] == [("b", "open"), ("a", "closed")]


async def test_one_can_be_closed_by_hand(breakers: Breakers) -> None:
    await fail(breakers, 5)
    assert (await breakers.reset(KEY.scope)).state == "open"
    assert (await breakers.read(KEY.scope))[0] == Breaker(trips=1)
    with pytest.raises(NotFound) as caught:
        await breakers.reset("unknown")
    assert KEY.scope in caught.value.hint


async def test_what_waits_for_a_breaker_goes_on_when_it_is_closed_by_hand(
    migrated_url: str, breakers: Breakers, jobs: Jobs, crew: Crew
) -> None:
    await fail(breakers, 5)
    async with open_resources(Settings(database_url=migrated_url)) as resources:
        refused = await resources.caller.wait_of(KEY.scope, KEY.method)
    assert refused is not None
    job, other = [await jobs.add(a_spec(name, name=name)) for name in ("job", "other")]
    await crew.run(jobs, other, Snooze(after=refused.after, reason=refused.reason.replace("reader1", "reader11")))
    waiting = await crew.run(jobs, job, Snooze(after=refused.after, reason=refused.reason))
    assert await crew.upkeep.wake(limit=10) == []
    await breakers.reset(KEY.scope)
    assert [queued.execution_id for queued in await crew.upkeep.wake(limit=10)] == [waiting.execution_id]


# Two processes on one PostgreSQL


class Worker:
    """What one process knows, and whom it called."""

    def __init__(self, resources: Resources, events: Events) -> None:
        self.caller, self.sent = resources.caller, 0
        self.moves: list[tuple[str, bool]] = []
        events.listen(BreakerMoved, lambda e: self.moves.append((e.state, e.elsewhere)))

    async def call(self, gate: asyncio.Event | None = None, error: Exception | None = None) -> str:
        async def send() -> str:
            self.sent += 1
            if gate is not None:
                await gate.wait()
            if error is not None:
                raise error
            return "fine"

        return await self.caller.call(KEY, send)

    async def is_deferred(self) -> bool:
        return await self.caller.wait_of(KEY.scope, KEY.method) is not None


@pytest.mark.spec("F2", "G5")
async def test_when_one_process_opens_a_breaker_the_other_defers_and_one_of_them_probes(postgres_only: Opened) -> None:
    settings = {"retry_max_attempts": 1, "circuit_breaker_open_timeout_seconds": 1.5}
    events = Events(), Events()
    async with (
        postgres_only(events=events[0], **settings) as first,
        postgres_only(events=events[1], **settings) as second,
    ):
        one, two = Worker(first, events[0]), Worker(second, events[1])
        assert await two.call() == "fine"
        for _ in range(5):
            with pytest.raises(Transient):
                await one.call(error=Transient("no answer"))
        with pytest.raises(SlowDown, match="is open until"):
            await one.call()
        await eventually(two.is_deferred)
        with pytest.raises(SlowDown, match="is open until"):
            await two.call()

        for worker in (one, two):
            await eventually(lambda worker=worker: _may_probe(worker))  # type: ignore[misc]
        gate, sent = asyncio.Event(), one.sent + two.sent
        asked = [asyncio.create_task(w.call(gate)) for w in (one, two, one, two)]
        await eventually(lambda: sum(task.done() for task in asked) == 3)
        gate.set()
        answers = await asyncio.gather(*asked, return_exceptions=True)
        assert answers.count("fine") == 1
        assert all("is being probed" in str(a) for a in answers if a != "fine")
        assert one.sent + two.sent == sent + 1

        for worker in (one, two):
            await eventually(lambda worker=worker: _is_closed_for(worker))  # type: ignore[misc]
        opened = [state for worker in (one, two) for state, elsewhere in worker.moves if not elsewhere]
        assert sorted(opened) == ["closed", "half-open", "open"], "each move is told by the process that made it"


async def _may_probe(worker: Worker) -> bool:
    return not await worker.is_deferred()


async def _is_closed_for(worker: Worker) -> bool:
    await worker.caller.step()
    return worker.moves[-1][0] == "closed"


# On the command line


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    monkeypatch.chdir(tmp_path)
    asyncio.run(_open_a_breaker(tmp_path))
    return CommandLine(tmp_path)


async def _open_a_breaker(folder: Path) -> None:
    async with open_resources(Settings(database_url=f"sqlite:///{folder}/.floodmark/floodmark.db")) as resources:
        await fail(Breakers(resources.database, resources.clock), 5)


def test_breakers_are_listed_and_closed_by_hand(cli: CommandLine) -> None:
    told = cli.good("breakers").out
    for shown in (KEY.scope, "open", "probed in", "OSError"):
        assert shown in told
    assert cli.good("breakers", "ls", "--json").json == cli.good("breakers", "--json").json
    assert "which is open. Nothing was changed." in cli.good("breakers", "reset", KEY.scope, "--dry-run").out
    cli.refused("breakers", "reset", KEY.scope, says="it needs confirmation")
    cli.refused("breakers", "reset", "unknown", "--yes", says="there is no breaker 'unknown'")
    assert "open -> closed" in cli.good("breakers", "reset", KEY.scope, "--yes").out
    [row] = cli.good("breakers", "--json").json
    assert (row["state"], row["trips"]) == ("closed", 1)
