"""Several workers share the accounts: each session stays where it is open, and moves only when its worker dies or when
another worker joins. Nothing is lost, nothing is stored twice, and no session is open in two places.
"""

from collections.abc import Iterator

import pytest

from chaos.fleet import Fleet, eventually, shown_at_the_end
from chaos.invariants import come_to_rest
from chaos.town import EVERY, Town, add_job, town_on
from floodmark.model.job import ScheduleType, When
from floodmark.rules.partition import choose_owner
from floodmark.sources.telegram.sessions import scope_of
from floodmark.testing.telegram import LoopbackTelegram, TelegramBackend

ACCOUNTS, CHANNELS, MESSAGES = 8, 12, 40
RUNS = 3
# Long enough for a busy machine: the preferred worker gets every run, and an idle session stays open.
SETTINGS = {"execution_affinity": "10", "telegram_session_linger": "60"}
# The workers of the last runs of each job that began after a moment.
_LAST_RUNS = f"""
SELECT job_name, count(*), min(worker), max(worker)
  FROM (SELECT job_name, worker, row_number() OVER (PARTITION BY job_name ORDER BY completed_at DESC) AS place
          FROM executions WHERE state = 'done' AND started_at > '{{since}}') last
 WHERE place <= {RUNS} GROUP BY job_name
"""
Shares = dict[str, str]


@pytest.fixture
def server() -> Iterator[LoopbackTelegram]:
    """More accounts than workers. One session seen twice is lost for good, as it is in reality."""
    backend = TelegramBackend(seed=15)
    for number in range(ACCOUNTS):
        backend.account(f"reader{number}")
    for number in range(CHANNELS):
        backend.channel(f"channel_{number}").fill(MESSAGES, kind="plain")
    with LoopbackTelegram.thread(backend, forbid_duplicates=True) as one:
        yield one


@pytest.mark.spec("T15", "T6", "T7", "G3", "G7")
@pytest.mark.timeout(1200)
@pytest.mark.release
async def test_only_the_share_of_a_worker_moves_with_redis(
    fleet: Fleet, server: LoopbackTelegram, pg_url: str, redis_url: str
) -> None:
    async with town_on(fleet, server, pg_url, redis_url, **SETTINGS) as town:
        await shares_move(town)


@pytest.mark.spec("T15", "T6", "T7", "G3", "G7")
@pytest.mark.timeout(1200)
@pytest.mark.release
async def test_only_the_share_of_a_worker_moves_without_redis(
    fleet: Fleet, server: LoopbackTelegram, pg_url: str
) -> None:
    async with town_on(fleet, server, pg_url, **SETTINGS) as town:
        await shares_move(town)


async def shares_move(town: Town) -> None:
    """Three workers; one of them is killed, and later another one joins."""
    when = When(schedule_type=ScheduleType.INTERVAL, interval_seconds=EVERY.total_seconds())
    for channel in town.channels:
        await add_job(town, channel, when=when)
    with shown_at_the_end(town.fleet, {}):
        await town.start("scheduler", "worker-1", "worker-2", "worker-3")
        first = await settled_shares(town)
        connected = connections(town)
        assert await settled_shares(town) == first
        assert connections(town) == connected, "sessions were opened again although no worker joined or left"
        assert town.fleet.counts()["ExecutionsOffered"] > 0

        victim = next(name for name in ("worker-1", "worker-2", "worker-3") if worker_of(town, name) in first.values())
        killed = worker_of(town, victim)
        town.fleet.kill(victim)
        second = await settled_shares(town)
        assert killed not in second.values()
        assert {job for job in first if second[job] != first[job]} == {job for job in first if first[job] == killed}

        await town.start("worker-4")
        joined = worker_of(town, "worker-4")
        third = await settled_shares(town)
        assert all(third[job] in (second[job], joined) for job in third)

        await town.collected(seconds=180)
        await come_to_rest(town.probe, seconds=120)
        await town.check()
        assert town.server.duplicates == []
        assert town.fleet.fallen == [], town.fleet.tails()


def worker_of(town: Town, name: str) -> str:
    """The name under which a process works."""
    [note] = town.fleet.happened("ready", child=town.fleet.children[name])
    return str(note["worker"])


async def sessions_are_placed(town: Town) -> None:
    """Wait until each worker has open the sessions for which it is preferred, and no other."""
    workers = {worker_of(town, name) for name in town.fleet.children if name.startswith("worker")}

    async def misplaced() -> dict[str, str]:
        """The accounts that read a channel, and where they are open instead."""
        holders = dict(await town.probe.rows("SELECT name, holder FROM accounts"))
        reading = {account for account, _ in await town.probe.rows("SELECT account, channel_id FROM telegram_channels")}
        expected = {account: choose_owner(scope_of(account), workers) for account in reading}
        return {account: holders[account] for account in reading if holders[account] != expected[account]}

    await eventually(misplaced, lambda left: not left, seconds=240, what="every session is open where it belongs")


def connections(town: Town) -> dict[str, list[int]]:
    """The open connections of each account."""
    return {account: town.server.connected(account) for account in town.server.backend.accounts}


async def settled_shares(town: Town) -> Shares:
    """Wait until each session is where it belongs and each job has run there several times; the worker of each job.

    Every channel gets a post meanwhile, so that there is something to lose.
    """
    for channel in town.channels:
        channel.post("The ferry is late")
    await sessions_are_placed(town)
    since = await town.probe.value("SELECT clock_timestamp()")

    async def last_runs() -> dict[str, tuple[int, str, str]]:
        return {job: tuple(runs) for job, *runs in await town.probe.rows(_LAST_RUNS.format(since=since))}

    def is_settled(seen: dict[str, tuple[int, str, str]]) -> bool:
        return len(seen) == CHANNELS and all(count == RUNS and low == high for count, low, high in seen.values())

    seen = await eventually(last_runs, is_settled, seconds=240, what="each channel is read by one worker")
    return {job: worker for job, (_, worker, _) in seen.items()}
