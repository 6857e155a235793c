"""Webhooks: what is sent, who can verify it, and what happens when the receiver does not accept it."""

import asyncio
import json
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert

from delivering.installation import collect, configured, deliver_all, delivery, on_sqlite
from delivering.receivers import OK, Answer, Delivered, EventReceiver
from floodmark import Floodmark
from floodmark.coordination.leader import Leader
from floodmark.errors import FloodmarkError, InvalidInput, Permanent, SlowDown, Transient
from floodmark.inbound.webhooks import Webhook, judge
from floodmark.model.audit import Actor
from floodmark.model.external_triggers import NewTrigger
from floodmark.model.job import ScheduleType, When
from floodmark.model.spec import JobSpec
from floodmark.observability.events import EventsDelivered, SinkFailed
from floodmark.operations.local import LocalOperations
from floodmark.outbound.retrying import RetryPolicy
from floodmark.settings import Settings
from floodmark.sinks.letters import MOST_LETTERS
from floodmark.sinks.port import EventsRefused
from floodmark.sinks.tables import sink_letters
from floodmark.sinks.trial import build_test_event
from floodmark.sinks.webhook import WebhookSink
from floodmark.testing.serving import served
from floodmark.wiring.resources import Resources

pytestmark = pytest.mark.spec("B7")

SECRET = "a secret that only two know"
WINDOW = timedelta(minutes=5)


def refusing(*keys: str, status: int = 422) -> Any:
    """A receiver that refuses every request with one of these items."""
    return lambda delivered: Answer(status, text="not wanted") if {*keys} & {*delivered.keys} else OK


def answering(answer: Answer, _: Delivered) -> Answer:
    return answer


@on_sqlite
async def test_events_come_with_ids_and_a_signature_that_floodmark_accepts(
    resources: Resources, leader: Leader, receiver: EventReceiver
) -> None:
    await collect(resources, leader, {"key": "a", "text": "ж 👍"}, {"key": "b"})
    section = {"url": f"{receiver.url}/events?for=%D0%B6", "secret": SECRET, "token": "fm_token"}
    await deliver_all(resources, leader, configured(resources, "archive", "webhook", section))

    [request] = receiver.taken
    assert json.loads(request.body)["sink"] == "archive"
    assert [event.pop("collected_at")[-1] for event in request.events] == ["Z", "Z"]
    first = {name: request.events[0][name] for name in ("event_id", "position", "stream", "key", "revision", "kind")}
    assert first == {
        "event_id": "test:events/a/1",
        "position": 1,
        "stream": "test:events",
        "key": "a",
        "revision": 1,
        "kind": "item.new",
    }
    assert request.events[0]["data"] == {"key": "a", "text": "ж 👍"}
    assert "traceparent" not in request.events[0]
    assert request.headers["content-type"] == "application/json"
    assert request.headers["authorization"] == "Bearer fm_token"
    webhook = Webhook(path=(), body=request.body, address=request.path, headers=request.headers)
    assert judge(webhook, SECRET, now=resources.clock.now(), window=WINDOW).refusal is None
    assert judge(webhook, "another", now=resources.clock.now(), window=WINDOW).refusal == "altered"


