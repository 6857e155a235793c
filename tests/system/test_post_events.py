"""Posts of channels are told in typed, versioned events: in the Redis stream, and to readers of the store."""

import json
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import jsonschema
import pytest

from floodmark.coordination.leader import Leader
from floodmark.model.batch import Item
from floodmark.model.shapes import event_shape
from floodmark.repositories.events import EventLog
from floodmark.schemas import names, schema
from floodmark.sinks.redis_stream import RedisStreamSink
from floodmark.sinks.relay import Relay
from floodmark.testing.contracts.event_sink import deliver
from floodmark.testing.factories import TTL, Opened
from floodmark.wiring.resources import Resources
from system.channel_posts import DAY, HARBOUR, a_post, keep, validate

pytest_plugins = ("backends",)

EVERYTHING: dict[str, Any] = {
    "channel": "harbour",
    "entities": [{"type": "text_url", "offset": 0, "length": 4, "url": "https://example.org/?q=\"'"}],
    "media": {"type": "photo", "id": "5368324170671202286", "size": 120},
    "views": 12,
    "forwards": 1,
    "replies": 3,
    "reactions": [{"emoji": "👍", "count": 3}],
    "edit_date": "2026-06-01T12:00:00Z",
    "grouped_id": "13371337133713371",
    "reply_to": {"id": 4},
    "forwarded_from": {"name": "Somebody"},
    "author": "Ж\u202eم",
    "via_bot": None,
    "pinned": False,
    "silent": True,
    "action": None,
}


@pytest.fixture(params=["redis_on_sqlite", "redis_on_postgres"])
def opened(request: pytest.FixtureRequest) -> Opened:
    found: Opened = request.getfixturevalue(request.param)
    return found


@pytest.fixture
async def resources(opened: Opened) -> AsyncIterator[Resources]:
    async with opened() as resources:
        yield resources


async def relayed(resources: Resources) -> list[dict[str, str]]:
    """What is in the Redis stream after one step of the leader's relay, and the delivery."""
    leader = Leader(resources.leases, resources.events, name="leader", holder=resources.name, ttl=TTL)
    await leader.step()
    assert resources.redis is not None
    await Relay(resources.keeping, leader, resources.events, resources.clock).step()
    await deliver(resources, leader, RedisStreamSink(resources.redis))
    answer: Any = await resources.redis.xrange("crawler:events")
    return [{name.decode(): value.decode() for name, value in fields.items()} for _, fields in answer]


@pytest.mark.spec("T7")
async def test_a_new_post_is_told_once_and_with_everything(resources: Resources) -> None:
    await keep(resources, [a_post(7, 'Say "hi" 👍\n', **EVERYTHING)], tenant_id="t:1", user_id='u"1')
    await keep(resources, [a_post(7, 'Say "hi" 👍\n', **{**EVERYTHING, "views": 99})])

    [entry] = await relayed(resources)

    told = json.loads(entry["data"])
    validate("PostParsedEventV1", told)
    assert entry["type"] == told["event"] == "PostParsedEventV1"
    assert entry["kind"] == "item.new"
    assert entry["event_id"] == told["event_id"] == f"telegram:{HARBOUR}/{HARBOUR}:7/1"
    assert (entry["tenant_id"], entry["user_id"]) == (told["tenant_id"], told["user_id"]) == ("t:1", 'u"1')
    assert told["idempotency_key"] == f"{HARBOUR}:2026-06-01:7"
    assert (told["channel_id"], told["message_id"], told["revision"]) == (HARBOUR, 7, 1)
    assert told["posted_at"] == "2026-06-01T00:07:00Z"
    assert told["post"] == a_post(7, 'Say "hi" 👍\n', **EVERYTHING).data


@pytest.mark.spec("T7")
async def test_edits_and_deletions_have_events_of_their_own(resources: Resources) -> None:
    await keep(resources, [a_post(1, "one"), a_post(2, "two")])
    await keep(resources, [a_post(1, "uno"), a_post(2, "two")])
    await keep(resources, [a_post(1, "uno", gone=True)])

    entries = await relayed(resources)

    assert [(entry["type"], entry["key"]) for entry in entries] == [
        ("PostParsedEventV1", f"{HARBOUR}:1"),
        ("PostParsedEventV1", f"{HARBOUR}:2"),
        ("PostEditedEventV1", f"{HARBOUR}:1"),
        ("PostDeletedEventV1", f"{HARBOUR}:1"),
    ]
    told = [json.loads(entry["data"]) for entry in entries]
    for payload in told:
        validate(payload["event"], payload)
    assert [payload["revision"] for payload in told] == [1, 1, 2, 3]
    assert told[2]["post"]["text"] == told[3]["post"]["text"] == "uno"
    assert told[3]["deleted_at"] == told[3]["collected_at"]
    assert "deleted_at" not in told[2]
    assert len({payload["idempotency_key"] for payload in told}) == 2


@pytest.mark.spec("T7")
async def test_readers_of_the_store_are_told_the_same(resources: Resources) -> None:
    await keep(resources, [a_post(1, "one")], tenant_id="acme", stream=f"telegram:acme:{HARBOUR}")
    await keep(resources, [Item("page:1", {"n": 1}, DAY)], stream=f"telegram:{HARBOUR}")
    await keep(resources, [a_post(5, "in a stream of another kind")], stream="news")

    entries = await relayed(resources)
    events = await EventLog(resources.database, resources.clock).after(0)

    assert [event.type for event in events] == [entry["type"] for entry in entries]
    assert [event.type for event in events] == ["PostParsedEventV1", "item.new", "item.new"]
    assert [json.loads(event.data) for event in events] == [json.loads(entry["data"]) for entry in entries]
    validate("PostParsedEventV1", json.loads(events[0].data))
    assert [event.tenant_id for event in events] == ["acme", None, None]
    assert json.loads(events[1].data) == {"n": 1}
    assert event_shape(events[0])["type"] == "PostParsedEventV1"


@pytest.mark.spec("T7")
async def test_a_crash_before_the_commit_repeats_the_event_under_its_id(resources: Resources) -> None:
    await keep(resources, [a_post(1)])
    heard: list[str] = []

    async def publish(events: Any) -> None:
        heard.extend(event.data for event in events)
        if len(heard) == 1:
            raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError):
        await resources.keeping.relay(publish, limit=10)
    await resources.keeping.relay(publish, limit=10)

    assert len(heard) == 2
    assert heard[0] == heard[1]


async def test_the_day_in_the_key_is_that_of_utc(resources: Resources) -> None:
    await keep(resources, [a_post(1, at=DAY - timedelta(seconds=1)), a_post(2, at=DAY)])

    keys = [json.loads(entry["data"])["idempotency_key"] for entry in await relayed(resources)]

    assert keys == [f"{HARBOUR}:2026-05-31:1", f"{HARBOUR}:2026-06-01:2"]


@pytest.mark.spec("F4", "T7")
def test_the_schemas_that_ship_are_schemas_and_agree() -> None:
    assert names() == ["PostDeletedEventV1", "PostEditedEventV1", "PostParsedEventV1", "artifact-1.0.0", "proof-1.0.0"]
    jsonschema.Draft202012Validator.check_schema(schema("proof-1.0.0"))
    found = [schema(name) for name in names() if name != "proof-1.0.0"]
    for each in found:
        jsonschema.Draft202012Validator.check_schema(each)
        assert each["$defs"]["post"] == found[0]["$defs"]["post"]
