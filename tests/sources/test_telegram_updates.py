"""Updates that Telegram pushes become hints: a job runs soon after a post. They decide when, never what."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace
from sqlalchemy import update
from telethon.errors import FloodWaitError
from telethon.sessions import StringSession
from telethon.tl.functions.messages import GetDialogsRequest
from telethon.tl.types import InputPeerEmpty

from floodmark import Job
from floodmark.errors import SlowDown
from floodmark.model.job import ScheduleType, When
from floodmark.model.outcome import Done
from floodmark.observability.events import StepFailed
from floodmark.repositories.budgets import Budgets
from floodmark.repositories.hints import Hints
from floodmark.sources.telegram.client import UpdatesClient, make_client
from floodmark.sources.telegram.sessions import Sessions
from floodmark.sources.telegram.source import TelegramSource
from floodmark.sources.telegram.updates import PushedUpdates
from floodmark.store.tables import job_executions, jobs
from floodmark.testing.eventually import eventually
from floodmark.testing.factories import rows_of, settle, take
from floodmark.testing.telegram import Channel, LoopbackTelegram, TelegramBackend
from telegram_desk import Desk, asked, collect_all, expected, opened, stream_of, working

pytest_plugins = ("backends", "telegram_fixtures")

HISTORY = "messages.getHistory"
ADAPTIVE = When(schedule_type=ScheduleType.ADAPTIVE)
DIFFERENCES = ("updates.getDifference", "updates.getChannelDifference")


class CountedHints(Hints):
    """Hints whose writes are counted; the first `failures` of them fail."""

    writes, failures = 0, 0

    async def give_targets(self, source: str, targets: Sequence[str]) -> int:
        self.writes += 1
        if self.failures:
            self.failures -= 1
            raise ConnectionError("the database is away")
        return await super().give_targets(source, targets)


class Poller:
    """A process that collects when a test tells it to; the leader's part is done by the test."""

    def __init__(self, desk: Desk, hints: CountedHints) -> None:
        self.desk, self.hints = desk, hints
        resources = desk.resources
        self.services = replace(
            desk.services,
            updates=PushedUpdates(desk.services.channels, hints, resources.signals, resources.events),
        )
        self.source = TelegramSource(resources.settings, self.services)

    async def add(self, target: str = "@harbour", **fields: Any) -> Job:
        """A job that was run once, so that its channel is known."""
        job = await self.desk.job(target, **{"when": ADAPTIVE, **fields})
        await self.poll(job)
        return job

    async def poll(self, job: Job) -> None:
        await self.desk.ask(job)
        [lease] = await take(self.desk.resources)
        await collect_all(self.desk, self.source, job, lease, lease.watermark)
        await settle(self.desk.resources, lease, Done())

    async def hinted_at(self, job: Job) -> datetime | None:
        [row] = await rows_of(self.desk.resources, jobs, job_id=job.job_id)
        hinted_at: datetime | None = row["hinted_at"]
        return hinted_at

    async def hint(self, job: Job) -> datetime:
        """Wait for a hint, and take it as the leader does."""

        async def check() -> datetime | None:
            return await self.hinted_at(job)

        found = await eventually(check)
        assert found is not None
        async with self.desk.resources.database.writing() as connection:
            await connection.execute(update(jobs).values(hinted_at=None))
        return found


@asynccontextmanager
async def polling(server: LoopbackTelegram, url: str, **settings: Any) -> AsyncIterator[Poller]:
    async with opened(server, url, **settings) as desk:
        await desk.account()
        poller = Poller(desk, CountedHints(desk.resources.database, desk.resources.clock))
        async with poller.source:
            yield poller


@pytest.fixture
async def poller(server: LoopbackTelegram, sqlite_copy: str) -> AsyncIterator[Poller]:
    async with polling(server, sqlite_copy) as made:
        yield made


@pytest.mark.spec("B3")
async def test_a_post_in_a_joined_channel_hints_its_job_within_seconds(
    poller: Poller, server: LoopbackTelegram, channel: Channel
) -> None:
    """All updates of a burst are stored with one write, and nothing is requested because of them."""
    job, delays = await poller.add(), []
    for burst in range(3):
        server.forget()
        began = datetime.now(UTC)
        posted = [channel.post("one"), *channel.album(["two", "three", "four"]), channel.grow()]

        delays.append(await poller.hint(job) - began)

        assert server.calls() == []
        assert poller.hints.writes == burst + 1
        await poller.poll(job)
        assert asked(server) == [HISTORY]
        assert set(posted) <= set(await poller.desk.posts(stream_of(channel)))
    # The best of three, and seconds on a quiet machine; no poll takes place meanwhile.
    assert min(delays) < timedelta(seconds=30)