@on_sqlite
@pytest.mark.thorough
async def test_a_floodmark_takes_the_events_of_another(resources: Resources, leader: Leader, tmp_path: Path) -> None:
    """A signed trigger fires its job; the same events again fire nothing, and are accepted."""
    settings = Settings(database_url=f"sqlite:///{tmp_path}/other.db", floodmark_home=tmp_path, hostname="other")
    async with served(Floodmark(settings), scheduler=False, worker=False) as (other, url):
        operations = LocalOperations(other, Actor(who="ada"))
        when = When(schedule_type=ScheduleType.EVENT)
        await operations.add_job(JobSpec(name="feed", source="feed", target="https://example.com/feed", when=when))
        await operations.add_trigger(
            NewTrigger(kind="webhook", pattern="/events/{source}", jobs=["feed"], secret=SECRET)
        )
        section = {"url": f"{url}/api/v2/triggers/webhook/events/harbour", "secret": SECRET}
        sink = configured(resources, "other", "webhook", section)
        await collect(resources, leader, 1, 2, 3)
        await deliver_all(resources, leader, sink)
        await resources.repositories.sinks.replay("other", 0)
        await deliver_all(resources, leader, sink)
        assert (await resources.repositories.sinks.show("other")).position == 3
        [execution] = (await operations.executions()).items
        assert execution.trigger == "webhook:/events/{source}"

        wrong = configured(resources, "wrong", "webhook", {**section, "secret": "another"})
        with pytest.raises(Permanent, match="401"):
            await deliver_all(resources, leader, wrong)
    assert (await resources.repositories.sinks.show("wrong")).dead_letters == 0


@on_sqlite
async def test_the_answer_decides(resources: Resources, receiver: EventReceiver) -> None:
    """Whether the events are accepted, refused for good, or sent again soon, later, or when the receiver says."""
    sink = configured(resources, "archive", "webhook", {"url": f"{receiver.url}/x"}).sink
    assert isinstance(sink, WebhookSink)
    soon, later, events = Transient, Permanent, [build_test_event("archive", resources.clock.now())]
    expected: dict[int, type[FloodmarkError] | None] = {
        **dict.fromkeys((200, 201, 202, 204), None),
        **dict.fromkeys((301, 302, 307, 401, 403, 404, 405, 410), later),
        **dict.fromkeys((400, 406, 409, 413, 415, 422), EventsRefused),
        **dict.fromkeys((408, 425, 429, 500, 502, 503, 504), soon),
    }
    async with sink:
        for status, error in expected.items():
            there = {"Location": f"{receiver.url}/elsewhere"} if 300 <= status < 400 else {}
            receiver.judge = partial(answering, Answer(status, there, "" if status == 204 else "so"))
            if error is None:
                assert await sink.send(events) == 1
                continue
            with pytest.raises(error, match=f"status {status}: so") as raised:
                await sink.send(events)
            assert type(raised.value) is error
        for status in (429, 503):
            receiver.judge = partial(answering, Answer(status, {"Retry-After": "7"}))
            with pytest.raises(SlowDown) as wait:
                await sink.send(events)
            assert wait.value.after == timedelta(seconds=7)
    assert {request.path for request in receiver.asked} == {"/x"}, "redirects are not followed"


@on_sqlite
async def test_retry_after_is_honoured_and_resume_ends_the_wait(
    resources: Resources, leader: Leader, receiver: EventReceiver
) -> None:
    sinks, told = resources.repositories.sinks, list[SinkFailed]()
    resources.events.listen(SinkFailed, told.append)
    receiver.judge = lambda _: Answer(429, {"Retry-After": "120"})
    await collect(resources, leader, 1)
    delivering = delivery(resources, leader, configured(resources, "archive", "webhook", {"url": receiver.url}))
    await delivering.prepare()
    await delivering.step()
    shown = await sinks.show("archive")
    assert shown.retry_at is not None
    assert shown.failed_at is not None
    assert timedelta(seconds=100) < shown.retry_at - shown.failed_at <= timedelta(seconds=121)
    assert (shown.state, shown.position, len(told)) == ("failing", 0, 1)

    receiver.judge = lambda _: OK
    rest = await delivering.step()
    assert rest is not None
    assert rest > timedelta(seconds=60)
    assert receiver.taken == []
    await sinks.pause("archive", paused=False)
    await delivering.step()
    await delivering.close()
    assert receiver.keys == ["1"]
    shown = await sinks.show("archive")
    assert (shown.state, shown.error, shown.retry_at, shown.lag_events) == ("ok", None, None, 0)


