"""People are notified of stored matches: over real sockets, when it is time, and of each match."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import update

from floodmark.model.watches import WatchFields
from floodmark.observability.events import NotificationSent
from floodmark.testing.clock import SetClock
from floodmark.testing.eventually import eventually
from floodmark.testing.factories import Opened, count_of, rows_of
from floodmark.watches.notification_repository import NotificationRepository
from floodmark.watches.services import build_sender
from floodmark.watches.tables import watch_channels, watch_matches, watch_notifications
from notifying.receivers import Letterbox, Receiver
from watches.desk import DAY, HOUR, MINUTE, SECOND, WatchDesk, open_desk

pytestmark = pytest.mark.spec("B8")

ALL = ("webhook", "slack", "discord", "telegram")


async def test_every_channel_gets_the_matches(desk: WatchDesk) -> None:
    counted: list[NotificationSent] = []
    desk.resources.events.listen(NotificationSent, counted.append)
    await desk.watch("fire", name="fires", notify=ALL)
    await desk.collect("fire & <smoke>", "fire 2", "rain")
    await desk.work()
    await desk.work()
    by_path = {post.path.partition("?")[0]: post.json for post in desk.receiver.posts}
    assert len(desk.receiver.posts) == 4
    assert by_path["/hook"]["title"] == "fires: 2 matches"
    assert by_path["/hook"]["lines"] == ["test:news: fire & <smoke>", "test:news: fire 2"]
    assert by_path["/services/canary-slack"]["text"].splitlines()[1] == "• test:news: fire &amp; &lt;smoke&gt;"
    assert "fire & \\<smoke\\>" in by_path["/api/webhooks/canary-discord"]["content"]
    assert by_path["/api/webhooks/canary-discord"]["allowed_mentions"] == {"parse": []}
    bot = by_path["/bot123456:canary-telegram/sendMessage"]
    assert (bot["chat_id"], bot["parse_mode"]) == ("@room", "HTML")
    assert "test:news: fire &amp; &lt;smoke&gt;" in bot["text"]
    assert {(event.channel, event.result) for event in counted} == {(name, "sent") for name in ALL}
    row = await desk.show("fires")
    assert all(state.waiting == 0 and state.sent_at is not None and state.error is None for state in row.channels)


async def test_mail_is_sent_too(sqlite: Opened, receiver: Receiver) -> None:
    letterbox = Letterbox()
    with letterbox.serving() as where:
        mail = {"notify_email_to": "ada@example.com", "notify_email_smtp_url": f"smtp://{where}"}
        async with open_desk(sqlite, receiver, **mail) as desk:
            await desk.watch("fire", name="fires", notify=("mail",))
            await desk.collect("fire at the harbour")
            await desk.work()
            assert (await desk.show("fires")).notify == ("email",)
    [letter] = letterbox.letters
    assert letter["Subject"] == "[floodmark] fires: 1 match"
    assert "- test:news: fire at the harbour" in letter.get_content()


async def test_a_digest_has_everything_of_its_hour(timed: WatchDesk, clock: SetClock) -> None:
    clock.set(datetime(2026, 6, 1, 12, 10, tzinfo=UTC))
    await timed.watch("fire", name="fires", digest="hourly")
    for text in ("fire 1", "fire 2", "fire 3"):
        await timed.collect(text)
        await timed.work()
        clock.advance(15 * MINUTE)
    assert timed.sent == []
    assert (await timed.show("fires")).channels[0].waiting == 3
    clock.advance(5 * MINUTE)
    await timed.work()
    assert timed.texts == [["fire 1", "fire 2", "fire 3"]]


async def test_in_quiet_hours_messages_are_held_back_and_sent_as_one(timed: WatchDesk, clock: SetClock) -> None:
    clock.set(datetime(2026, 6, 1, 20, 30, tzinfo=UTC))
    await timed.watch("fire", name="fires", quiet="22:00-07:00", timezone="Europe/Berlin")
    for text in ("fire 1", "fire 2"):
        await timed.collect(text)
        await timed.work()
        clock.advance(4 * HOUR)
    assert timed.sent == []
    assert (await timed.show("fires")).channels[0].due_at == datetime(2026, 6, 2, 5, tzinfo=UTC)
    clock.set(datetime(2026, 6, 2, 5, tzinfo=UTC))
    await timed.work()
    assert timed.texts == [["fire 1", "fire 2"]]


async def test_after_a_message_there_is_none_for_the_cooldown(timed: WatchDesk, clock: SetClock) -> None:
    await timed.watch("fire", name="fires", cooldown_seconds=1800)
    for text in ("fire 1", "fire 2", "fire 3"):
        await timed.collect(text)
        await timed.work()
        clock.advance(MINUTE)
    assert timed.texts == [["fire 1"]]
    clock.advance(HOUR)
    await timed.work()
    assert timed.texts == [["fire 1"], ["fire 2", "fire 3"]]


async def test_a_shorter_cooldown_takes_effect_at_once(timed: WatchDesk, clock: SetClock) -> None:
    await timed.watch("fire", name="fires", digest="daily")
    await timed.collect("fire 1")
    await timed.work()
    await timed.operations.replace_watch("fires", WatchFields(name="fires", query="fire", notify=("webhook",)))
    await timed.work()
    assert timed.texts == [["fire 1"]]


async def test_a_channel_that_fails_is_tried_again_and_loses_nothing(timed: WatchDesk, clock: SetClock) -> None:
    await timed.watch("fire", name="fires", notify=("webhook", "discord"))
    timed.receiver.answers = [(503, {}, "away PATH")] * 3
    await timed.collect("fire 1")
    await timed.work()
    state = {one.channel: one for one in (await timed.show("fires")).channels}["webhook"]
    assert state.attempts == 1
    assert state.error is not None
    assert "127.0.0.1 answered 503: away" in state.error
    assert "canary" not in state.error
    posted = len(timed.receiver.posts)
    await timed.collect("fire 2")
    await timed.work()
    assert len(timed.receiver.posts) == posted, "both rest"
    timed.receiver.answers = []
    clock.advance(HOUR)
    await timed.work()
    assert [message["id"] for message in timed.sent[:-1]] == [timed.sent[0]["id"]] * 2, "the same message again"
    assert timed.texts[-2:] == [["fire 1"], ["fire 2"]]
    history = await timed.operations.watch_notifications("fires")
    assert [(row.channel, row.attempts, row.error) for row in history.items if row.channel == "webhook"] == [
        ("webhook", 1, None),
        ("webhook", 2, None),
    ]


@pytest.mark.thorough
async def test_a_channel_that_is_down_delays_no_other_and_piles_up_nothing(timed: WatchDesk, clock: SetClock) -> None:
    await timed.watch("fire", name="fires", notify=("webhook", "slack"))
    timed.receiver.refuse("/hook", 503)
    for number in range(5):
        await timed.collect(f"fire {number}")
        await timed.work()
        clock.advance(SECOND)
    assert len([post for post in timed.receiver.posts if post.path.startswith("/services")]) == 5
    [unsent] = [row for row in await rows_of(timed.resources, watch_notifications) if row["sent_at"] is None]
    assert (unsent["channel"], unsent["matches"]) == ("webhook", 1)
    assert (await timed.show("fires")).channels[1].waiting == 5
    timed.receiver.refused.clear()
    clock.advance(HOUR)
    await timed.work()
    assert timed.texts[-2:] == [["fire 0"], ["fire 1", "fire 2", "fire 3", "fire 4"]]


async def test_a_receiver_decides_how_long_it_rests(timed: WatchDesk, clock: SetClock) -> None:
    await timed.watch("fire", name="fires", notify=("discord",))
    timed.receiver.answers = [(429, {}, '{"retry_after": 120.5}'), (410, {}, "gone")]
    await timed.collect("fire 1")
    await timed.work()
    clock.advance(2 * MINUTE)
    await timed.work()
    assert len(timed.receiver.posts) == 1
    clock.advance(SECOND)
    await timed.work()
    assert len(timed.receiver.posts) == 2
    clock.advance(23 * HOUR)
    await timed.work()
    assert len(timed.receiver.posts) == 2, "after a 410 nothing is sent for a day"
    clock.advance(2 * HOUR)
    await timed.work()
    assert len(timed.receiver.posts) == 3
    assert (await timed.show("fires")).channels[0].error is None


async def test_a_message_that_is_refused_does_not_keep_others_from_being_sent(timed: WatchDesk) -> None:
    await timed.watch("fire", name="fires")
    await timed.watch("rain", name="rain")
    timed.receiver.answers = [(400, {}, "what is this?")]
    await timed.collect("fire", "rain")
    await timed.work()
    assert len(timed.sent) == 2
    failing = [name for name in ("fires", "rain") if (await timed.show(name)).channels[0].error]
    assert len(failing) == 1


async def test_what_was_sent_and_not_recorded_is_sent_again_with_the_same_id(timed: WatchDesk, clock: SetClock) -> None:
    await timed.watch("fire", name="fires")
    await timed.collect("fire 1")
    await timed.evaluate()
    timed.receiver.held.set()
    killed = asyncio.create_task(timed.sender.step())
    await eventually(lambda: len(timed.receiver.posts) == 1)
    killed.cancel()
    with pytest.raises(asyncio.CancelledError):
        await killed
    timed.receiver.held.clear()
    successor = build_sender(timed.resources)
    await successor.step()
    assert len(timed.sent) == 1, "the first sender may still be at work"
    clock.advance(MINUTE)
    await successor.step()
    await successor.step()
    await successor.close()
    first, again = timed.sent
    assert first == again


async def test_two_senders_send_each_message_once(desk: WatchDesk) -> None:
    for number in range(6):
        await desk.watch("fire", name=f"fires-{number}")
    await desk.collect("fire")
    await desk.evaluate()
    other = build_sender(desk.resources)
    await asyncio.gather(desk.sender.step(), other.step())
    await asyncio.gather(desk.sender.step(), other.step())
    assert sorted(message["watch"] for message in desk.sent) == [f"fires-{number}" for number in range(6)]
    await other.close()


async def test_a_sender_that_leaves_does_not_wait_for_a_silent_receiver(light: WatchDesk) -> None:
    await light.watch("fire", name="fires")
    await light.collect("fire")
    await light.evaluate()
    light.receiver.held.set()
    leaving = asyncio.create_task(light.sender.step())
    await eventually(lambda: len(light.receiver.posts) == 1)
    light.sender.stop()
    assert await leaving is None


async def test_a_channel_that_a_watch_no_longer_names_gets_nothing_more(timed: WatchDesk, clock: SetClock) -> None:
    await timed.watch("fire", name="fires", notify=("webhook", "slack"))
    timed.receiver.refuse("/hook", 503)
    await timed.collect("fire 1")
    await timed.work()
    fields = WatchFields(name="fires", query="fire", notify=("slack", "discord"))
    await timed.operations.replace_watch("fires", fields)
    timed.receiver.refused.clear()
    timed.receiver.posts.clear()
    clock.advance(HOUR)
    await timed.work()
    assert timed.receiver.posts == [], "discord is told of new matches only"
    await timed.collect("fire 2")
    await timed.work()
    assert len(timed.receiver.posts) == 2
    [given_up] = [row for row in await rows_of(timed.resources, watch_notifications) if row["sent_at"] is None]
    assert (given_up["channel"], given_up["try_at"]) == ("webhook", None)


async def test_a_channel_that_is_no_longer_configured_keeps_its_matches(light: WatchDesk) -> None:
    await light.watch("fire", name="fires", notify=("slack",))
    async with light.resources.database.writing() as connection:
        await connection.execute(update(watch_channels).values(channel="pager"))
    await light.collect("fire")
    await light.work()
    assert light.receiver.posts == []
    [state] = (await light.show("fires")).channels
    assert (state.channel, state.waiting) == ("pager", 1)


async def test_old_matches_and_messages_are_deleted(timed: WatchDesk, clock: SetClock) -> None:
    repository = NotificationRepository(timed.resources.database, timed.resources.clock)
    await timed.watch("fire", name="fires")
    await timed.collect("fire 1")
    await timed.work()
    clock.set(datetime.now(UTC) + 40 * DAY)
    await timed.collect("fire 2")
    await timed.work()
    assert await repository.prune(timedelta(days=30), limit=100) == 2
    assert await repository.prune(timedelta(days=30), limit=100) == 0
    assert [row["key"] for row in await rows_of(timed.resources, watch_matches)] == ["fire 2"]


@pytest.mark.thorough
async def test_of_a_busy_watch_the_newest_matches_are_kept(desk: WatchDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("floodmark.watches.notification_repository.MOST_KEPT", 10)
    repository = NotificationRepository(desk.resources.database, desk.resources.clock)
    await desk.watch("fire", name="fires")
    await desk.collect(*(f"fire {number}" for number in range(25)))
    await desk.work()
    assert await repository.prune(timedelta(days=30), limit=10) == 10
    assert await repository.prune(timedelta(days=30), limit=10) == 5
    assert await count_of(desk.resources, watch_matches) == 10
