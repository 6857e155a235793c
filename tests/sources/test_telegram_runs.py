"""Channels are collected by real workers through the real Telethon: which posts, in which mode, from where."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import pytest
from msgspec.structs import replace

from floodmark import Job
from floodmark.errors import SlowDown
from floodmark.model.job import ScheduleType, When
from floodmark.model.outcome import Done
from floodmark.observability.events import ModeChosen, RunEnded
from floodmark.outbound.caller import Caller, CallKey
from floodmark.sources.telegram.source import TelegramSource
from floodmark.sources.telegram.tables import telegram_channels
from floodmark.store.tables import watermarks
from floodmark.testing.eventually import eventually
from floodmark.testing.factories import expire, rescue, rows_of, settle, take
from floodmark.testing.telegram import Channel, LoopbackTelegram, TelegramBackend
from telegram_desk import (
    Desk,
    a_past_day,
    asked,
    collect_all,
    collect_some,
    date_of,
    expected,
    opened,
    stream_of,
    working,
)

pytest_plugins = ("backends", "telegram_fixtures")

T = TypeVar("T")
HISTORY = "messages.getHistory"
RESOLVE = "contacts.resolveUsername"


@pytest.fixture(params=["sqlite_copy", "pg_clean"])
def url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(request.param))


@pytest.mark.spec("T1", "T2", "T3", "T12")
@pytest.mark.thorough
async def test_the_first_tick_is_historical_the_next_incremental_and_a_third_finds_nothing(
    server: LoopbackTelegram, channel: Channel, sqlite_copy: str
) -> None:
    async with working(server, sqlite_copy, listen=(ModeChosen, RunEnded)) as desk:
        await desk.account()
        job = await desk.job(when=When(schedule_type=ScheduleType.INTERVAL, interval_seconds=1))

        async def ticked_twice() -> bool:
            return len(desk.happened(RunEnded)) >= 2

        await eventually(ticked_twice)
        assert list(await desk.posts(stream_of(channel))) == expected(channel)
        assert [event.mode for event in desk.happened(ModeChosen)][:2] == ["historical", "incremental"]
        first, second = desk.happened(RunEnded)[:2]
        assert (first.parsed, first.status) == (len(expected(channel)), "done")
        assert (second.parsed, second.status) == (0, "empty")
        assert first.channel_id == channel.channel_id

        new = channel.post("news")

        async def arrived() -> bool:
            return new in await desk.posts(stream_of(channel))

        await eventually(arrived)
        assert (await desk.watermark(job))["value"]["id"] == new


@pytest.mark.spec("T3", "T12")
@pytest.mark.thorough
async def test_a_tick_without_new_posts_costs_one_request_and_moves_one_clock(
    server: LoopbackTelegram, channel: Channel, sqlite_copy: str
) -> None:
    async with working(server, sqlite_copy) as desk:
        await desk.account()
        job = await desk.job()
        first = await desk.run(job)
        assert first.result["max_message_date"] == date_of(channel, expected(channel)[-1]).strftime(
            "%Y-%m-%dT%H:%M:%SZ"
        )
        before = await desk.watermark(job)
        server.forget()

        ended = await desk.run(job)
        after = await desk.watermark(job)

        assert ended.result == {**first.result, "mode": "incremental", "parsed_count": 0, "requests": 1}
        assert asked(server) == [HISTORY]
        assert after["last_parsed_at"] == before["last_parsed_at"]
        assert after["last_checked_at"] > before["last_checked_at"]
        assert after["value"] == before["value"]


@pytest.mark.spec("T3", "B3")
@pytest.mark.parametrize(("posts", "requests"), [(1, 1), (40, 1), (130, 2), (190, 3)])
@pytest.mark.thorough
async def test_new_posts_cost_one_request_unless_they_fill_a_page(
    server: LoopbackTelegram, channel: Channel, sqlite_copy: str, posts: int, requests: int
) -> None:
    """A page that is less than half full is the newest one. After a fuller page the next one is requested."""
    async with working(server, sqlite_copy) as desk:
        job = await desk.collected()
        for number in range(posts):
            channel.post(f"post {number}")
        server.forget()

        ended = await desk.run(job)

        assert (ended.items_new, ended.result["requests"]) == (posts, requests)
        assert asked(server) == [HISTORY] * requests
        assert list(await desk.posts(stream_of(channel))) == expected(channel)
        assert "run" not in (await desk.watermark(job))["value"]


@pytest.mark.spec("T3", "G9")
async def test_ids_that_begin_again_pause_the_job_with_the_reason(
    server: LoopbackTelegram, channel: Channel, sqlite_copy: str
) -> None:
    """Everything new has an id below the watermark then: without a word, it would never be read.

    Deleted posts at the end are no such case: what is left is older than what was read.
    """
    async with working(server, sqlite_copy) as desk:
        job = await desk.collected()
        channel.delete(*expected(channel)[-5:])
        ended = await desk.run(job)
        assert (ended.state, ended.result["parsed_count"], ended.result["requests"]) == ("done", 0, 1)

        channel.history = type(channel.history)()
        first = channel.post("the first one", date=datetime.now(UTC) + timedelta(hours=1))

        ended = await desk.run(job)
        assert ended.state == "dead"
        assert f"the message ids of @harbour started again: message {first} " in (ended.error_message or "")
        paused = await desk.jobs.get(job.name)
        assert paused.paused
        assert "started again" in (paused.pause_reason or "")


@pytest.mark.spec("T3", "T12")
async def test_a_crashed_run_goes_on_from_its_high_water_mark(
    server: LoopbackTelegram, channel: Channel, url: str
) -> None:
    async with working(server, url, worker=False) as desk:
        await desk.account()
        job = await desk.job()
        lease = await collect_some(desk, job, batches=1)
        crashed = await desk.watermark(job)
        assert crashed["value"]["run"]["at"] == crashed["value"]["id"] == expected(channel)[99]
        assert crashed["high_water"]["key"] == f"{channel.channel_id}:{expected(channel)[99]}"
        assert crashed["last_checked_at"] is None
        await expire(desk.resources, lease)
        await rescue(desk.resources)
    server.forget()
    async with working(server, url, listen=(ModeChosen,)) as desk:
        ended = await desk.reaches(lease.execution_id, "done")

        assert ended.result["mode"] == "historical"
        assert [event.mode for event in desk.happened(ModeChosen)] == ["historical"]
        assert server.calls(HISTORY)[0].offset_id == expected(channel)[99] + 1
        posts = await desk.posts(stream_of(channel))
        assert list(posts) == expected(channel)
        assert {post["revision"] for post in posts.values()} == {1}
        recovered = await desk.watermark(job)
        assert recovered["high_water"] is None
        assert "run" not in recovered["value"]
        assert recovered["last_parsed_at"] is not None


@pytest.mark.spec("T2", "T12")
@pytest.mark.thorough
async def test_a_channel_not_checked_for_long_is_read_again_without_a_gap_or_a_duplicate(
    server: LoopbackTelegram, channel: Channel, sqlite_copy: str
) -> None:
    async with working(server, sqlite_copy, listen=(ModeChosen,)) as desk:
        job = await desk.collected()
        await desk.change_watermark(job, last_checked_at=datetime.now(UTC) - timedelta(hours=25))
        new = channel.post("after a long time")

        ended = await desk.run(job)

        assert desk.happened(ModeChosen)[-1] == ModeChosen(job.stream, "historical", "stale_lpa")
        assert (ended.items_new, ended.items_changed, ended.result["parsed_count"]) == (1, 0, 1)
        # The posts of the last day were read again, and were known.
        assert ended.items_known > 50
        assert list(await desk.posts(stream_of(channel)))[-1] == new
        assert (await desk.run(job)).result["mode"] == "incremental"


@pytest.mark.spec("T11")
async def test_without_the_feature_the_last_day_is_read_and_nothing_twice(
    server: LoopbackTelegram, channel: Channel, sqlite_copy: str
) -> None:
    a_day = datetime.now(UTC) - timedelta(hours=24)
    recent = [n for n in expected(channel) if date_of(channel, n) >= a_day]
    off: dict[str, Any] = {"feature_incremental_parsing_enabled": False}
    async with working(server, sqlite_copy, **off) as desk:
        await desk.account()
        job = await desk.job()
        first = await desk.run(job)
        assert (first.result["mode"], first.items_new) == ("historical", len(recent))
        recent.append(channel.post("one more"))
        second = await desk.run(job)
        assert (second.result["mode"], second.items_new, second.items_changed) == ("historical", 1, 0)
        assert list(await desk.posts(stream_of(channel))) == recent


@pytest.mark.spec("T2")
async def test_the_mode_can_be_forced(server: LoopbackTelegram, channel: Channel, sqlite_copy: str) -> None:
    async with working(server, sqlite_copy, listen=(ModeChosen,), parser_mode_override="historical") as desk:
        job = await desk.collected()
        again = await desk.run(job)
        assert again.result["mode"] == "historical"
        assert again.items_new == 0 < again.items_known
        assert desk.happened(ModeChosen)[-1].forced == "override"


@pytest.mark.parametrize(
    ("params", "count"),
    [({"history": 10}, 10), ({"history": "all"}, None), ({"history": 100_000}, None)],
    ids=["10", "all", "more than there are"],
)
@pytest.mark.thorough
async def test_the_first_run_reads_as_many_as_it_is_told(
    server: LoopbackTelegram, channel: Channel, sqlite_copy: str, params: dict[str, Any], count: int | None
) -> None:
    first = expected(channel) if count is None else expected(channel)[-count:]
    async with working(server, sqlite_copy) as desk:
        await desk.account()
        await desk.run(await desk.job(params=params))
        assert list(await desk.posts(stream_of(channel))) == first


@pytest.mark.thorough
async def test_the_first_run_begins_when_it_is_told(
    server: LoopbackTelegram, channel: Channel, sqlite_copy: str
) -> None:
    """To the second, whether there is a post at that second or just before it."""
    async with working(server, sqlite_copy) as desk:
        await desk.account()
        for place in (0, 120, -1):
            for second in (-1, 0, 1):
                since = date_of(channel, expected(channel)[place]) + timedelta(seconds=second)
                # As many tenants: none of them has what another has.
                mine: dict[str, Any] = {"tenant_id": f"{place} {second}", "stream": f"{place} {second}"}
                await desk.run(await desk.job(params={"since": since.isoformat()}, **mine))
                first = [n for n in expected(channel) if date_of(channel, n) >= since]
                assert list(await desk.posts(stream_of(channel, mine["tenant_id"]))) == first


@pytest.mark.parametrize("since", ["2999-01-01", "1900-01-01"])
@pytest.mark.thorough
async def test_the_first_run_may_begin_at_any_time(
    server: LoopbackTelegram, channel: Channel, sqlite_copy: str, since: str
) -> None:
    first = [] if since > "2026" else expected(channel)
    async with working(server, sqlite_copy) as desk:
        job = await desk.collected(params={"since": since})
        assert list(await desk.posts(stream_of(channel))) == first
        # From then on nothing is left out.
        new = channel.post("news")
        assert (await desk.run(job)).result["mode"] == "incremental"
        assert list(await desk.posts(stream_of(channel))) == [*first, new]


@pytest.mark.thorough
async def test_an_empty_channel_is_remembered(
    server: LoopbackTelegram, backend: TelegramBackend, sqlite_copy: str
) -> None:
    empty = backend.channel("silence")
    async with working(server, sqlite_copy) as desk:
        await desk.account()
        job = await desk.job("@silence")
        assert (await desk.run(job)).items_new == 0
        assert (await desk.watermark(job))["value"] == {"channel": empty.channel_id, "id": 0}
        new = empty.post("at last")
        await desk.run(job)
        assert list(await desk.posts(stream_of(empty))) == [new]


async def test_a_single_day_is_read_once(server: LoopbackTelegram, backend: TelegramBackend, sqlite_copy: str) -> None:
    channel, day = a_past_day(backend)
    wanted = [n for n in expected(channel) if date_of(channel, n).date() == day]
    async with working(server, sqlite_copy) as desk:
        job = await desk.collected("@pier", params={"day": day.isoformat()}, stream=f"fetch:@pier:{day}")
        assert list(await desk.posts(stream_of(channel))) == wanted
        assert (await desk.watermark(job))["value"]["complete"] is True
        server.forget()
        assert (await desk.run(job)).state == "done"
        assert server.calls() == []


@pytest.mark.spec("T7")
async def test_posts_carry_the_tenant_and_user_of_their_account(
    server: LoopbackTelegram, channel: Channel, sqlite_copy: str
) -> None:
    async with working(server, sqlite_copy) as desk:
        await desk.account(tenant_id="acme", user_id="ada")
        await desk.run(await desk.job(params={"history": 5}))
        posts = await desk.posts(stream_of(channel, "acme"))
        assert len(posts) == 5
        assert {(post["tenant_id"], post["user_id"]) for post in posts.values()} == {("acme", "ada")}


@pytest.mark.spec("T7")
@pytest.mark.thorough
async def test_two_jobs_for_one_channel_keep_its_posts_once(
    server: LoopbackTelegram, channel: Channel, sqlite_copy: str
) -> None:
    async with working(server, sqlite_copy) as desk:
        await desk.account()
        by_name, by_number = await desk.job(), await desk.job(str(channel.channel_id))
        await desk.run(by_name)
        second = await desk.run(by_number)
        assert (second.items_new, second.items_known) == (0, len(expected(channel)))
        assert list(await desk.posts(stream_of(channel))) == expected(channel)


@pytest.mark.thorough
async def test_names_are_looked_up_once_also_after_a_restart(
    server: LoopbackTelegram, channel: Channel, sqlite_copy: str
) -> None:
    async with working(server, sqlite_copy) as desk:
        job = await desk.collected()
    async with working(server, sqlite_copy) as desk:
        channel.post("news")
        assert (await desk.run(job)).items_new == 1
        # Another job, another link to the same channel.
        await desk.run(await desk.job("https://t.me/Harbour", name="again", stream="again"))
    assert len(server.calls(RESOLVE)) == 1


async def test_a_number_is_found_among_the_dialogs_once(
    server: LoopbackTelegram, backend: TelegramBackend, sqlite_copy: str
) -> None:
    private = backend.channel(None, title="Back room", members=["reader1"])
    private.fill(5)
    async with working(server, sqlite_copy) as desk:
        job = await desk.collected(f"-100{private.channel_id}")
        await desk.run(job)
        assert list(await desk.posts(stream_of(private))) == expected(private)
    assert len(server.calls("messages.getDialogs")) == 1
    assert server.calls(RESOLVE) == []


async def test_a_renamed_channel_goes_on_even_if_another_takes_its_name(
    server: LoopbackTelegram, channel: Channel, backend: TelegramBackend, sqlite_copy: str
) -> None:
    async with working(server, sqlite_copy) as desk:
        job = await desk.collected()
        channel.rename("harbour_news")
        impostor = backend.channel("harbour", title="Impostor")
        impostor.fill(20)
        new = channel.post("under a new name")
        server.forget()

        assert (await desk.run(job)).items_new == 1
        assert (await desk.posts(stream_of(channel)))[new]["data"]["channel"] == "harbour_news"
        assert server.calls(RESOLVE) == []
        [known] = await rows_of(desk.resources, telegram_channels)
        assert known["username"] == "harbour_news"
        # Whoever asks for the name from now on means the other.
        await desk.run(await desk.job("@harbour", name="impostor", stream="impostor"))
        assert list(await desk.posts(stream_of(impostor))) == expected(impostor)


async def test_a_hash_that_is_out_of_date_is_looked_up_again(
    server: LoopbackTelegram, channel: Channel, sqlite_copy: str
) -> None:
    async with working(server, sqlite_copy) as desk:
        job = await desk.collected()
        async with desk.resources.database.writing() as connection:
            await connection.execute(telegram_channels.update().values(access_hash=1))
        channel.post("news")
        assert (await desk.run(job)).items_new == 1
    assert len(server.calls(RESOLVE)) == 2


@pytest.mark.thorough
async def test_edits_become_revisions_and_deletions_tombstones(
    server: LoopbackTelegram, channel: Channel, sqlite_copy: str
) -> None:
    async with working(server, sqlite_copy) as desk:
        job = await desk.collected(params={"revisit": "48h"})
        *_, deleted, edited, untouched = expected(channel)
        kept = (await desk.posts(stream_of(channel)))[deleted]["data"]
        channel.edit(edited, "corrected")
        channel.delete(deleted)
        new = channel.post("news")
        server.forget()

        ended = await desk.run(job, trigger="manual")

        posts = await desk.posts(stream_of(channel))
        assert (posts[edited]["revision"], posts[edited]["data"]["text"]) == (2, "corrected")
        assert (posts[deleted]["revision"], posts[deleted]["deleted"], posts[deleted]["data"]) == (2, True, kept)
        assert (posts[untouched]["revision"], posts[new]["revision"]) == (1, 1)
        assert (ended.items_new, ended.items_changed) == (1, 2)
        assert asked(server).count("channels.getMessages") == 3
        assert "run" not in (await desk.watermark(job))["value"]


@pytest.mark.thorough
async def test_recent_posts_are_not_read_again_with_every_run_unless_a_person_asks(
    server: LoopbackTelegram, channel: Channel, sqlite_copy: str
) -> None:
    async with working(server, sqlite_copy) as desk:
        job = await desk.collected(params={"revisit": "1h"})
        channel.post("now")
        await desk.run(job)
        server.forget()
        await desk.run(job)
        assert asked(server) == [HISTORY]
        await desk.run(job, trigger="manual")
        assert asked(server) == [HISTORY, HISTORY, "channels.getMessages"]


@pytest.mark.spec("T3", "B3")
@pytest.mark.thorough
async def test_recent_posts_are_read_again_as_soon_as_a_page_shows_that_some_have_changed(
    server: LoopbackTelegram, channel: Channel, sqlite_copy: str
) -> None:
    """The update counter of a channel grows by more than its new posts."""
    async with working(server, sqlite_copy) as desk:
        job = await desk.collected(params={"revisit": "48h", "revisit_every": "1h"})
        await _revisited_at(desk, job, timedelta(minutes=7))
        edited, deleted = expected(channel)[-1], expected(channel)[-2]
        server.forget()
        channel.post("nothing else")
        await desk.run(job)
        assert asked(server) == [HISTORY]

        channel.edit(edited, "corrected")
        new = channel.post("and something new")
        ended = await desk.run(job)
        assert (ended.items_new, ended.items_changed) == (1, 1)
        assert (await desk.posts(stream_of(channel)))[edited]["data"]["text"] == "corrected"

        # Not again at once: some channels edit every post.
        channel.delete(deleted)
        server.forget()
        assert (await desk.run(job)).items_changed == 0
        assert asked(server) == [HISTORY]
        await _revisited_at(desk, job, timedelta(minutes=7))
        assert (await desk.run(job)).items_changed == 1
        assert (await desk.posts(stream_of(channel)))[deleted]["deleted"]
        server.forget()
        await _revisited_at(desk, job, timedelta(minutes=7))
        await desk.run(job)
        assert asked(server) == [HISTORY]
        assert new in await desk.posts(stream_of(channel))


async def _revisited_at(desk: Desk, job: Job, ago: timedelta) -> None:
    """Let the last revisit have been some time ago."""
    mark = {**(await desk.watermark(job))["value"], "revisited_at": (datetime.now(UTC) - ago).isoformat()}
    await desk.watermarks.set(job.stream, mark)


@pytest.mark.thorough
async def test_an_interrupted_revisit_goes_on_at_its_page(
    server: LoopbackTelegram, channel: Channel, sqlite_copy: str
) -> None:
    async with working(server, sqlite_copy, rate_limit_strategy="fixed") as desk:
        job = await desk.collected(params={"revisit": "60h"})
        server.flood("channels.getMessages", seconds=5, after=1)
        channel.delete(expected(channel)[0], expected(channel)[-1])
        server.forget()

        execution = await desk.ask(job, trigger="manual")
        waiting = await desk.reaches(execution, "waiting")
        assert waiting.reason is not None
        assert "continues to look for edits" in waiting.reason
        ended = await desk.reaches(execution, "done")

        assert ended.items_changed == 2
        # Three pages; the second was asked for twice.
        assert asked(server).count("channels.getMessages") == 4
    assert server.violations == []


async def test_a_watermark_set_by_hand_is_gone_on_from(
    server: LoopbackTelegram, channel: Channel, sqlite_copy: str
) -> None:
    async with working(server, sqlite_copy) as desk:
        await desk.account()
        job = await desk.job()
        await desk.watermarks.set(job.stream, {"id": expected(channel)[-4]})
        ended = await desk.run(job)
        assert (ended.result["mode"], ended.items_new) == ("incremental", 3)


async def test_nothing_is_left_behind_by_a_run_that_is_left_half_way(
    server: LoopbackTelegram, channel: Channel, sqlite_copy: str
) -> None:
    async with working(server, sqlite_copy, worker=False) as desk:
        await desk.account()
        job = await desk.job()
        await collect_some(desk, job, batches=2)
        assert await take(desk.resources) == []
        [row] = await rows_of(desk.resources, watermarks)
        assert row["value"]["run"]["at"] == expected(channel)[199]


class _Grudging:
    """Lets so many calls through in each run, as an account does that has to go slowly."""

    def __init__(self, caller: Caller) -> None:
        self._caller, self.left = caller, 0

    async def call(self, key: CallKey, send: Callable[[], Awaitable[T]]) -> T:
        if key.method != "connect":
            if not self.left:
                raise SlowDown(timedelta(seconds=1), None, "slowed down")
            self.left -= 1
        return await self._caller.call(key, send)

    async def load(self, scope: str) -> None:
        await self._caller.load(scope)

    async def wait_of(self, scope: str, method: str) -> SlowDown | None:
        return await self._caller.wait_of(scope, method)


@pytest.mark.spec("T3", "T4")
@pytest.mark.parametrize("calls", [1, 2, 3])
@pytest.mark.parametrize("params", [{}, {"revisit": "60h"}], ids=["new", "revisit"])
async def test_a_run_that_may_make_but_one_call_still_gets_on(
    server: LoopbackTelegram, channel: Channel, sqlite_copy: str, calls: int, params: dict[str, str]
) -> None:
    """Whatever a call has brought is kept before the run waits: no call is made twice."""
    async with opened(server, sqlite_copy) as desk:
        await desk.account()
        job = await desk.job(params=params)
        grudging = _Grudging(desk.resources.caller)
        async with TelegramSource(desk.resources.settings, replace(desk.services, calls=grudging)) as source:
            for trigger, most in (("schedule", 6), ("manual", 4 if params else 1)):
                server.forget()
                await desk.ask(job, trigger)
                [lease] = await take(desk.resources)
                watermark = lease.watermark
                for _ in range(20):
                    grudging.left = calls
                    try:
                        watermark = await collect_all(desk, source, job, lease, watermark)
                        break
                    except SlowDown:
                        state = await desk.watermark(job)
                        watermark = state["value"]
                assert watermark is not None
                assert "run" not in watermark
                assert list(await desk.posts(stream_of(channel))) == expected(channel)
                assert len(asked(server)) == most
                await settle(desk.resources, lease, Done())


@pytest.mark.spec("T3", "F3")
@pytest.mark.parametrize("calls", [1, 2])
async def test_a_day_of_which_one_call_at_a_time_may_be_made_is_read_to_its_end(
    server: LoopbackTelegram, backend: TelegramBackend, sqlite_copy: str, calls: int
) -> None:
    """Where the day begins is found out once, though that takes a call and brings no post."""
    channel, day = a_past_day(backend)
    wanted = [n for n in expected(channel) if date_of(channel, n).date() == day]
    async with opened(server, sqlite_copy) as desk:
        await desk.account()
        job = await desk.job("@pier", params={"day": day.isoformat()})
        grudging = _Grudging(desk.resources.caller)
        async with TelegramSource(desk.resources.settings, replace(desk.services, calls=grudging)) as source:
            await desk.ask(job)
            [lease] = await take(desk.resources)
            watermark = lease.watermark
            for _ in range(10):
                grudging.left = calls
                try:
                    watermark = await collect_all(desk, source, job, lease, watermark)
                    break
                except SlowDown:
                    watermark = (await desk.watermark(job))["value"]
        assert watermark is not None
        assert watermark["complete"] is True
        assert "run" not in watermark
        assert list(await desk.posts(stream_of(channel))) == wanted
