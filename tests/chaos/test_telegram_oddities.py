"""Clocks that are wrong, and texts that are hard to keep."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from sqlalchemy import text
from telethon.tl import types

from chaos.town import HISTORY
from floodmark.sources.telegram.posts import items_of
from floodmark.testing.telegram import Channel, LoopbackTelegram, TelegramBackend, media
from telegram_desk import expected, stream_of, working

pytest_plugins = ("backends", "telegram_fixtures")

HOUR = timedelta(hours=1)
LONG = 2**62 + 1
FIELDS = {
    *("id", "channel_id", "channel", "date", "text", "kind", "entities", "media", "views", "forwards", "replies"),
    *("reactions", "edit_date", "grouped_id", "reply_to", "forwarded_from", "author", "via_bot", "pinned", "silent"),
}
TEXTS = {
    "right to left": "العبّارة تصل إلى الرصيف في الساعة 9:30",
    "both directions": "ferry \u202eعبارة\u202c 12 \u200fשלום\u200e end",
    "emoji of several characters": "👨‍👩‍👧‍👦 🇳🇴 👍🏽 🏴󠁧󠁢󠁳󠁣󠁴󠁿 ☎️",
    "the longest there is": "ж" * 4096,
    "beyond the first plane": "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𒀀 " * 100,
    "control characters": "".join(map(chr, range(1, 32))) + "\x7f\x80\x85\u2028\u2029\ufeff\ufffe",
    "a nul": "before\0after",
    "what looks like an escape": "\\u0000 \\0 %00 &#0; \\x00 ␀",
    "quotes and statements": "'; DROP TABLE items; -- \" ` $$ {} %s :name ?",
    "combining and wide": "Z͑ͫ̓ͪ̂ͫ̽͏̴̙̤̞͉͚̯̞̠͍A̴̵̜̰͔ͫ͗͢L̠ͨͧͩ͘G̴̻͈͍͔̹̑͗̎̅͛́Ǫ̵̹̻̝̳͂̌̌͘!͖̬̰̙̗̿̋ͥͥ̂ͣ̐́́͜͞ ＦＵＬＬ",
    "only spaces": " \t\n \u00a0\u3000\u200b",
}


@pytest.mark.spec("T12", "G3")
@pytest.mark.parametrize("skew", [HOUR, -HOUR], ids=["ahead", "behind"])
@pytest.mark.thorough
async def test_a_server_whose_clock_is_wrong_is_collected_all_the_same(
    server: LoopbackTelegram, backend: TelegramBackend, channel: Channel, sqlite_copy: str, skew: timedelta
) -> None:
    """Posts keep the date their server gave them; what comes next, and for how long to wait, is not told by it."""
    backend.skew = skew
    channel.post("dated by the wrong clock")
    server.flood(HISTORY, seconds=1, after=1)
    async with working(server, sqlite_copy, rate_limit_strategy="fixed") as desk:
        await desk.account()
        job = await desk.job(params={"history": "all"})
        first = await desk.run(job)
        assert (first.state, list(await desk.posts(stream_of(channel)))) == ("done", expected(channel))
        posted = channel.post("and another")
        second = await desk.run(job)
        assert (second.items_new, second.result["mode"]) == (1, "incremental")
        row = (await desk.posts(stream_of(channel)))[posted]
        assert row["occurred_at"] == channel.message(posted).date  # type: ignore[union-attr]  # it was just posted
        third = await desk.run(job)
        assert third.items_new == 0
    assert server.violations == []


@pytest.mark.spec("T7", "G3")
@pytest.mark.thorough
async def test_any_text_and_every_field_come_back_from_sqlite(
    server: LoopbackTelegram, backend: TelegramBackend, sqlite_copy: str
) -> None:
    await oddities_come_back(server, backend, sqlite_copy)


@pytest.mark.spec("T7", "G3")
@pytest.mark.thorough
async def test_any_text_and_every_field_come_back_from_postgresql(
    server: LoopbackTelegram, backend: TelegramBackend, pg_clean: str
) -> None:
    await oddities_come_back(server, backend, pg_clean)


async def oddities_come_back(server: LoopbackTelegram, backend: TelegramBackend, database_url: str) -> None:
    """From the server through the client into the store, to whoever reads the items or the view of posts."""
    channel = backend.channel("oddities")
    # No text of PostgreSQL can hold a NUL: it is kept as the sign for it.
    sent = {channel.post(words): words.replace("\0", "␀") for words in TEXTS.values()}
    full = channel.post("Bold 👍 and more", **every_field())
    async with working(server, database_url) as desk:
        await desk.account()
        done = await desk.run(await desk.job("@oddities", params={"history": "all"}))
        assert (done.state, done.items_new) == ("done", len(TEXTS) + 1)
        kept = await desk.posts(stream_of(channel))
        assert {message_id: kept[message_id]["data"]["text"] for message_id in sent} == sent
        [wanted] = items_of([channel.message(full)], channel.channel_id, "oddities")
        assert kept[full]["data"] == msgspec.to_builtins(wanted.data)
        assert kept[full]["data"].keys() >= FIELDS
        async with desk.resources.database.reading() as connection:
            rows = await connection.execute(text("SELECT message_id, text FROM posts"))
            assert {row.message_id: row.text for row in rows} == {**sent, full: "Bold 👍 and more"}


def every_field() -> dict[str, Any]:
    """Whatever a message of a channel can have besides its text."""
    at = datetime(2026, 11, 15, 12, tzinfo=UTC)
    return {
        "silent": True,
        "pinned": True,
        "noforwards": True,
        "fwd_from": types.MessageFwdHeader(at, from_id=types.PeerChannel(1400000001), channel_post=7, post_author="A"),
        "via_bot_id": LONG,
        "reply_to": types.MessageReplyHeader(reply_to_msg_id=1, quote=True, quote_text="عبارة", quote_offset=5),
        "media": media.photo("every", "field"),
        "entities": [types.MessageEntityBold(0, 4), types.MessageEntityTextUrl(8, 3, "https://example.org/ж")],
        "views": 2**31 - 1,
        "forwards": 1,
        "replies": types.MessageReplies(3, 1),
        "edit_date": at,
        "post_author": "Редактор",
        "grouped_id": LONG,
        "reactions": types.MessageReactions(
            [
                types.ReactionCount(types.ReactionEmoji("👍🏽"), 3),
                types.ReactionCount(types.ReactionCustomEmoji(LONG), 2),
            ]
        ),
        "ttl_period": 86_400,
    }
