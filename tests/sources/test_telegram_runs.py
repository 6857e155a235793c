"""Channels are collected by real workers through the real Telethon."""

import pytest

from floodmark.testing.telegram import Channel, LoopbackTelegram
from telegram_desk import expected, stream_of, working

pytest_plugins = ("backends", "telegram_fixtures")


@pytest.mark.spec("T1", "T2", "T3", "T12")
async def test_the_first_run_is_historical_and_the_next_incremental(
    server: LoopbackTelegram, channel: Channel, sqlite_copy: str
) -> None:
    async with working(server, sqlite_copy) as desk:
        await desk.account()
        job = await desk.job()

        first = await desk.run(job)
        assert (first.state, first.items_new) == ("done", len(expected(channel))), first.error_message
        assert first.result["mode"] == "historical"
        assert list(await desk.posts(stream_of(channel))) == expected(channel)

        new = channel.post("news")
        second = await desk.run(job)
        assert (second.result["mode"], second.result["parsed_count"]) == ("incremental", 1)
        assert (await desk.watermark(job))["value"]["id"] == new
        assert list(await desk.posts(stream_of(channel))) == expected(channel)