@on_sqlite
async def test_failures_make_the_pauses_longer(resources: Resources, leader: Leader, receiver: EventReceiver) -> None:
    receiver.judge = lambda _: Answer(500)
    await collect(resources, leader, 1)
    sink, pauses = configured(resources, "archive", "webhook", {"url": receiver.url}), list[float]()
    for _ in range(4):
        with pytest.raises(Transient):
            await deliver_all(resources, leader, sink)
        shown = await resources.repositories.sinks.show("archive")
        assert shown.retry_at is not None
        assert shown.failed_at is not None
        pauses.append(round((shown.retry_at - shown.failed_at).total_seconds()))
    assert pauses == [1, 2, 4, 8]


async def test_refused_events_are_dead_letters_and_the_others_arrive(
    resources: Resources, leader: Leader, receiver: EventReceiver
) -> None:
    """With few more requests than there are refused events, on both databases."""
    told: list[EventsDelivered] = []
    resources.events.listen(EventsDelivered, told.append)
    receiver.judge = refusing("30", "31", "77")
    await collect(resources, leader, *range(1, 101))
    sink = configured(resources, "archive", "webhook", {"url": receiver.url})
    await deliver_all(resources, leader, sink)

    letters = await resources.repositories.sink_letters.page("archive")
    assert [(letter.position, letter.event_id) for letter in letters] == [
        (number, f"test:events/{number}/1") for number in (30, 31, 77)
    ]
    assert "status 422: not wanted" in letters[0].error
    assert receiver.keys == [str(number) for number in range(1, 101) if number not in (30, 31, 77)]
    assert len(receiver.asked) < 60
    assert sum(event.count for event in told) == 97
    shown = await resources.repositories.sinks.show("archive")
    assert (shown.position, shown.lag_events, shown.dead_letters, shown.state) == (100, 0, 3, "ok")

    receiver.judge = refusing("31")
    assert await resources.repositories.sink_letters.retry("archive", None) == 3
    await deliver_all(resources, leader, sink)
    assert receiver.keys[-2:] == ["30", "77"]
    [left] = await resources.repositories.sink_letters.page("archive")
    assert (left.position, left.is_retried) == (31, False)


@on_sqlite
async def test_a_letter_is_sent_with_the_revision_that_was_refused(
    resources: Resources, leader: Leader, receiver: EventReceiver
) -> None:
    """Also after the event was deleted from the outbox, and the item has changed."""
    receiver.judge = lambda delivered: Answer(400) if "bad" in str(delivered.body) else OK
    await collect(resources, leader, {"key": "a", "text": "bad"})
    sink = configured(resources, "archive", "webhook", {"url": receiver.url})
    await deliver_all(resources, leader, sink)
    await collect(resources, leader, {"key": "a", "text": "good"})
    await deliver_all(resources, leader, sink)
    await resources.upkeep.prune(history=timedelta(), events=timedelta(), limit=10)
    receiver.judge = lambda _: OK
    await resources.repositories.sink_letters.retry("archive", [1])
    await deliver_all(resources, leader, sink)
    assert [(event["revision"], event["data"]["text"]) for event in receiver.taken[-1].events] == [(1, "bad")]


@on_sqlite
async def test_a_letter_that_fails_again_delays_nothing(
    resources: Resources, leader: Leader, receiver: EventReceiver
) -> None:
    receiver.judge = refusing("1")
    await collect(resources, leader, 1, 2)
    sink = configured(resources, "archive", "webhook", {"url": receiver.url})
    await deliver_all(resources, leader, sink)
    receiver.judge = refusing("1", status=500)
    await resources.repositories.sink_letters.retry("archive", None)
    await collect(resources, leader, 3)
    await deliver_all(resources, leader, sink)
    assert receiver.keys == ["2", "3"]
    [left] = await resources.repositories.sink_letters.page("archive")
    assert (left.is_retried, "500" in left.error) == (False, True)


