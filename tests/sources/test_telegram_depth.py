"""What is around a post: names, buttons, the raw message, comments, topics; and basic groups."""

from typing import Any

import pytest
from msgspec.structs import replace
from sqlalchemy import select
from telethon.tl import types

from floodmark.errors import InvalidInput
from floodmark.model.job import ScheduleType, When
from floodmark.model.spec import JobSpec
from floodmark.rules.starting import FORCED
from floodmark.settings import Settings
from floodmark.sources.telegram.source import TelegramSource
from floodmark.store.tables import item_revisions
from floodmark.testing.telegram import Channel, LoopbackTelegram, TelegramBackend
from telegram_desk import Desk, asked, expected, stream_of, working

pytest_plugins = ("backends", "telegram_fixtures")

HISTORY = "messages.getHistory"


@pytest.fixture(params=["sqlite_copy", "pg_clean"])
def url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(request.param))


async def count_revisions(desk: Desk) -> int:
    async with desk.resources.database.reading() as connection:
        return len((await connection.execute(select(item_revisions.c.key))).all())


@pytest.mark.spec("B11", "G2")
@pytest.mark.thorough
async def test_names_raw_messages_and_buttons_come_with_a_post_and_make_no_revisions(
    server: LoopbackTelegram, channel: Channel, backend: TelegramBackend, url: str
) -> None:
    weather = backend.channel("weather", title="Weather News")
    ada = backend.person("Ada", "Helm", username="ada")
    async with working(server, url) as desk:
        job = await desk.collected(params={"history": 5, "revisit": "100h"})
        forwarded = types.MessageFwdHeader(1_700_000_000, from_id=weather.peer, channel_post=4)
        new = channel.post("Rain", fwd_from=forwarded, from_id=ada)
        await desk.run(job)
        post = (await desk.posts(stream_of(channel)))[new]["data"]
        assert post["from"]["name"] == "Ada Helm"
        assert (post["forwarded_from"]["name"], post["forwarded_from"]["id"]) == ("Weather News", 4)
        assert "raw_message" not in post

        row = await desk.jobs.get(job.job_id)
        await desk.jobs.update(row, {"params": {"history": 5, "revisit": "100h", "raw": True}})
        weather.title = "Other News"
        button = types.KeyboardInlineButton("More", types.InlineButtonTypeUrl("https://example.org"))
        markup = types.ReplyInlineMarkup([types.KeyboardInlineButtonRow([button])])
        later = channel.post("Sun", reply_markup=markup)
        ended = await desk.run(job, FORCED)

        assert (ended.items_new, ended.items_changed) == (1, 0)
        assert await count_revisions(desk) == 0
        post = (await desk.posts(stream_of(channel)))[later]["data"]
        assert post["buttons"] == [[{"text": "More", "type": "url", "url": "https://example.org"}]]
        assert (post["raw_message"]["_"], post["raw_message"]["message"]) == ("Message", "Sun")


def discussed(backend: TelegramBackend) -> tuple[Channel, Channel, Any]:
    """A channel with two posts, its discussion group, and a person who has commented on the first post."""
    pier, group = backend.channel("pier"), backend.channel(None, title="Pier chat")
    pier.discuss_in(group)
    author = backend.person("Bo")
    first = pier.post("first")
    pier.post("second")
    pier.comment(first, "one", author=author)
    group.post("not a comment", from_id=author)
    return pier, group, author


@pytest.mark.spec("B11", "G1", "G2")
@pytest.mark.thorough
async def test_comments_are_collected_with_their_posts_into_the_stream_of_their_group(
    server: LoopbackTelegram, backend: TelegramBackend, url: str
) -> None:
    pier, group, author = discussed(backend)
    async with working(server, url) as desk:
        job = await desk.collected("@pier", params={"comments": True})
        comments = await desk.posts(stream_of(group))
        [comment] = comments.values()
        assert comment["data"]["text"] == "one"
        assert comment["data"]["comment_on"] == {"channel_id": pier.channel_id, "id": 1}
        assert comment["data"]["from"]["name"] == "Bo"
        assert comment["key"] == f"{group.channel_id}:{comment['data']['id']}"
        assert list(await desk.posts(stream_of(pier))) == expected(pier)
        row = await desk.watermark(job)
        assert row["items_stream"] == stream_of(pier)
        assert row["value"]["comments"] == {"group": group.channel_id, "id": group.ids()[-1]}

        answered = pier.comment(1, "two", author=author, reply_to=comment["data"]["id"])
        server.forget()
        ended = await desk.run(job)
        assert ended.result["comments_count"] == 1
        # The post's copy is not on the new page: it is read once.
        assert asked(server) == [HISTORY, HISTORY, "channels.getMessages"]
        assert (await desk.posts(stream_of(group)))[answered]["data"]["comment_on"]["id"] == 1

        # A job of the group itself finds the comments stored, and adds the rest.
        await desk.run(await desk.job(str(group.channel_id)))
        assert list(await desk.posts(stream_of(group))) == expected(group)
        assert await count_revisions(desk) == 0


@pytest.mark.spec("B11")
async def test_a_channel_without_or_with_a_closed_discussion_group_is_collected_with_a_note(
    server: LoopbackTelegram, channel: Channel, backend: TelegramBackend, sqlite_copy: str
) -> None:
    async with working(server, sqlite_copy) as desk:
        job = await desk.collected(params={"comments": True, "history": 5})
        ended = await desk.run(job)
        assert ended.state == "done"
        assert "the channel has no discussion group" in str(ended.result)

        group = backend.channel(None, members=["somebody"])
        channel.discuss_in(group)
        new = channel.post("now with comments")
        ended = await desk.run(job)
        assert ended.state == "done"
        assert "Join the discussion group with account reader1" in str(ended.result)
        assert new in await desk.posts(stream_of(channel))

        channel.comment(new, "hello", author=backend.person("Bo"))
        group.members = None
        ended = await desk.run(job)
        assert [post["data"]["text"] for post in (await desk.posts(stream_of(group))).values()] == ["hello"]


