"""Pages are read ahead of what is kept: nothing of that may show when something goes wrong, or when a run is left."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from typing import Any

import pytest

from floodmark.errors import SourceError
from floodmark.model.batch import Batch
from floodmark.sources.telegram.source import TelegramSource
from floodmark.testing.eventually import eventually
from floodmark.testing.factories import take
from floodmark.testing.telegram import Channel, LoopbackTelegram, TelegramBackend
from floodmark.testing.telegram.faults import FaultAnswer, Hang
from telegram_desk import Desk, a_past_day, asked, date_of, expected, opened, reading

pytest_plugins = ("backends", "telegram_fixtures")

HISTORY = "messages.getHistory"
_numbers = count()
Trouble = Callable[[LoopbackTelegram, int], None]


class Run:
    """A run that a test reads batch by batch."""

    def __init__(self, batches: Any) -> None:
        self._batches = batches
        self.read: list[Batch] = []

    async def next(self) -> Batch:
        batch: Batch = await anext(self._batches)
        self.read.append(batch)
        return batch

    async def to_its_end(self) -> None:
        async for batch in self._batches:
            self.read.append(batch)

    @property
    def ids(self) -> list[int]:
        return [item.data["id"] for batch in self.read for item in batch.items]


@dataclass(kw_only=True)
class HangAfter(Hang):
    """Changes the backend when its call arrives, then never answers it: whatever is asked next sees the change."""

    change: Callable[[], None]

    def answer(self) -> FaultAnswer:
        self.change()
        return super().answer()


@pytest.fixture
async def desk(server: LoopbackTelegram, channel: Channel, sqlite_copy: str) -> AsyncIterator[Desk]:
    async with opened(
        server, sqlite_copy, rate_limit_strategy="fixed", telegram_call_timeout=timedelta(seconds=3)
    ) as desk:
        await desk.account()
        yield desk


@asynccontextmanager
async def running(desk: Desk, target: str = "@harbour", **params: str) -> AsyncIterator[Run]:
    """A first run of a job of its own, which may be left at any point."""
    name = f"run{next(_numbers)}"
    job = await desk.job(target, name=name, stream=name, params=params or {"history": "all"})
    await desk.ask(job)
    [lease] = await take(desk.resources)
    async with (
        TelegramSource(desk.resources.settings, desk.services) as source,
        aclosing(reading(source, job, lease, lease.watermark)) as batches,
    ):
        yield Run(batches)


def left_behind() -> list[str]:
    return [task.get_name() for task in asyncio.all_tasks() if task.get_name() in ("read ahead", "next page")]


def flood(server: LoopbackTelegram, after: int) -> None:
    server.flood(HISTORY, seconds=60, after=after)


def close_the_door(server: LoopbackTelegram, after: int) -> None:
    server.fail(HISTORY, "CHANNEL_PRIVATE", after=after)


def forget_the_channel(server: LoopbackTelegram, after: int) -> None:
    server.fail(HISTORY, "CHANNEL_INVALID", after=after, times=None)


def revoke(server: LoopbackTelegram, after: int) -> None:
    server.fail(HISTORY, "AUTH_KEY_UNREGISTERED", code=401, after=after, times=None)


@pytest.mark.spec("T3", "T4", "G3")
@pytest.mark.parametrize("page", [1, 3])
@pytest.mark.parametrize("trouble", [flood, close_the_door, forget_the_channel, revoke])
async def test_what_was_read_before_an_error_comes_before_it(
    desk: Desk, server: LoopbackTelegram, channel: Channel, trouble: Trouble, page: int
) -> None:
    trouble(server, page)
    async with running(desk) as run:
        with pytest.raises(SourceError):
            await run.to_its_end()
        assert run.ids == expected(channel)[: page * 100]
        watermark = run.read[-1].watermark
        assert watermark is not None
        assert watermark["run"]["at"] == watermark["id"] == run.ids[-1]
    assert left_behind() == []


@pytest.mark.spec("T4", "G3")
@pytest.mark.parametrize(("when", "page"), [("before", 1), ("during", 2), ("after", 3)])
async def test_a_connection_that_breaks_at_a_page_costs_no_post(
    desk: Desk, server: LoopbackTelegram, channel: Channel, when: Any, page: int
) -> None:
    server.drop(when=when, method=HISTORY, after=page)
    async with running(desk) as run:
        await run.to_its_end()
        assert run.ids == expected(channel)
        assert "run" not in (run.read[-1].watermark or {})
    assert left_behind() == []


async def test_a_channel_that_is_unknown_in_mid_history_is_looked_up_once_and_read_on(
    desk: Desk, server: LoopbackTelegram, channel: Channel
) -> None:
    async with running(desk) as run:
        await run.to_its_end()
    server.forget()
    server.fail(HISTORY, "CHANNEL_INVALID", after=2)
    async with running(desk) as again:
        await again.to_its_end()
        assert again.ids == expected(channel)
    assert asked(server).count("contacts.resolveUsername") == 1


async def test_a_channel_renamed_in_mid_history_is_read_on_under_its_new_name(
    desk: Desk, server: LoopbackTelegram, channel: Channel, backend: TelegramBackend
) -> None:
    """Each post carries the name by which its page came, or a later one: never that of another channel."""

    def rename() -> None:
        channel.rename("old_harbour")
        backend.channel("harbour").fill(30)

    server.add(HangAfter(method=HISTORY, after=2, change=rename))
    async with running(desk) as run:
        await run.to_its_end()
        assert run.ids == expected(channel)
        items = [item for batch in run.read for item in batch.items]
        assert {item.data["channel_id"] for item in items} == {channel.channel_id}
        assert [item.data["channel"] for item in items[:100]] == ["harbour"] * 100
        assert items[-1].data["channel"] == "old_harbour"
    known = await desk.services.channels.find("reader1", channel_id=channel.channel_id, username=None)
    assert known is not None
    assert known.username == "old_harbour"


@pytest.mark.parametrize("silent_at", [1, 3])
async def test_a_run_that_is_left_in_the_middle_of_a_request_leaves_nothing_behind(
    desk: Desk, server: LoopbackTelegram, channel: Channel, silent_at: int
) -> None:
    """And the session can be used by the next."""
    server.hang(method=HISTORY, after=silent_at)
    async with running(desk) as run:
        waiting = asyncio.create_task(run.to_its_end())
        await eventually(lambda: any(call.result == "hang" for call in server.calls(HISTORY)))
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert left_behind() == []
        # How far it had come is a matter of moments.
        assert run.ids == expected(channel)[: len(run.ids)]
    async with running(desk) as again:
        await again.to_its_end()
        assert again.ids == expected(channel)


async def test_a_day_ends_in_the_middle_of_a_page_whatever_lies_behind(
    desk: Desk, server: LoopbackTelegram, backend: TelegramBackend
) -> None:
    """The page behind is asked for ahead of time: an error there does not matter."""
    channel, day = a_past_day(backend)
    wanted = [n for n in expected(channel) if date_of(channel, n).date() == day]
    # Where the day begins, and its two pages, the second of which reaches into the next day.
    assert 100 < len(wanted) < 200
    server.flood(HISTORY, seconds=60, after=3)
    async with running(desk, "@pier", day=day.isoformat()) as run:
        await run.to_its_end()
        assert run.ids == wanted
        watermark = run.read[-1].watermark
        assert watermark is not None
        assert (watermark["id"], watermark["complete"]) == (wanted[-1], True)
        assert "run" not in watermark
    assert left_behind() == []
