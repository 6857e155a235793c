"""A backend that goes on by itself, and the command that serves it."""

import asyncio
import re
import signal
import time
from pathlib import Path

import pytest
from telethon import TelegramClient
from telethon.sessions import StringSession

from command_line import CommandLine
from floodmark.errors import Conflict, InvalidInput
from floodmark.testing.eventually import eventually
from floodmark.testing.telegram import LoopbackTelegram
from floodmark.testing.telegram.live_channels import LiveChannels, LivePlan, load_plan


def posts(living: LiveChannels) -> list[list[tuple[int, str, int]]]:
    return [
        [(i, m.message, int(m.date.timestamp())) for i in channel.ids() if (m := channel.message(i)) is not None]
        for channel in living.channels
    ]


def test_a_second_start_goes_on_with_the_same_posts() -> None:
    plan = LivePlan(channels=3, rate=1.0, history=20, began=time.time() - 300)
    first = LiveChannels(plan)
    first.post()
    before = posts(first)
    again = LiveChannels(plan)
    again.post()

    assert [channel.channel_id for channel in first.channels] == [channel.channel_id for channel in again.channels]
    assert list(first.backend.keys) == list(again.backend.keys)
    for old, new in zip(before, posts(again), strict=True):
        assert new[: len(old)] == old
        assert len(old) > 20


def test_channels_differ_in_their_pace_and_keep_to_the_rate() -> None:
    living = LiveChannels(LivePlan(channels=10, rate=2.0, history=5, began=time.time()))
    paces = [living.pace(number) for number in range(10)]

    assert sum(paces) == pytest.approx(2.0)
    assert sorted(paces, reverse=True) == paces
    assert len({channel.username for channel in living.channels}) == 10


def test_posts_that_are_due_are_posted_while_it_runs() -> None:
    living = LiveChannels(LivePlan(channels=2, rate=50.0, history=0, began=time.time()))
    seen: list[object] = []
    living.backend.listeners.append(lambda channel, update: seen.append(update))
    while not seen:
        living.post()

    assert len(seen) == sum(len(channel.ids()) for channel in living.channels)


async def test_now_and_then_an_account_is_told_to_wait() -> None:
    living = LiveChannels(LivePlan(channels=1, history=10, accounts=1, began=time.time()))
    async with LoopbackTelegram(living.backend) as server:
        client = TelegramClient(StringSession(server.session("reader1")), 1, "hash", flood_sleep_threshold=0)
        await client.connect()
        flooding = asyncio.create_task(living.flood(server, 0.01))

        async def told() -> bool:
            await asyncio.gather(client.get_messages("harbour"), return_exceptions=True)
            return any(call.result.startswith("FLOOD_WAIT") for call in server.calls("messages.getHistory"))

        await eventually(told)
        flooding.cancel()
        await client.disconnect()


def test_a_state_remembers_when_it_began(tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    first = load_plan(file, LivePlan(began=1_000.0))

    assert load_plan(file, LivePlan(began=2_000.0)) == first
    with pytest.raises(Conflict, match="has other options: channels 10, rate 2"):
        load_plan(file, LivePlan(channels=3, began=2_000.0))
    file.write_text("[]", encoding="utf-8")
    with pytest.raises(InvalidInput, match="is not a state file"):
        load_plan(file, LivePlan(began=2_000.0))


@pytest.mark.thorough
async def test_the_command_serves_it_and_says_what_to_type(tmp_path: Path) -> None:
    here = CommandLine(tmp_path)
    with here.running("testing", "telegram", "--channels", "2", "--rate", "200", "--history", "30") as process:
        [session] = await eventually(lambda: re.findall(r"accounts add reader1 --session (\S+) --api-id", here.said()))
        client = TelegramClient(StringSession(session), 1, "hash")
        await client.connect()
        found = await client.get_messages("harbour", limit=100)
        assert len(found) >= 30
        assert found[0].id == found.total

        async def grew() -> bool:
            return bool((await client.get_messages("harbour"))[0].id > found[0].id)

        await eventually(grew)
        await client.disconnect()
        process.send_signal(signal.SIGINT)
        assert await asyncio.to_thread(process.wait, 120) == 0
    said = here.said()
    assert "floodmark add telegram @harbour --every 10s" in said
    assert re.search(r"\d posts, \d+ calls, 0 flood waits$", said, re.MULTILINE)
    assert "Traceback" not in said


def test_a_port_that_is_taken_is_said_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with LoopbackTelegram.thread(LiveChannels(LivePlan(channels=1, history=1, began=time.time())).backend) as server:
        CommandLine(tmp_path).refused(
            "testing", "telegram", "--port", str(server.port), says="is not available", code=1
        )
