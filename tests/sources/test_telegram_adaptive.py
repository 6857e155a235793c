"""Adaptive Telegram jobs from end to end: scheduler and worker on the loopback Telegram, minutes made into seconds."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from floodmark.model.job import ScheduleType, When
from floodmark.repositories.budgets import Budgets
from floodmark.rules.freshness import decode_activity
from floodmark.rules.measures import decode_measures
from floodmark.store.tables import activity, jobs
from floodmark.testing.eventually import eventually
from floodmark.testing.factories import rows_of
from floodmark.testing.telegram import Channel, LoopbackTelegram, TelegramBackend
from telegram_desk import Desk, stream_of, working

pytest_plugins = ("backends", "telegram_fixtures")
pytestmark = pytest.mark.spec("B1", "B2", "T14")

ADAPTIVE = When(schedule_type=ScheduleType.ADAPTIVE)
REQUESTS_PER_SECOND = 6
INTERVAL, LATE = 1.01 / REQUESTS_PER_SECOND, 0.5
HISTORY = "messages.getHistory"


@pytest.fixture
def channels(backend: TelegramBackend, channel: Channel) -> list[Channel]:
    """Two busy channels and four quiet ones. The account is a member of none, so that no update is pushed."""
    found = [channel, *(backend.channel(f"channel{number}") for number in range(5))]
    for one in found:
        one.members = set()
    for one in found[1:]:
        one.fill(20, start=datetime.now(UTC) - timedelta(days=20), every=timedelta(days=1))
    return found


@asynccontextmanager
async def posting(channels: list[Channel]) -> AsyncIterator[None]:
    async def post() -> None:
        for tick in range(10_000):
            await asyncio.sleep(0.1)
            for number, channel in enumerate(channels):
                if tick % (2 if number < 2 else 60) == 0:
                    channel.grow()

    task = asyncio.create_task(post())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@pytest.mark.thorough
async def test_busy_channels_are_read_more_often_within_the_budget_and_nothing_is_missed(
    server: LoopbackTelegram, channels: list[Channel], sqlite_copy: str
) -> None:
    async with working(server, sqlite_copy) as desk:
        await desk.account()
        await Budgets(desk.resources.database, desk.resources.clock).put("news", requests=60 * REQUESTS_PER_SECOND)
        made = [await desk.job(f"@{one.username}", when=ADAPTIVE, budget="news") for one in channels]
        async with posting(channels):
            await eventually(lambda: len(server.calls(HISTORY)) >= 60, within=180)
        for one in channels:
            await eventually(partial(_has_all, desk, one), within=180)
        calls = server.calls()
        # Nothing of the budget is spent on more than one request for each look, or on looking channels up again.
        check_requests([call.at for call in calls if call.method.startswith(("messages.", "contacts.", "channels."))])
        counted = Counter(call.channel for call in calls if call.method == HISTORY)
        assert all(counted[one.channel_id] for one in channels)
        levels = await levels_of(desk)
        assert min(levels[made[0].job_id], levels[made[1].job_id]) > max(levels[job.job_id] for job in made[2:])
        assert all(row["next_run"] for row in await rows_of(desk.resources, jobs))
        assert "expected" in await desk.explain(made[-1]) or "due" in await desk.explain(made[-1])


async def levels_of(desk: Desk) -> dict[str, float]:
    """The posts per second that were learned for each job."""
    levels = {}
    for row in await rows_of(desk.resources, activity):
        learned, measures = decode_activity(row["learned"]), decode_measures(row["measured"])
        assert learned is not None
        assert measures is not None
        assert measures.requests >= measures.polls > 0
        levels[row["job_id"]] = learned.items / learned.seconds
    return levels


async def _has_all(desk: Desk, channel: Channel) -> bool:
    kept = await desk.posts(stream_of(channel))
    assert set(kept) == set(channel.ids())
    assert {row["revision"] for row in kept.values()} == {1}
    return True


def check_requests(times: list[float]) -> None:
    """Any number of requests in a row takes as long as the budget says, but for the half second one may be late."""
    for first in range(len(times)):
        for last in range(first + 1, len(times)):
            assert last - first <= (times[last] - times[first] + LATE) / INTERVAL
