"""A server that drops, hangs, hangs up at once or is not there: everything is collected in the end, and once."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from chaos.fleet import Fleet, eventually, shown_at_the_end
from chaos.town import HISTORY, Town, add_job, town_on
from floodmark import Job
from floodmark.testing.telegram import LoopbackTelegram, TelegramBackend
from floodmark.testing.telegram.faults import Delay

NAMES = ("up", "worker")
ACCOUNTS = ("reader1", "reader2")
CHANNELS, MESSAGES = 6, 700
THRESHOLD, OPEN_SECONDS = 5, 1.0
SETTINGS: dict[str, Any] = {
    "telegram_call_timeout": "3",
    "circuit_breaker_failure_threshold": THRESHOLD,
    "circuit_breaker_open_timeout_seconds": OPEN_SECONDS,
}


@pytest.fixture
def server() -> Iterator[LoopbackTelegram]:
    backend = TelegramBackend(seed=13)
    for account in ACCOUNTS:
        backend.account(account)
    for number in range(CHANNELS):
        backend.channel(f"channel_{number}").fill(MESSAGES, kind="plain")
    with LoopbackTelegram.thread(backend) as one:
        yield one


@pytest.fixture
async def town(fleet: Fleet, server: LoopbackTelegram, pg_url: str, redis_url: str) -> AsyncIterator[Town]:
    """Two workers at work for two accounts."""
    async with town_on(fleet, server, pg_url, redis_url, **SETTINGS) as made:
        with shown_at_the_end(fleet, {}):
            await made.start(*NAMES)
            yield made


@pytest.fixture
async def jobs(town: Town) -> list[Job]:
    """Half of the channels for each account."""
    return [await add_job(town, channel, account=ACCOUNTS[n % 2]) for n, channel in enumerate(town.channels)]


@pytest.mark.spec("T4", "F1", "G3", "G5")
@pytest.mark.timeout(1200)
@pytest.mark.thorough
async def test_connections_that_break_in_mid_history_cost_nothing(town: Town, jobs: list[Job]) -> None:
    """Before, in the middle of and after an answer; and answers that never come."""
    server = town.server
    server.drop(when="before", method=HISTORY, after=3, times=2)
    server.drop(when="during", method=HISTORY, after=10, times=2)
    server.drop(when="after", method=HISTORY, after=17, times=2)
    server.hang(method=HISTORY, after=24, times=2)
    server.half_close(method=HISTORY, after=30, times=2)
    await ask_for_all(town, jobs)
    await town.collected()
    await town.comes_to_rest()
    await town.check()
    met = {call.result for call in server.calls(HISTORY)}
    assert met == {"ok", "drop", "drop-during", "drop-after", "hang", "half-close"}
    assert any(town.fleet.happened("CallRetried"))
    assert server.duplicates == []
    assert {state for _, state, _ in await breakers(town)} <= {"closed"}


@pytest.mark.spec("F1", "F2", "G5")
@pytest.mark.timeout(1200)
@pytest.mark.thorough
async def test_a_server_that_is_not_there_is_asked_seldom_and_waited_for(town: Town, jobs: list[Job]) -> None:
    """The breakers open for the whole fleet and one probe at a time goes out; no execution fails for it."""
    server = town.server
    # Quickly at first, then slowly: there is a lot left to read when the trouble begins.
    server.add(Delay(seconds=0.5, method=HISTORY, after=3 * CHANNELS))
    await ask_for_all(town, jobs)
    await town.stores(MESSAGES)
    before = server.connections
    server.accept_and_close()
    server.disconnect()
    await breakers_opened(town, times=2)
    storm = server.connections - before
    # Later than the connections were counted, so each of them that has ended counts here too.
    trips = sum(trips for *_, trips in await breakers(town))
    # So many failures open a breaker, those under way at the time come on top, and each later trip is one probe.
    assert storm <= 2 * THRESHOLD + CHANNELS + trips + len(ACCOUNTS), f"{storm} connections, {trips} trips"
    why = [await town.desk.explain(job) for job in jobs]
    assert any("breaker telegram:reader" in sentence for sentence in why), why

    server.refuse()
    await breakers_opened(town, times=3)
    assert await town.stored() < CHANNELS * MESSAGES
    server.heal()
    await town.collected()
    await town.comes_to_rest()
    await town.check()
    assert {state for _, state, _ in await breakers(town)} == {"closed"}
    moves = {note["event"]["state"] for note in town.fleet.happened("BreakerMoved")}
    assert moves == {"open", "half-open", "closed"}
    # Whoever finds a breaker open is put off, which costs no attempt.
    assert await town.probe.value("SELECT max(attempt) FROM executions") <= 2


async def breakers_opened(town: Town, *, times: int) -> None:
    """Wait until the breakers of both accounts have opened this often."""

    async def opened() -> list[int]:
        return [trips for *_, trips in await breakers(town) if trips >= times]

    await eventually(opened, lambda rows: len(rows) == 2, seconds=120, what=f"both open for the {times}. time")


async def breakers(town: Town) -> list[tuple[str, str, int]]:
    """Key, state and trips, as they are stored."""
    return [(row[0], row[1], row[2]) for row in await town.probe.rows("SELECT key, state, trips FROM breakers")]


async def ask_for_all(town: Town, jobs: list[Job]) -> None:
    for job in jobs:
        await town.desk.ask(job)
