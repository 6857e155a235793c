"""Views, forwards and reactions over time, without revisions."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec import to_builtins
from sqlalchemy import select
from telethon.tl import types

from floodmark.client.client import Client
from floodmark.rules.starting import FORCED
from floodmark.sources.telegram.tables import telegram_engagement
from floodmark.store.tables import item_revisions
from floodmark.testing.telegram import Channel, LoopbackTelegram
from telegram_desk import Desk, asked, date_of, expected, stream_of, working

pytest_plugins = ("backends", "telegram_fixtures")

DAY, HALF = 86_400, 43_200


@pytest.fixture(params=["sqlite_copy", "pg_clean"])
def url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(request.param))


async def rows(desk: Desk, point: int) -> dict[int, dict[str, Any]]:
    """The stored samples for an age, by message id."""
    async with desk.resources.database.reading() as connection:
        found = await connection.execute(select(telegram_engagement).where(telegram_engagement.c.point == point))
        return {int(row["key"].partition(":")[2]): dict(row) for row in found.mappings()}


async def revisions(desk: Desk) -> int:
    async with desk.resources.database.reading() as connection:
        return len((await connection.execute(select(item_revisions.c.key))).all())


def _message(channel: Channel, number: int) -> Any:
    return channel.message(number)


def aged(channel: Channel, least: float, most: float) -> list[int]:
    """The ids of the posts of an age in seconds; service messages have no counts."""
    now = datetime.now(UTC)
    posts = [number for number in expected(channel) if _message(channel, number).action is None]
    ages = {number: (now - date_of(channel, number)).total_seconds() for number in posts}
    return [number for number, age in ages.items() if least <= age <= most]


def react(channel: Channel, numbers: list[int], views: int) -> None:
    """Change the counts of posts, and nothing else."""
    reactions = types.MessageReactions([types.ReactionCount(types.ReactionEmoji("🔥"), views // 10)])
    for number in numbers:
        same = _message(channel, number).edit_date
        channel.edit(number, views=views, forwards=3, reactions=reactions, edit_date=same)


@pytest.mark.spec("B12", "G2", "G3")
@pytest.mark.thorough
async def test_posts_are_sampled_at_their_ages_once_and_without_revisions(
    server: LoopbackTelegram, channel: Channel, url: str
) -> None:
    async with working(server, url) as desk:
        job = await desk.collected(params={"history": "all", "engagement": "12h,1d"})
        value = (await desk.watermark(job))["value"]
        assert set(value["sampled"]) == {str(HALF), str(DAY)}
        assert await rows(desk, HALF) == {}

        # As if the job had sampled nothing for some hours.
        now = datetime.now(UTC)
        starts = {str(point): {"date": (now - 1.5 * timedelta(seconds=point)).isoformat()} for point in (HALF, DAY)}
        await desk.change_watermark(job, value={**value, "sampled": starts})
        messages = aged(channel, 0, 1e9)
        react(channel, messages, 500)
        halves, days = aged(channel, HALF, 1.5 * HALF), aged(channel, DAY, 1.5 * DAY)
        server.forget()
        ended = await desk.run(job)

        assert (ended.items_new, ended.items_changed, await revisions(desk)) == (0, 0, 0)
        assert set(await rows(desk, HALF)) == set(halves)
        assert set(await rows(desk, DAY)) == set(days)
        row = (await rows(desk, DAY))[days[-1]]
        assert (row["views"], row["forwards"]) == (500, 3)
        assert row["reactions"] == [{"emoji": "🔥", "count": 50}]
        assert len(asked(server)) <= 4

        # A crash before the watermark was stored: what is sampled stays as it was first seen.
        react(channel, messages, 900)
        await desk.change_watermark(job, value={**value, "sampled": starts})
        server.forget()
        await desk.run(job)
        assert {one["views"] for one in (await rows(desk, DAY)).values()} == {500}
        assert "channels.getMessages" not in asked(server)


@pytest.mark.spec("B12", "G2")
@pytest.mark.thorough
async def test_revisits_keep_what_they_see(server: LoopbackTelegram, channel: Channel, url: str) -> None:
    async with working(server, url, telegram_engagement="10h") as desk:
        job = await desk.collected(params={"history": "all", "revisit": "15h"})
        seen = aged(channel, 0, 15 * 3600 - 60)
        react(channel, seen, 70)
        ended = await desk.run(job, FORCED)
        assert (ended.items_changed, await revisions(desk)) == (0, 0)
        newest = await rows(desk, 0)
        assert {newest[number]["views"] for number in seen} == {70}
        assert set(await rows(desk, 36_000)) == set(aged(channel, 36_000, 15 * 3600 - 60))
        first_seen = newest[seen[-1]]["seen_at"]

        react(channel, seen[:-1], 80)
        await desk.run(job, FORCED)
        newest = await rows(desk, 0)
        assert {newest[number]["views"] for number in seen[:-1]} == {80}
        assert (newest[seen[-1]]["views"], newest[seen[-1]]["seen_at"]) == (70, first_seen)
        assert {row["views"] for row in (await rows(desk, 36_000)).values()} == {70}

        async with Client(desk.url) as client:
            page = await client.engagement(job.name, limit=5)
            assert [post.key for post in page.items] == [
                f"{channel.channel_id}:{number}" for number in reversed(expected(channel)[-5:])
            ]
            one = await client.engagement(stream_of(channel), key=f"{channel.channel_id}:{seen[0]}")
            [post] = one.items
            assert [sample.occasion for sample in post.samples][-2:] == ["sample", "newest"]
            assert to_builtins(post.samples[-1])["views"] == 80