@on_sqlite
async def test_a_receiver_that_refuses_everything_stops_its_sink(
    resources: Resources, leader: Leader, receiver: EventReceiver
) -> None:
    receiver.judge = lambda _: Answer(400)
    await collect(resources, leader, 1)
    row = {"sink": "archive", "stream": "test:events", "key": "1", "revision": 1, "error": "no"}
    async with resources.database.writing() as connection:
        rows = [{**row, "position": 1000 + number} for number in range(MOST_LETTERS)]
        await connection.execute(insert(sink_letters), rows)
    with pytest.raises(Permanent, match="1,000 events were refused"):
        await deliver_all(resources, leader, configured(resources, "archive", "webhook", {"url": receiver.url}))
    assert (await resources.repositories.sinks.show("archive")).position == 0


@on_sqlite
async def test_batches_are_bounded_by_number_and_size(
    resources: Resources, leader: Leader, receiver: EventReceiver
) -> None:
    await collect(resources, leader, *({"key": str(number), "text": "x" * 400} for number in range(7)))
    await collect(resources, leader, {"key": "large", "text": "x" * 5000})
    section = {"url": receiver.url, "batch": "4", "max_bytes": "2000"}
    await deliver_all(resources, leader, configured(resources, "archive", "webhook", section))
    assert [len(request.events) for request in receiver.taken] == [3, 3, 1, 1]
    assert receiver.keys[-1] == "large"


@on_sqlite
async def test_the_url_and_the_secrets_are_never_shown(
    resources: Resources, leader: Leader, receiver: EventReceiver, capfd: pytest.CaptureFixture[str]
) -> None:
    path = "/hooks/T0123456789/canary-of-the-path"
    section = {"url": f"{receiver.url}{path}?key=canary-of-the-query", "secret": "canary-secret", "token": "canary-tok"}
    receiver.judge = lambda delivered: Answer(500, text=f"no {delivered.path} canary-secret canary-tok")
    await collect(resources, leader, 1)
    sink = configured(resources, "archive", "webhook", section)
    assert sink.sink.place == receiver.url
    with pytest.raises(Transient) as error:
        await deliver_all(resources, leader, sink)
    shown = await resources.repositories.sinks.show("archive")
    said = capfd.readouterr()
    assert "canary" not in f"{error.value}{error.value.hint}{shown}{said.out}{said.err}"


@on_sqlite
async def test_only_the_configured_host_may_be_private(resources: Resources) -> None:
    """The guard of all requests: an address of the cloud's metadata is refused unless someone names it."""
    for url, word in (("ftp://example.com/", "is not a URL"), ("https://u:p@example.com/", "without a user name")):
        with pytest.raises(InvalidInput, match=word) as refusal:
            configured(resources, "archive", "webhook", {"url": url})
        assert "u:p" not in str(refusal.value)
    sink = configured(resources, "archive", "webhook", {"url": "http://127.0.0.1:9/"}).sink
    assert isinstance(sink, WebhookSink)
    async with sink:
        assert sink._http is not None
        with pytest.raises(Permanent, match="not a public address"):
            sink._http.check("http://169.254.169.254/")
        with pytest.raises(Transient, match="cannot connect"):
            await sink.send([build_test_event("archive", resources.clock.now())])


@on_sqlite
async def test_a_delivery_that_waits_to_retry_ends_with_the_process(
    resources: Resources, leader: Leader, receiver: EventReceiver
) -> None:
    """And sent again by the next one."""
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()

    def hang(delivered: Delivered) -> Answer:
        loop.call_soon_threadsafe(asked.set)
        return Answer(500)

    receiver.judge = hang
    await collect(resources, leader, 1)
    sink = configured(resources, "archive", "webhook", {"url": receiver.url})
    hour = timedelta(hours=1)
    delivering = delivery(resources, leader, sink, RetryPolicy(attempts=9, elapsed=9 * hour, base=hour, longest=hour))
    await delivering.prepare()
    step = asyncio.create_task(delivering.step())
    await asked.wait()
    delivering.stop()
    assert await step is None
    await delivering.close()
    receiver.judge = lambda _: OK
    await deliver_all(resources, leader, sink)
    assert receiver.keys == ["1"]
