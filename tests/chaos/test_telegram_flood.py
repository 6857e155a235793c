"""A flood wait at the seventh page: the whole fleet keeps to it, also after a restart, and nobody else waits."""

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import partial

import pytest

from chaos.fleet import Fleet, shown_at_the_end
from chaos.invariants import moment
from chaos.town import HISTORY, Town, add_job, town_on
from floodmark import Job
from floodmark.testing.eventually import eventually
from floodmark.testing.telegram import LoopbackTelegram, TelegramBackend

PAGE, PAGES_BEFORE, PAGES = 100, 6, 9
# Longer than the others need to read everything.
SECONDS = 30
TOLD, OTHER = "reader1", "reader2"
SHORT = [f"short_{number}" for number in range(4)]
OTHERS = [f"other_{number}" for number in range(4)]
LATE = "other_late"
KEY = f"telegram:{TOLD}:{HISTORY}"
# As many calls as the server takes: how they are paced after a wait is another matter.
FIXED = {"rate_limit_strategy": "fixed"}


@pytest.fixture
def server() -> Iterator[LoopbackTelegram]:
    """A long channel and four short ones for the account that is told to wait, five for the other."""
    backend = TelegramBackend(seed=12)
    for account in (TOLD, OTHER):
        backend.account(account)
    backend.channel("long").fill(PAGES * PAGE, kind="plain")
    for name in (*SHORT, *OTHERS, LATE):
        backend.channel(name).fill(2 * PAGE, kind="plain")
    with LoopbackTelegram.thread(backend, forbid_duplicates=True) as one:
        yield one


@pytest.mark.spec("T4", "T6", "G3", "G5")
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("workers", [2, pytest.param(4, marks=pytest.mark.release)])
@pytest.mark.thorough
async def test_workers_wait_and_go_on_at_page_seven(
    fleet: Fleet, server: LoopbackTelegram, pg_url: str, redis_url: str, workers: int
) -> None:
    """Each worker has one slot: the five channels that wait would leave none to the others if they kept theirs."""
    async with town_on(fleet, server, pg_url, redis_url, scheduler_worker_pool_size=1, **FIXED) as town:
        names = ["scheduler", *(f"worker-{number}" for number in range(workers))]
        await flood_wait_is_kept(town, names, seconds=SECONDS)
    assert asked_during_the_wait(server, OTHER) >= {*OTHERS, LATE}


@pytest.mark.spec("T4", "T6", "G3", "G5")
@pytest.mark.timeout(1200)
@pytest.mark.thorough
async def test_a_process_that_was_killed_keeps_to_the_wait_it_was_told_before(
    fleet: Fleet, server: LoopbackTelegram, sqlite_url: str
) -> None:
    """The same with one process on SQLite."""
    async with town_on(fleet, server, sqlite_url, scheduler_worker_pool_size=4, **FIXED) as town:
        await flood_wait_is_kept(town, ["up"], seconds=SECONDS)
    assert asked_during_the_wait(server, OTHER) >= {*OTHERS}


async def flood_wait_is_kept(town: Town, names: Sequence[str], *, seconds: float) -> None:
    """Tell one account to wait at page seven and kill who was told; see what everybody does meanwhile and after."""
    jobs = {
        str(channel.username): await add_job(town, channel, account=OTHER if "other" in str(channel.username) else TOLD)
        for channel in town.channels
    }
    town.server.flood(HISTORY, seconds=seconds, after=PAGES_BEFORE, account=TOLD)
    with shown_at_the_end(town.fleet, {}):
        await town.start(*names)
        waiting = [await town.desk.ask(jobs["long"])]
        # It may have waited before, for a session that another worker had open.
        told = await eventually(lambda: next(town.fleet.happened("RateLimited"), None))
        assert told is not None
        await town.reaches(waiting[0], "waiting")

        others = [await town.desk.ask(jobs[name]) for name in OTHERS]
        waiting += [await town.desk.ask(jobs[name]) for name in SHORT]
        for execution_id in others:
            await town.reaches(execution_id, "done")
        for execution_id in waiting:
            await town.reaches(execution_id, "waiting")
        await check_shown(town, jobs["long"], jobs[SHORT[0]])

        town.fleet.kill(told["process"])
        town.fleet.start_again(told["process"])
        await town.reaches(await town.desk.ask(jobs[LATE]), "done")
        for execution_id in waiting:
            await town.reaches(execution_id, "done", seconds=seconds + 180)
        await town.comes_to_rest()
        await town.check()
    check_calls(town.server, seconds=seconds)


async def check_shown(town: Town, *jobs: Job) -> None:
    """Whoever asks why a job does not run is told who has to wait, and until when."""
    [(key, until)] = await town.probe.rows("SELECT key, until FROM limits")
    assert key == KEY
    assert moment(until) > datetime.now(UTC)
    told = re.compile(rf"FloodWait on account {TOLD} \({HISTORY}\) until [0-9-]* ?[0-9:]+ UTC, in \d")
    for job in jobs:
        # One that waited for a session in another worker is tried once more before it learns of the flood wait.
        await eventually(partial(_explains, town, job, told), within=SECONDS)


async def _explains(town: Town, job: Job, told: re.Pattern[str]) -> bool:
    why = await town.desk.explain(job)
    assert told.search(why), why
    return True


def check_calls(server: LoopbackTelegram, *, seconds: float) -> None:
    """Nothing was asked on the key before the wait was over, and then the page that had been refused."""
    assert server.violations == []
    assert server.duplicates == []
    calls = server.calls(HISTORY, TOLD)
    refused = calls[PAGES_BEFORE]
    assert refused.result == f"FLOOD_WAIT_{seconds:.0f}"
    assert [call.result for call in calls if call is not refused] == ["ok"] * (len(calls) - 1)
    assert calls[PAGES_BEFORE + 1].at >= refused.at + seconds
    long = server.calls(HISTORY, TOLD, refused.channel)
    assert long[PAGES_BEFORE] is refused
    assert long[PAGES_BEFORE + 1].offset_id == refused.offset_id, "it did not go on at page seven"


def asked_during_the_wait(server: LoopbackTelegram, account: str) -> set[str | None]:
    """The channels that an account read while the other one waited."""
    calls = server.calls(HISTORY, TOLD)
    begin, end = calls[PAGES_BEFORE].at, calls[PAGES_BEFORE + 1].at
    read = {call.channel for call in server.calls(HISTORY, account) if begin < call.at < end}
    return {channel.username for channel in server.backend.channels.values() if channel.channel_id in read}