@pytest.mark.spec("B11", "T4")
@pytest.mark.thorough
async def test_a_flood_wait_of_the_group_neither_loses_comments_nor_reads_posts_again(
    server: LoopbackTelegram, backend: TelegramBackend, sqlite_copy: str
) -> None:
    pier, group, author = discussed(backend)
    for number in range(250):
        pier.comment(1, f"comment {number}", author=author)
    async with working(server, sqlite_copy) as desk:
        await desk.account()
        job = await desk.job("@pier", params={"comments": True, "history": "all", "revisit": "10h"})
        server.flood(HISTORY, seconds=1, channel=group, after=2)
        ended = await desk.run(job)
        assert ended.state == "done"
        texts = [post["data"]["text"] for post in (await desk.posts(stream_of(group))).values()]
        assert texts == ["one", *(f"comment {number}" for number in range(250))]
        assert list(await desk.posts(stream_of(pier))) == expected(pier)
        assert "run" not in (await desk.watermark(job))["value"]


@pytest.mark.spec("B11")
async def test_posts_of_a_forum_have_their_topic(
    server: LoopbackTelegram, backend: TelegramBackend, sqlite_copy: str
) -> None:
    forum = backend.channel("forum_1")
    boats = forum.topic("Boats")
    author = backend.person("Cy")
    header = types.MessageReplyHeader(reply_to_msg_id=boats, forum_topic=True)
    forum.post("a boat", from_id=author, reply_to=header)
    deeper = types.MessageReplyHeader(reply_to_msg_id=boats + 1, reply_to_top_id=boats, forum_topic=True)
    forum.post("a reply", from_id=author, reply_to=deeper)
    forum.post("hello all", from_id=author)
    async with working(server, sqlite_copy) as desk:
        job = await desk.collected("@forum_1")
        posts = await desk.posts(stream_of(forum))
        topics = [post["data"]["topic"] for post in posts.values()]
        general = {"id": 1, "title": "General"}
        assert topics == [general, *[{"id": boats, "title": "Boats"}] * 3, general]

        ships = forum.topic("Ships")
        forum.post("a ship", from_id=author, reply_to=types.MessageReplyHeader(reply_to_msg_id=ships, forum_topic=True))
        server.forget()
        await desk.run(job)
        # The new title came with the message that created the topic, and the others are known.
        assert asked(server) == [HISTORY]

        assert forum.topics is not None
        forum.topics[77] = "Old"
        forum.post("old", from_id=author, reply_to=types.MessageReplyHeader(reply_to_msg_id=77, forum_topic=True))
        server.flood("messages.getForumTopicsByID", seconds=600)
        ended = await desk.run(job)
        newest = list((await desk.posts(stream_of(forum))).values())[-1]["data"]
        assert (ended.state, newest["topic"]) == ("done", {"id": 77})


@pytest.mark.spec("B11", "G2")
@pytest.mark.thorough
async def test_a_basic_group_is_collected_with_its_account(
    server: LoopbackTelegram, backend: TelegramBackend, url: str
) -> None:
    backend.account("reader2")
    group = backend.basic_group("Crew")
    author = backend.person("Di")
    for number in range(120):
        group.post(f"message {number}", from_id=author)
    async with working(server, url) as desk:
        await desk.account("reader2")
        job = await desk.collected(str(group.channel_id), account="reader1", params={"revisit": "10h"})
        posts = await desk.posts(stream_of(group))
        assert list(posts) == expected(group)
        assert posts[1]["key"] == f"{group.channel_id}:1"
        assert posts[1]["data"]["from"]["name"] == "Di"

        group.edit(3, "edited")
        group.delete(4)
        new = group.post("news", from_id=author)
        ended = await desk.run(job, FORCED)
        posts = await desk.posts(stream_of(group))
        assert (ended.items_new, ended.items_changed) == (1, 2)
        assert (posts[3]["data"]["text"], posts[4]["deleted"], posts[new]["revision"]) == ("edited", True, 1)

        await desk.jobs.update(await desk.jobs.get(job.job_id), {"account": "reader2"})
        ended = await desk.run(job)
        assert ended.state == "dead"
        assert "was collected with account reader1" in (ended.error_message or "")

        await desk.jobs.update(await desk.jobs.get(job.job_id), {"account": "reader1"})
        moved = group.become_supergroup()
        ended = await desk.run(job)
        assert f"has become the supergroup {moved.channel_id}" in (ended.error_message or "")


def test_a_basic_group_without_an_account_is_refused() -> None:
    source = TelegramSource(Settings())
    spec = JobSpec(source="telegram", target="-4123456", when=When(schedule_type=ScheduleType.EVENT))
    with pytest.raises(InvalidInput, match="needs an account") as refused:
        source.complete(spec)
    assert refused.value.hint == "name a member: --account NAME"
    assert source.complete(replace(spec, account="reader1")).target == "-4123456"


@pytest.mark.parametrize("name", ["raw", "comments"])
def test_a_param_that_is_neither_true_nor_false_is_refused(name: str) -> None:
    source = TelegramSource(Settings())
    with pytest.raises(InvalidInput, match="neither true nor false"):
        source.check("@harbour", {name: "perhaps"})
    source.check("@harbour", {name: "yes"})
