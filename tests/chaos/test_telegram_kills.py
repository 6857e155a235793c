"""A long history is collected by processes that are killed again and again: nothing is lost, nothing is stored twice,
and no session is ever used by two of them.

With --release the history has fifty thousand messages, and one process is killed for every five thousand of them.
Otherwise it has three thousand, which are served slowly, and three processes are killed.
The moments come from a seed, which is printed; FLOODMARK_CHAOS_SEED repeats them.
"""

import asyncio
import random
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

import pytest

from chaos.fleet import Fleet, eventually, shown_at_the_end
from chaos.invariants import come_to_rest
from chaos.town import EVERY, HISTORY, Town, add_job, town_on
from floodmark.model.job import ScheduleType, When
from floodmark.testing.telegram import LoopbackTelegram, TelegramBackend
from floodmark.testing.telegram.faults import Delay

# How many channels, and how many messages each of them has.
SIZE, SIZE_BEFORE_A_RELEASE = (6, 500), (10, 5_000)
MESSAGES_PER_KILL, FEWEST_KILLS = 5_000, 3
# Seconds that each page takes in the normal run, so that there is time to kill in.
SLOW = 0.1
ACCOUNTS = ("reader1", "reader2")


@pytest.fixture
def server(is_release: bool) -> Iterator[LoopbackTelegram]:
    """Channels with a long past. One session seen twice is lost for good, as it is in reality."""
    backend, (channels, messages) = TelegramBackend(seed=11), SIZE_BEFORE_A_RELEASE if is_release else SIZE
    for account in ACCOUNTS:
        backend.account(account)
    for number in range(channels):
        past = datetime.now(UTC) - timedelta(hours=messages / 60)
        backend.channel(f"channel_{number}").fill(messages, start=past, every=timedelta(minutes=1), kind="plain")
    with LoopbackTelegram.thread(backend, forbid_duplicates=True) as one:
        if not is_release:
            one.add(Delay(seconds=SLOW, method=HISTORY))
        yield one


@pytest.mark.spec("T6", "T7", "T12", "G3", "G4")
@pytest.mark.release
@pytest.mark.timeout(1200)
async def test_an_embedded_process_killed_in_mid_history_loses_and_doubles_nothing(
    fleet: Fleet, chance: random.Random, server: LoopbackTelegram, sqlite_url: str
) -> None:
    """One process on SQLite does everything, until it is killed."""
    async with town_on(fleet, server, sqlite_url) as town:
        await history_survives(town, chance, ["up"], ["up"] * kills_in(town))


@pytest.mark.spec("T5", "T6", "T7", "T12", "G3", "G4")
@pytest.mark.timeout(1200)
@pytest.mark.thorough
async def test_workers_and_scheduler_killed_in_mid_history_lose_and_double_nothing(
    fleet: Fleet, chance: random.Random, server: LoopbackTelegram, pg_url: str, redis_url: str
) -> None:
    """Two workers share two accounts on PostgreSQL and Valkey. Neither they nor the scheduler are spared."""
    async with town_on(fleet, server, pg_url, redis_url) as town:
        kills = kills_in(town)
        victims = ["scheduler"] * (kills // 3) + ["worker"] * (kills - kills // 3)
        chance.shuffle(victims)
        await history_survives(town, chance, ["scheduler", "worker-1", "worker-2"], victims)


def total(town: Town) -> int:
    """How many messages all channels have."""
    return sum(len(channel.ids()) for channel in town.channels)


def kills_in(town: Town) -> int:
    return max(FEWEST_KILLS, total(town) // MESSAGES_PER_KILL)


async def history_survives(town: Town, chance: random.Random, names: Sequence[str], victims: Sequence[str]) -> None:
    """Collect everything while one process after the other is killed, at moments spread over the first half of it.

    Not over all of it: on a busy machine the rest may be collected before this process gets to kill.
    """
    when = When(schedule_type=ScheduleType.INTERVAL, interval_seconds=EVERY.total_seconds())
    for channel in town.channels:
        await add_job(town, channel, when=when)
    share = total(town) // 2 // len(victims)
    with shown_at_the_end(town.fleet, {"kills": len(victims)}):
        await town.start(*names)
        for number, victim in enumerate(victims):
            await town.stores(number * share + chance.randrange(share))
            await kill_at_work(town, chance, victim)
        await town.collected(seconds=180)
        await come_to_rest(town.probe, seconds=120)
        await town.check()
        assert town.server.duplicates == []
        assert {call.account for call in town.server.calls(HISTORY)} == set(ACCOUNTS)
        assert town.fleet.counts()["ExecutionsRescued"] > 0
        assert town.fleet.fallen == [], town.fleet.tails()


async def kill_at_work(town: Town, chance: random.Random, victim: str) -> None:
    """SIGKILL one of those that are called so, in the middle of its work, and start it again.

    One that had just come to the end of its work proves nothing, and another is killed.
    """
    for _ in range(10):
        working = await eventually(town.at_work, bool, seconds=120, what="somebody reads a channel", every=0.1)
        await asyncio.sleep(chance.uniform(0, 0.2))
        name = chance.choice(working) if victim == "worker" else victim
        child, stored = town.fleet.children[name], await town.stored()
        town.fleet.kill(name)
        left = len(await town.at_work()) if victim == "scheduler" else await town.left_running(child)
        town.fleet.start_again(name)
        if left:
            assert stored < total(town)
            return
    pytest.fail(f"no {victim} was killed at work")
