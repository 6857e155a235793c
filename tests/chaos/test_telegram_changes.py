"""Channels and accounts change while they are read: what can go on goes on, what cannot says why and waits."""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from chaos.fleet import Fleet, eventually, shown_at_the_end
from chaos.town import HISTORY, Town, add_job, keys_of, town_on
from floodmark import Job
from floodmark.testing.telegram import LoopbackTelegram, TelegramBackend
from floodmark.testing.telegram.faults import Delay
from telegram_desk import stream_of

MESSAGES = 1_000


@pytest.fixture
def server() -> Iterator[LoopbackTelegram]:
    """Three channels."""
    backend = TelegramBackend(seed=15)
    for account in ("reader1", "reader2"):
        backend.account(account)
    for name in ("harbour", "market", "museum"):
        backend.channel(name).fill(MESSAGES, kind="plain")
    with LoopbackTelegram.thread(backend, forbid_duplicates=True) as one:
        yield one


@pytest.fixture
async def town(fleet: Fleet, server: LoopbackTelegram, pg_url: str, redis_url: str) -> AsyncIterator[Town]:
    """One process on PostgreSQL and Valkey: with a second one, the channels of an account would wait for each other."""
    async with town_on(fleet, server, pg_url, redis_url) as made:
        with shown_at_the_end(fleet, {}):
            await made.start("up")
            yield made


@pytest.mark.spec("T6", "T7", "G3")
@pytest.mark.timeout(1200)
@pytest.mark.thorough
async def test_names_and_doors_that_change_in_mid_history(town: Town) -> None:
    """One channel is renamed and its name taken by another; one is made private; a third is not touched."""
    harbour, market, museum = town.channels
    jobs = [await add_job(town, channel, account="reader1") for channel in (harbour, market, museum)]
    async with in_mid_history(town, jobs) as executions:
        harbour.rename("old_harbour")
        town.server.backend.channel("harbour").fill(300, kind="plain")
        market.make_private()

    await town.reaches(executions[1], "dead")
    await town.reaches(executions[0], "done")
    await town.reaches(executions[2], "done")
    assert "market is private" in await town.desk.explain(jobs[1])
    assert await paused(town) == {jobs[1].name}
    assert await town.probe.value("SELECT count(*) FROM executions WHERE state = 'dead'") == 1

    harbour.post("Still the same harbour")
    await town.reaches(await town.desk.ask(jobs[0]), "done")
    await town.comes_to_rest()
    seen = int(await town.probe.value(f"SELECT count(*) FROM items WHERE stream = '{stream_of(market)}'"))
    assert 0 < seen < MESSAGES
    await town.check_posts(
        {
            stream_of(harbour): keys_of(harbour),
            stream_of(market): keys_of(market)[:seen],
            stream_of(museum): keys_of(museum),
        }
    )


@pytest.mark.spec("T6", "G3")
@pytest.mark.timeout(1200)
@pytest.mark.thorough
async def test_a_session_revoked_in_mid_history_parks_its_account_alone(town: Town) -> None:
    """The jobs of the other account go on; those of this one wait for a new login, and then finish."""
    harbour, market, museum = town.channels
    lost = [await add_job(town, channel, account="reader2") for channel in (harbour, market)]
    safe = await add_job(town, museum, account="reader1")
    async with in_mid_history(town, [*lost, safe]) as executions:
        town.server.revoke("reader2", "SESSION_REVOKED")

    await town.reaches(executions[0], "dead")
    await town.reaches(executions[1], "dead")
    await town.reaches(executions[2], "done")
    assert await town.probe.rows("SELECT name FROM accounts WHERE state = 'parked'") == [("reader2",)]
    assert await paused(town) == {job.name for job in lost}
    for job in lost:
        assert "account reader2: the session was ended by its owner" in await town.desk.explain(job)
    after = town.server.calls(account="reader2")[-1].at

    town.server.restore("reader2")
    await town.desk.account("reader2", replace=True)
    assert await paused(town) == set()
    for job in lost:
        await town.reaches(await town.desk.ask(job), "done")
    assert town.server.calls(HISTORY, "reader2")[-1].at > after
    assert town.server.duplicates == []
    await town.comes_to_rest()
    await town.check_posts({stream_of(channel): keys_of(channel) for channel in town.channels})


@asynccontextmanager
async def in_mid_history(town: Town, jobs: Sequence[Job]) -> AsyncIterator[list[str]]:
    """The executions of these jobs, each with something stored and most still to come.

    Until the block ends they are served slowly, so that it is so when they are changed.
    """
    slow = Delay(seconds=0.5, method=HISTORY, after=3 * len(jobs))
    town.server.add(slow)
    executions = [await town.desk.ask(job) for job in jobs]

    async def stored() -> list[tuple[Any, ...]]:
        return await town.probe.rows("SELECT stream, count(*) FROM items GROUP BY 1")

    begun = await eventually(stored, lambda rows: len(rows) == len(jobs), seconds=120, what="all are being read")
    assert all(count < MESSAGES for _, count in begun), begun
    yield executions
    town.server.remove(slow)


async def paused(town: Town) -> set[str]:
    """The names of the jobs that are paused."""
    return {row[0] for row in await town.probe.rows("SELECT name FROM jobs WHERE paused")}