@pytest.mark.spec("B3")
@pytest.mark.thorough
async def test_posts_of_a_joined_channel_are_stored_within_seconds(
    server: LoopbackTelegram, backend: TelegramBackend, channel: Channel, sqlite_copy: str
) -> None:
    """The whole way: update, hint, leader, budget, worker. Polling alone would reach each channel every 20 s."""
    quiet = [backend.channel(f"quiet{number}") for number in range(9)]
    for other in quiet:
        other.fill(3)
    async with working(server, sqlite_copy) as desk:
        await desk.account()
        budgets = Budgets(desk.resources.database, desk.resources.clock)
        await budgets.put("news", requests=600)
        job = await desk.job("@harbour", when=ADAPTIVE, budget="news")
        for other in quiet:
            await desk.job(f"@{other.username}", when=ADAPTIVE, budget="news")
        for other in (channel, *quiet):
            await eventually(partial(_is_stored, desk, other))
        await budgets.put("news", requests=30)

        delays = []
        for _ in range(3):
            began = time.monotonic()
            channel.post("one")
            channel.album(["two", "three"])
            await eventually(partial(_is_stored, desk, channel))
            delays.append(time.monotonic() - began)
        # The best of three, and below the 20 s of polling: the machine may be busy.
        assert min(delays) < 10

        async def each_burst_cost_one_request() -> bool:
            runs = await rows_of(desk.resources, job_executions, job_id=job.job_id, state="done", items_new=3)
            return [run["result"]["requests"] for run in runs] == [1, 1, 1]

        await eventually(each_burst_cost_one_request)

        # Without updates polling finds them.
        server.disturb_updates(lose=1.0)
        await budgets.put("news", requests=600)
        channel.post("lost")
        await eventually(partial(_is_stored, desk, channel))
        assert server.unpushed == 1


async def _is_stored(desk: Desk, channel: Channel) -> bool:
    return list(await desk.posts(stream_of(channel))) == expected(channel)


@pytest.mark.spec("B3")
async def test_a_post_is_found_by_polling_when_its_update_is_lost(
    poller: Poller, server: LoopbackTelegram, channel: Channel
) -> None:
    """The next update shows that one is missing; that costs no request either."""
    job = await poller.add()
    server.forget()
    server.disturb_updates(lose=1.0)
    lost = channel.post("lost")
    await eventually(lambda: server.unpushed == 1)
    await poller.poll(job)
    assert lost in await poller.desk.posts(stream_of(channel))
    channel.post("lost as well")
    await eventually(lambda: server.unpushed == 2)

    server.heal()
    channel.post("pushed")
    await poller.hint(job)
    await poller.poll(job)

    assert list(await poller.desk.posts(stream_of(channel))) == expected(channel)
    assert poller.hints.writes == 1
    assert not [call for call in server.calls() if call.method in DIFFERENCES]


@pytest.mark.spec("B3")
async def test_half_of_the_updates_are_enough(poller: Poller, server: LoopbackTelegram, channel: Channel) -> None:
    job = await poller.add()
    server.disturb_updates(lose=0.5, duplicate=0.5)
    for number in range(20):
        channel.post(f"post {number}")
    await eventually(lambda: server.pushed + server.unpushed >= 20)
    assert server.pushed
    assert server.unpushed

    await poller.hint(job)
    await poller.poll(job)

    assert list(await poller.desk.posts(stream_of(channel))) == expected(channel)


@pytest.mark.spec("B3")
async def test_repeated_and_late_updates_give_no_second_hint(
    poller: Poller, server: LoopbackTelegram, backend: TelegramBackend, channel: Channel
) -> None:
    """Each page says up to which update it was read: what is not newer is no news."""
    other = backend.channel("market")
    job, marker = await poller.add(), await poller.add("@market")
    server.disturb_updates(duplicate=1.0)
    channel.post("pushed twice")
    await poller.hint(job)
    await poller.poll(job)
    server.disturb_updates(lose=1.0)
    channel.post("read before its update comes")
    await eventually(lambda: server.unpushed == 1)
    await poller.poll(job)
    server.heal()
    backend.notify(channel, channel.changes[-1].update)

    # Its update is handled after all others.
    other.post("marker")
    await poller.hint(marker)

    assert await poller.hinted_at(job) is None
    assert (server.pushed, poller.hints.writes) == (4, 2)


@pytest.mark.spec("B3")
async def test_a_channel_that_is_not_joined_gets_no_hints(
    poller: Poller, server: LoopbackTelegram, backend: TelegramBackend, channel: Channel
) -> None:
    backend.channel("market", members=()).post("old")
    job, foreign = await poller.add(), await poller.add("@market")
    market = backend.find_channel("market")
    assert market is not None

    market.post("only for members")
    channel.post("for all")
    await poller.hint(job)

    assert await poller.hinted_at(foreign) is None
    await poller.poll(foreign)
    assert list(await poller.desk.posts(stream_of(market))) == expected(market)


@pytest.mark.spec("B3")
async def test_a_renamed_channel_still_hints_its_job(poller: Poller, channel: Channel) -> None:
    job = await poller.add()
    channel.rename("docks")
    await poller.poll(job)
    channel.post("news")
    await poller.hint(job)


