"""Channels without an account, through their web preview; and jobs that change between preview and account."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from sqlalchemy import select
from telethon.tl import types

from floodmark import Job
from floodmark.errors import Gone, InvalidInput, SlowDown, TargetDenied
from floodmark.model.job import ScheduleType, When
from floodmark.model.spec import JobSpec
from floodmark.settings import Settings
from floodmark.sources.telegram.posts import item_of
from floodmark.sources.telegram.preview.client import PreviewClient
from floodmark.sources.telegram.preview.sameness import look_same
from floodmark.sources.telegram.source import TelegramSource
from floodmark.store.tables import item_revisions
from floodmark.testing.factories import expire, rescue
from floodmark.testing.telegram import Channel, LoopbackTelegram, TelegramBackend
from floodmark.testing.telegram.media import photo, poll
from floodmark.testing.telegram.preview import LoopbackPreview
from floodmark.testing.web import status
from floodmark.wiring.services import services_for
from telegram_desk import Desk, collect_some, date_of, expected, opened, stream_of, working

pytest_plugins = ("backends", "telegram_fixtures")

WITHOUT_ACCOUNT: dict[str, Any] = {"preview": True, "history": "all"}


@pytest.fixture
async def preview(backend: TelegramBackend) -> AsyncIterator[LoopbackPreview]:
    async with LoopbackPreview(backend) as made:
        yield made


def at(preview: LoopbackPreview, **more: Any) -> dict[str, Any]:
    """The settings that read previews there, without pauses."""
    return {
        "telegram_preview_url": preview.url,
        "telegram_preview_delay": timedelta(),
        "web_robots_ttl": timedelta(hours=1),
        **preview.settings(),
        **more,
    }


async def switch(desk: Desk, job: Job, **params: Any) -> None:
    await desk.jobs.update(await desk.jobs.get(job.job_id), {"params": params})


async def revisions(desk: Desk) -> list[str]:
    async with desk.resources.database.reading() as connection:
        return [row.key for row in await connection.execute(select(item_revisions.c.key))]


@pytest.mark.spec("B12")
async def test_every_post_is_read_without_an_account_and_shows_what_an_account_shows(
    server: LoopbackTelegram, channel: Channel, preview: LoopbackPreview, sqlite_copy: str
) -> None:
    channel.post("Votes", media=poll("Which pier?", ["North", "East"], [3, 1]))
    channel.post("Big day 🔥\nsee <this>", views=4_449, post_author="A. Helm")
    async with working(server, sqlite_copy, **at(preview)) as desk:
        job = await desk.job(params=WITHOUT_ACCOUNT)
        ended = await desk.run(job)
        assert ended.state == "done", ended.error_message
        posts = await desk.posts(stream_of(channel))
        assert list(posts) == expected(channel)
        assert ended.result["parsed_count"] == len(posts)
        top = posts[channel.history.top]["data"]
        assert (top["text"], top["views"], top["views_approximate"]) == ("Big day 🔥\nsee <this>", 4_400, True)
        assert (top["author"], top["channel"], top["preview"]) == ("A. Helm", "harbour", True)
        votes = posts[channel.history.top - 1]["data"]["media"]
        assert (votes["type"], votes["answers"][0]) == ("poll", {"text": "North", "voters": None, "percent": 75})
        # Each album as a whole, as its messages are compared.
        albums: dict[Any, list[int]] = {}
        for number, post in posts.items():
            message: Any = channel.message(number)
            assert post["key"] == f"{channel.channel_id}:{number}"
            assert (post["occurred_at"], post["tenant_id"]) == (message.date, None)
            albums.setdefault(getattr(message, "grouped_id", None) or f"single {number}", []).append(number)
        for numbers in albums.values():
            ours = [posts[number]["data"] for number in numbers]
            theirs = [item_of(channel.message(number), channel.channel_id, "harbour").data for number in numbers]
            assert look_same(ours, theirs), (ours, theirs)
            assert len({post.get("grouped_id") for post in ours}) == 1
            assert [post.get("reply_to") for post in ours] == [post.get("reply_to") for post in theirs]
        assert sum(len(numbers) > 1 for numbers in albums.values()) > 1
        # One request at a time, and few of them: ids are read in windows of several pages.
        assert preview.most_at_once == 1
        assert len(preview.paths()) < 2 * len(posts) / 20 + 5

        # Then only what is new, with one request.
        preview.forget()
        new = channel.album(["Two boats", ""])
        assert (await desk.run(job)).items_new == 2
        assert preview.paths() == ["/s/harbour"]
        assert (await desk.run(job)).items_new == 0
        assert [n for n in await desk.posts(stream_of(channel)) if n >= new[0]] == new


@pytest.mark.spec("B12")
@pytest.mark.parametrize("first", ["preview", "account"])
@pytest.mark.thorough
async def test_a_job_changes_between_preview_and_account_without_duplicates_gaps_or_false_revisions(
    server: LoopbackTelegram, channel: Channel, preview: LoopbackPreview, sqlite_copy: str, first: str
) -> None:
    channel.post("A photo", media=photo("first"))
    # Both readings of each run start at the first post again.
    async with working(server, sqlite_copy, **at(preview, parser_mode_override="historical")) as desk:
        await desk.account()
        ways: list[dict[str, Any]] = [WITHOUT_ACCOUNT, {"history": "all"}]
        job = await desk.job(params=ways[first == "account"])
        await desk.run(job)
        before = await desk.posts(stream_of(channel))
        assert list(before) == expected(channel)

        await switch(desk, job, **ways[first == "preview"])
        new = channel.post("Later", media=photo("second"))
        ended = await desk.run(job)
        assert (ended.state, ended.items_new, ended.items_changed) == ("done", 1, 0), ended.error_message
        await desk.change_watermark(job, value={"previewed": channel.history.top})
        again = await desk.run(job)
        assert (again.items_new, again.items_changed) == (0, 0)
        posts = await desk.posts(stream_of(channel))
        assert list(posts) == expected(channel)
        assert await revisions(desk) == []
        assert {number: posts[number]["data"] for number in before} == {n: row["data"] for n, row in before.items()}

        # An edit is seen by both ways, and keeps what the preview does not show.
        channel.edit(new, "Later today")
        await desk.change_watermark(job, value={"previewed": channel.history.top})
        assert (await desk.run(job)).items_changed == 1
        await switch(desk, job, **ways[first == "account"])
        await desk.change_watermark(job, value={"previewed": channel.history.top})
        assert (await desk.run(job)).items_changed == 0
        post = (await desk.posts(stream_of(channel)))[new]["data"]
        assert (post["text"], post["media"]["type"]) == ("Later today", "photo")
        assert ("id" in post["media"]) == (first == "preview")


@pytest.mark.spec("B12", "G1")
@pytest.mark.thorough
async def test_an_interrupted_read_continues_after_its_last_slice(
    server: LoopbackTelegram, channel: Channel, preview: LoopbackPreview, sqlite_copy: str
) -> None:
    async with opened(server, sqlite_copy, **at(preview)) as desk:
        job = await desk.job(params=WITHOUT_ACCOUNT)
        lease = await collect_some(desk, job, batches=3)
        stored = list(await desk.posts(stream_of(channel)))
        assert 20 <= len(stored) < 200
        assert stored == expected(channel)[: len(stored)], "oldest first"
        await expire(desk.resources, lease)
        await rescue(desk.resources)
    preview.forget()
    async with working(server, sqlite_copy, **at(preview)) as desk:
        ended = await desk.reaches(lease.execution_id, "done", "dead")
        assert ended.state == "done", ended.error_message
        posts = await desk.posts(stream_of(channel))
        assert list(posts) == expected(channel)
        assert {row["revision"] for row in posts.values()} == {1}
        # Nothing that was stored is read again: no page ends there.
        asked = [int(path.partition("before=")[2]) for path in preview.paths() if "before=" in path]
        assert min(asked) > stored[-1]


@pytest.mark.thorough
async def test_a_first_read_starts_where_the_job_says(
    server: LoopbackTelegram, channel: Channel, preview: LoopbackPreview, sqlite_copy: str
) -> None:
    since = datetime.now(UTC) - timedelta(hours=10)
    day = since.date() - timedelta(days=1)
    async with working(server, sqlite_copy, **at(preview)) as desk:
        dates = {number: date_of(channel, number) for number in expected(channel)}
        cases: list[tuple[dict[str, Any], list[int]]] = [
            ({"history": 50}, [number for number in dates if number > channel.history.top - 50]),
            ({"since": since.isoformat()}, [number for number, date in dates.items() if date >= since]),
            ({"day": day.isoformat()}, [number for number, date in dates.items() if date.date() == day]),
        ]
        for index, (params, wanted) in enumerate(cases):
            job = await desk.job(
                params={"preview": True, **params}, tenant_id=f"t{index}", name=f"job{index}", stream=f"stream{index}"
            )
            ended = await desk.run(job)
            assert ended.state == "done", ended.error_message
            assert list(await desk.posts(stream_of(channel, f"t{index}"))) == wanted, params


@pytest.mark.spec("B12")
async def test_names_without_a_preview_and_refusals_are_told_apart(
    server: LoopbackTelegram, backend: TelegramBackend, preview: LoopbackPreview, sqlite_copy: str
) -> None:
    backend.channel("chatter").is_group = True
    backend.channel("hidden").has_preview = False
    backend.channel("silent")
    async with opened(server, sqlite_copy, **at(preview)) as desk:
        services = services_for(desk.resources, "telegram")
        client = PreviewClient(services)
        with pytest.raises(Gone, match="@nothing_here does not exist"):
            await client.page("nothing_here")
        with pytest.raises(TargetDenied, match="@chatter is a group"):
            await client.page("chatter")
        with pytest.raises(TargetDenied, match="@hidden has no preview"):
            await client.page("hidden")
        assert (await client.page("silent")).posts == ()

        preview.trouble("/s/harbour", status(200, text="come back later"))
        for _ in range(2):
            # The second is refused without a request.
            with pytest.raises(SlowDown, match="no preview") as told:
                await client.page("harbour")
            assert told.value.after > timedelta(minutes=20)
        assert preview.paths().count("/s/harbour") == 1
        await desk.limits.clear(f"web:127.0.0.1:{preview.port}")

    preview.trouble("/s/harbour", status(429, retry_after="70"))
    async with opened(server, sqlite_copy, **at(preview)) as desk:
        client = PreviewClient(services_for(desk.resources, "telegram"))
        with pytest.raises(SlowDown) as told:
            await client.page("harbour")
        assert told.value.after > timedelta(seconds=60)


async def test_robots_txt_and_the_pace_of_all_processes_are_obeyed(
    server: LoopbackTelegram, channel: Channel, preview: LoopbackPreview, sqlite_copy: str
) -> None:
    pause = 0.3

    settings = at(preview, telegram_preview_delay=timedelta(seconds=pause))
    async with opened(server, sqlite_copy, **settings) as one, opened(server, sqlite_copy, **settings) as two:
        clients = [PreviewClient(services_for(desk.resources, "telegram")) for desk in (one, two)]
        await asyncio.gather(*(client.page("harbour") for client in clients))
        times = [seen.at for seen in preview.seen]
        assert len(times) == 4, "robots.txt and the page, for each process"
        assert min(later - earlier for earlier, later in pairwise(times)) >= pause
        assert preview.most_at_once == 1

    preview.robots("User-agent: *\nDisallow: /s/")
    async with opened(server, sqlite_copy, **at(preview)) as desk:
        client = PreviewClient(services_for(desk.resources, "telegram"))
        with pytest.raises(TargetDenied, match="does not allow previews"):
            await client.page("harbour")


@pytest.mark.thorough
async def test_another_channel_under_the_name_is_not_read(
    server: LoopbackTelegram, channel: Channel, backend: TelegramBackend, preview: LoopbackPreview, sqlite_copy: str
) -> None:
    async with working(server, sqlite_copy, **at(preview)) as desk:
        job = await desk.job(params={"preview": True, "history": 5})
        await desk.run(job)
        channel.rename("harbour_old")
        backend.channel("harbour").post("We are others")
        ended = await desk.run(job)
        assert ended.state == "dead"
        assert "no longer the name of channel" in (ended.error_message or "")
        # An account finds the channel under its new name, if it knows it.


@pytest.mark.parametrize(
    ("target", "params", "says"),
    [
        ("1234567890", {"preview": True}, "has no preview without its name"),
        ("@harbour", {"preview": True, "comments": True}, "comments needs an account"),
        ("@harbour", {"preview": True, "revisit": "2d"}, "revisit needs an account"),
    ],
)
def test_what_a_preview_cannot_show_is_refused(target: str, params: dict[str, Any], says: str) -> None:
    source = TelegramSource(Settings())
    with pytest.raises(InvalidInput, match=says):
        source.check(target, params)
    spec = JobSpec(source="telegram", target=target, params=params, when=When(schedule_type=ScheduleType.EVENT))
    with pytest.raises(InvalidInput, match=says):
        source.complete(spec)


def test_formatting_is_read_as_telegram_counts_it() -> None:
    from selectolax.lexbor import LexborHTMLParser

    from floodmark.sources.telegram.preview.texts import read_text
    from floodmark.testing.telegram.preview_text import html_of

    text = "🔥🔥 Bold and a link, @harbour #sea\nexample.org <end>"
    entities = [
        types.MessageEntityBold(5, 4),
        types.MessageEntityTextUrl(16, 4, "https://example.org/?a=1&b=2"),
        types.MessageEntityItalic(16, 4),
        types.MessageEntityMention(22, 8),
        types.MessageEntityHashtag(31, 4),
        types.MessageEntityUrl(36, 11),
    ]
    node = LexborHTMLParser(f"<div>{html_of(text, entities)}</div>").css_first("div")
    assert node is not None
    read, found = read_text(node)
    assert read == text
    message = types.Message(1, types.PeerChannel(1), datetime.now(UTC), text, entities=entities)
    assert found == item_of(message, 1, "harbour").data["entities"]
