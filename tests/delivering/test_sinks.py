"""Several sinks in one process: each has its own position, and none delays another."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, update

from delivering.installation import collect, configured, deliver_all, delivery, on_sqlite
from delivering.receivers import OK, Answer, Delivered, EventReceiver
from floodmark.coordination.leader import Leader
from floodmark.coordination.service import run_services
from floodmark.errors import Conflict, InvalidInput, Transient
from floodmark.model.audit import Actor
from floodmark.model.sinks import SinkRow
from floodmark.operations.doctor import doctor_of
from floodmark.operations.health import health_details
from floodmark.operations.local import LocalOperations
from floodmark.rules.sinks import is_stuck
from floodmark.runtime.scheduler_role import SchedulerRole
from floodmark.settings import Settings
from floodmark.sinks.redis_stream import RedisStreamSink
from floodmark.store.tables import outbox
from floodmark.testing.contracts.event_sink import delivery_store
from floodmark.testing.eventually import eventually
from floodmark.testing.factories import Opened
from floodmark.wiring.resources import Resources, open_resources

pytestmark = pytest.mark.spec("B7")


def with_sinks(settings: Settings, sinks: str, **options: str) -> Settings:
    return settings.model_copy(update={"sinks": sinks}).with_foreign(options)


@contextmanager
def holding(receiver: EventReceiver) -> Iterator[threading.Event]:
    """Let a receiver say nothing for as long as the block lasts."""
    asked, released = threading.Event(), threading.Event()

    def hold(_: Delivered) -> Answer:
        asked.set()
        released.wait(120)
        return OK

    receiver.judge = hold
    try:
        yield asked
    finally:
        receiver.judge = lambda _: OK
        released.set()


async def sink_of(resources: Resources, name: str) -> SinkRow:
    return await resources.repositories.sinks.show(name)


@pytest.mark.spec("T9")
@pytest.mark.thorough
async def test_a_slow_or_failing_sink_delays_no_other(opened: Opened, receiver: EventReceiver, tmp_path: Path) -> None:
    """A scheduler with four sinks: one that never answers, one that cannot be reached, and two that get everything."""
    with EventReceiver().serving() as slow, holding(slow) as asked:
        async with opened() as first:
            settings = with_sinks(
                first.settings,
                "good=webhook, slow=webhook, broken=webhook, part=webhook",
                SINK_GOOD_URL=receiver.url,
                SINK_SLOW_URL=slow.url,
                SINK_BROKEN_URL="http://127.0.0.1:9/",
                SINK_PART_URL=f"{receiver.url}/part",
                SINK_PART_STREAMS="other:*",
            )
            async with open_resources(settings) as resources:
                role = SchedulerRole(resources)
                await role.leader.step()
                events = [one for one in role.services if one.name == "relay" or one.name.startswith("sink:")]
                async with run_services(events, resources.events, patience=timedelta(seconds=0.1)):
                    await collect(resources, role.leader, *range(30))
                    await eventually(lambda: len(receiver.keys) == 30)
                    await collect(resources, role.leader, "x", stream="other:a")
                    await eventually(lambda: len(receiver.keys) == 32)
                    await eventually(asked.is_set)
                    await eventually(lambda: _has_failed(resources))
                    await eventually(lambda: _is_at(resources, "part", 31))
                    await role.measure()
                shown = {row.name: row for row in await resources.repositories.sinks.rows()}
                found = resources.registry.get_sample_value

    assert [key for request in receiver.taken if request.path == "/" for key in request.keys] == [
        *map(str, range(30)),
        "x",
    ]
    assert [request.keys for request in receiver.taken if request.path == "/part"] == [["x"]]
    assert {name: row.position for name, row in shown.items()} == {"good": 31, "part": 31, "slow": 0, "broken": 0}
    assert {name: row.state for name, row in shown.items() if name != "slow"} == {
        "good": "ok",
        "part": "ok",
        "broken": "failing",
    }
    assert shown["slow"].lag_events == 31
    assert found("floodmark_sink_events_total", {"sink": "good"}) == 31
    assert (found("floodmark_sink_failures_total", {"sink": "broken"}) or 0) > 0
    assert found("floodmark_sink_lag_events", {"sink": "broken"}) == 31
    assert (found("floodmark_sink_lag_seconds", {"sink": "broken"}) or 0) > 0
    assert found("floodmark_sink_dead_letters", {"sink": "good"}) == 0
    assert found("floodmark_sink_paused", {"sink": "good"}) == 0


async def _has_failed(resources: Resources) -> bool:
    return (await sink_of(resources, "broken")).error is not None


async def _is_at(resources: Resources, name: str, position: int) -> bool:
    return (await sink_of(resources, name)).position == position


@on_sqlite
async def test_redis_that_is_away_delays_no_reader(resources: Resources, leader: Leader, redis_url: str) -> None:
    """Events get their positions, and a sink beside it gets them; before, the numbering waited for Redis."""
    settings = with_sinks(resources.settings, "away=redis", SINK_AWAY_URL="redis://127.0.0.1:9/0", SINK_AWAY_STREAM="s")
    async with open_resources(settings) as other:
        sink = configured(other, "away", "redis", {"url": "redis://127.0.0.1:9/0", "stream": "s", "from": "oldest"})
        here = configured(other, "here", "redis", {"url": redis_url, "stream": "copy", "maxlen": "5", "from": "oldest"})
        await collect(other, leader, 1, 2)
        with pytest.raises(Transient, match="Redis cannot be reached"):
            await deliver_all(other, leader, sink)
        await deliver_all(other, leader, here)
        assert (await sink_of(other, "away")).position == 0
        assert (await sink_of(other, "here")).position == 2
        assert isinstance(here.sink, RedisStreamSink)
        assert here.sink.place == "copy"


@pytest.mark.spec("G4")
async def test_a_new_redis_stream_starts_with_the_next_event(resources: Resources, leader: Leader) -> None:
    """As ever; and what the version before has numbered but not sent is sent, so that an upgrade loses nothing."""
    await collect(resources, leader, 1, 2, 3)
    async with resources.database.writing() as connection:
        await connection.execute(update(outbox).where(outbox.c.position == 3).values(sent_at=None))
    sink = configured(resources, "redis", "redis", {"url": "redis://127.0.0.1:9/0"})
    await delivery(resources, leader, sink).prepare()
    assert (await sink_of(resources, "redis")).position == 2
    oldest = configured(resources, "all", "redis", {"url": "redis://127.0.0.1:9/0", "from": "oldest"})
    await delivery(resources, leader, oldest).prepare()
    assert (await sink_of(resources, "all")).position == 0


@on_sqlite
async def test_a_sink_that_moves_goes_on_where_it_was(
    resources: Resources, leader: Leader, receiver: EventReceiver
) -> None:
    """A webhook with another URL is the same sink; a folder of files is not."""
    await collect(resources, leader, 1)
    await deliver_all(resources, leader, configured(resources, "hook", "webhook", {"url": receiver.url}))
    with EventReceiver().serving() as other:
        await collect(resources, leader, 2)
        await deliver_all(resources, leader, configured(resources, "hook", "webhook", {"url": other.url}))
        assert (receiver.keys, other.keys) == (["1"], ["2"])
        assert (await sink_of(resources, "hook")).place == other.url


async def test_events_that_were_deleted_are_passed_over(
    resources: Resources, leader: Leader, receiver: EventReceiver
) -> None:
    """A sink that was paused for longer than events are stored goes on with the oldest one."""
    sink = configured(resources, "hook", "webhook", {"url": receiver.url})
    await collect(resources, leader, 1)
    await deliver_all(resources, leader, sink)
    await collect(resources, leader, 2, 3)
    await resources.upkeep.prune(history=timedelta(days=1), events=timedelta(), limit=2)
    await deliver_all(resources, leader, sink)
    assert receiver.keys == ["1", "3"]


async def test_a_replay_starts_at_a_position_or_a_time(
    resources: Resources, leader: Leader, receiver: EventReceiver
) -> None:
    operations, sink = (
        LocalOperations(resources, Actor(who="ada")),
        configured(resources, "hook", "webhook", {"url": receiver.url}),
    )
    await collect(resources, leader, *range(1, 41))
    async with resources.database.reading() as connection:
        between = (await connection.execute(select(outbox.c.sent_at).where(outbox.c.position == 40))).scalar_one()
    between += timedelta(microseconds=1)
    await collect(resources, leader, *range(41, 48))
    await deliver_all(resources, leader, sink)
    preview = await operations.replay_sink("hook", since=between, dry_run=True)
    assert (preview.before, preview.after, preview.events, preview.applied) == (47, 40, 7, False)
    assert (await operations.sink("hook")).position == 47
    assert (await operations.replay_sink("hook", since=between)).applied
    await deliver_all(resources, leader, sink)
    assert receiver.keys[47:] == [str(number) for number in range(41, 48)]
    assert (await operations.replay_sink("hook", position=47)).events == 1
    assert (await operations.replay_sink("hook", since=between - timedelta(days=1), dry_run=True)).events == 47
    assert (await operations.replay_sink("hook", since=between + timedelta(days=1), dry_run=True)).events == 0
    for wrong in ({}, {"position": 1, "since": between}, {"position": 49}):
        with pytest.raises(InvalidInput):
            await operations.replay_sink("hook", **wrong)
    audited = (await operations.audit(what="sink:hook")).items
    assert [(row.action, row.before, row.after) for row in audited] == [
        ("sink.replayed", {"position": 40 + 7}, {"position": 46}),
        ("sink.replayed", {"position": 47}, {"position": 40}),
    ]


@on_sqlite
async def test_a_replay_wins_over_a_delivery_under_way(
    resources: Resources, leader: Leader, receiver: EventReceiver
) -> None:
    sinks, loop = resources.repositories.sinks, asyncio.get_running_loop()

    def replaying(_: Delivered) -> Answer:
        receiver.judge = lambda _: OK
        asyncio.run_coroutine_threadsafe(sinks.replay("hook", 0), loop).result(60)
        return OK

    sink = configured(resources, "hook", "webhook", {"url": receiver.url})
    await collect(resources, leader, 1)
    await deliver_all(resources, leader, sink)
    await collect(resources, leader, 2)
    receiver.judge = replaying
    await deliver_all(resources, leader, sink)
    assert receiver.keys == ["1", "2", "1", "2"]


@pytest.mark.thorough
async def test_what_is_stuck_or_paused_is_told(resources: Resources, leader: Leader, receiver: EventReceiver) -> None:
    """By the doctor and in the health."""
    operations = LocalOperations(resources, Actor(who="ada"))
    doctor, sink = doctor_of(resources), configured(resources, "hook", "webhook", {"url": receiver.url})

    async def finding() -> tuple[bool, str, str]:
        [found] = [one for one in await doctor.check() if one.code == "sinks"]
        return found.ok, found.text, found.hint

    await collect(resources, leader, 1)
    await deliver_all(resources, leader, sink)
    assert await finding() == (True, "1 sink gets its events", "")
    await operations.pause_sink("hook")
    await collect(resources, leader, 2)
    assert (await finding())[1:] == (
        "1 of 1 sinks is paused: hook (events behind: 1)",
        "deliver again: floodmark sinks resume hook",
    )
    assert [row.state for row in (await health_details(resources))["sinks"]] == ["paused"]

    await operations.resume_sink("hook")
    receiver.judge = lambda _: Answer(500, text="busy")
    async with resources.database.writing() as connection:
        await connection.execute(update(outbox).values(created_at=resources.clock.now() - timedelta(minutes=6)))
    with pytest.raises(Transient):
        await deliver_all(resources, leader, sink)
    ok, text, hint = await finding()
    assert (ok, hint) == (False, "see: floodmark sinks show hook")
    assert text.startswith("the sink hook has not got 1 event of 6 min")
    assert is_stuck(await operations.sink("hook"))
    health = await health_details(resources)
    assert any("status 500: busy" in problem for problem in health["problems"])


async def test_a_sink_is_removed_once_it_is_no_longer_configured(
    resources: Resources, leader: Leader, receiver: EventReceiver
) -> None:
    operations, sinks = LocalOperations(resources, Actor(who="ada")), resources.repositories.sinks
    receiver.judge = lambda _: Answer(400)
    await collect(resources, leader, 1)
    await deliver_all(resources, leader, configured(resources, "hook", "webhook", {"url": receiver.url}))
    with pytest.raises(Conflict, match="is configured"):
        await operations.remove_sink("hook")
    await sinks.keep_only(["another"])
    assert (await operations.sink("hook")).state == "removed"
    assert (await operations.remove_sink("hook")).dead_letters == 1
    assert await operations.sinks() == []
    assert await resources.repositories.sink_letters.count("hook") == 0


@on_sqlite
async def test_events_are_not_read_again_by_sinks_that_are_up_to_date(resources: Resources, leader: Leader) -> None:
    """They come from memory, without those that another process has numbered in between."""
    await collect(resources, leader, *range(1, 11))
    recent = delivery_store(resources).recent
    events = await resources.repositories.events.to_send(0, 100)
    take: Any = partial(recent.after, limit=3, newest=10)
    assert take(0) is None
    recent.add(events[:4])
    recent.add(events[4:6])
    assert [event.position for event in take(0) or ()] == [1, 2, 3]
    assert [event.position for event in take(4) or ()] == [5, 6]
    assert take(6) is None
    assert [event.position for event in recent.after(0, 9, newest=2) or ()] == [1, 2]
    recent.add(events[8:])
    assert take(4) is None
    assert [event.position for event in take(8) or ()] == [9, 10]