@pytest.mark.spec("B3")
async def test_a_process_that_has_read_nothing_yet_knows_the_jobs_of_a_channel(
    poller: Poller, backend: TelegramBackend, channel: Channel
) -> None:
    """After a restart, or when other processes read the channel: any session with the account is enough."""
    market = backend.channel("market")
    job, by_number = await poller.add(), await poller.add(str(market.channel_id))
    await poller.source.__aexit__(None, None, None)
    backend.channel("pier")
    fresh = Poller(poller.desk, CountedHints(poller.desk.resources.database, poller.desk.resources.clock))
    async with fresh.source:
        await fresh.add("@pier")

        channel.post("news")
        market.post("news")

        async def both() -> bool:
            return None not in (await fresh.hinted_at(job), await fresh.hinted_at(by_number))

        await eventually(both)


@pytest.mark.spec("B3")
async def test_a_session_that_loses_its_connection_listens_again(
    poller: Poller, server: LoopbackTelegram, channel: Channel
) -> None:
    job = await poller.add()
    for _ in range(2):
        server.forget()
        server.disconnect("reader1")
        await eventually(lambda: [call.method for call in server.calls()][-1:] == ["updates.getState"])
        await eventually(lambda: server.calls("updates.getState")[-1].result == "ok")

        channel.post("news")

        await poller.hint(job)


@pytest.mark.spec("B3", "G7")
async def test_a_failure_to_store_a_hint_is_reported_and_repaired(poller: Poller, channel: Channel) -> None:
    job, failures = await poller.add(), list[StepFailed]()
    poller.desk.resources.events.listen(StepFailed, failures.append)
    poller.hints.failures = 1

    channel.post("news")
    await poller.hint(job)

    assert failures == [StepFailed(step="telegram updates", error="ConnectionError: the database is away")]


@pytest.mark.spec("B3")
async def test_without_adaptive_jobs_nothing_is_pushed_and_idle_sessions_close(
    server: LoopbackTelegram, channel: Channel, sqlite_copy: str
) -> None:
    async with polling(server, sqlite_copy, telegram_session_linger=timedelta(seconds=0.1)) as poller:
        await poller.add(when=When(schedule_type=ScheduleType.EVENT))
        channel.post("news")
        await eventually(lambda: server.connected("reader1") == [])
        assert server.pushed == 0


@pytest.mark.spec("B3", "T6")
async def test_a_listening_session_stays_open_until_another_process_asks_for_it(
    server: LoopbackTelegram, channel: Channel, sqlite_copy: str
) -> None:
    linger = timedelta(seconds=0.2)
    async with polling(server, sqlite_copy, telegram_session_linger=linger) as poller:
        job = await poller.add()
        await asyncio.sleep(5 * linger.total_seconds())
        assert len(server.connected("reader1")) == 1
        channel.post("news")
        await poller.hint(job)

        other = Sessions(
            replace(poller.services, holder="another process"), ttl=timedelta(seconds=30), linger=linger, max_runs=4
        )
        with pytest.raises(SlowDown, match="is open in"):
            async with other.borrow("reader1"):
                pass

        async def is_released() -> bool:
            return (await poller.services.accounts.show("reader1")).holder is None

        await eventually(is_released)
        assert server.connected("reader1") == []
        async with other.borrow("reader1"):
            assert len(server.connected("reader1")) == 1
        await other.close()


class Recorder:
    """A listener that fails at its first update."""

    def __init__(self) -> None:
        self.received: list[tuple[int, int | None]] = []
        self.errors: list[Exception] = []

    def receive(self, channel_id: int, pts: int | None) -> None:
        self.received.append((channel_id, pts))
        if len(self.received) == 1:
            raise ValueError("not now")

    def report(self, error: Exception) -> None:
        self.errors.append(error)


@asynccontextmanager
async def connected(server: LoopbackTelegram, listener: Recorder) -> AsyncIterator[UpdatesClient]:
    client = make_client(StringSession(server.session("reader1")), 1, "hash", listener=listener)
    await client.connect()
    try:
        yield client
    finally:
        await client.disconnect()


async def call(client: UpdatesClient) -> Any:
    return await client(GetDialogsRequest(None, 0, InputPeerEmpty(), 10, hash=0))


@pytest.mark.spec("B3", "G7")
async def test_an_error_of_the_listener_is_reported_and_does_not_end_it(
    server: LoopbackTelegram, channel: Channel
) -> None:
    """Updates come after the first call; edits and deletions are no news."""
    listener = Recorder()
    async with connected(server, listener) as client:
        await call(client)
        channel.post("before the client listens")
        client.listen()
        await call(client)
        first = channel.post("one")
        channel.edit(first, "one, corrected")
        channel.delete(first)
        channel.post("two")
        await eventually(lambda: len(listener.received) == 2)

    known = channel.channel_id
    assert listener.received == [(known, channel.pts - 3), (known, channel.pts)]
    assert [str(error) for error in listener.errors] == ["not now"]


async def test_a_listening_client_leaves_flood_waits_to_its_caller(server: LoopbackTelegram) -> None:
    """Telethon itself would refuse the next call without sending it."""
    async with connected(server, Recorder()) as client:
        client.listen()
        server.flood("messages.getDialogs", seconds=60, holds=0.0)
        with pytest.raises(FloodWaitError):
            await call(client)
        assert (await call(client)).dialogs
