"""Kafka: real clients and the real protocol, against librdkafka's own mock cluster."""

import asyncio
import json
from collections import defaultdict

import pytest

from delivering.installation import collect, configured, deliver_all, on_sqlite
from delivering.receivers import KafkaCluster, header_of, position_of
from floodmark.coordination.leader import Leader
from floodmark.errors import InvalidInput, Transient
from floodmark.model.ids import new_id
from floodmark.sinks import kafka
from floodmark.wiring.resources import Resources

pytestmark = pytest.mark.spec("B7")


@pytest.fixture
def topic() -> str:
    return f"events-{new_id()}"


async def test_a_message_has_the_key_of_its_item_and_the_id_of_its_event(
    resources: Resources, leader: Leader, cluster: KafkaCluster, topic: str
) -> None:
    """All revisions of an item are in one partition, in order; the position was stored after the acknowledgement."""
    await collect(resources, leader, *({"key": str(n), "text": "ж 👍"} for n in range(40)))
    await collect(resources, leader, *({"key": str(n), "text": "again"} for n in range(40)))
    section = {"servers": cluster.servers, "topic": topic, "timeout": "60"}
    await deliver_all(resources, leader, configured(resources, "lake", "kafka", section))

    shown = await resources.repositories.sinks.show("lake")
    assert (shown.kind, shown.place, shown.position) == ("kafka", f"{topic} at {cluster.servers}", 80)
    messages = await asyncio.to_thread(cluster.read, topic)
    assert sorted(map(position_of, messages)) == list(range(1, 81))
    revisions: dict[bytes, list[tuple[int | None, int]]] = defaultdict(list)
    for message in messages:
        event = json.loads(message.value() or b"")
        assert message.key() == f"{event['stream']}/{event['key']}".encode()
        assert header_of(message, "event_id") == event["event_id"]
        assert event["position"] == position_of(message)
        revisions[message.key() or b""].append((message.partition(), event["revision"]))
    assert all([number for _, number in found] == [1, 2] for found in revisions.values())
    assert all(len({partition for partition, _ in found}) == 1 for found in revisions.values())
    assert len({message.partition() for message in messages}) > 1


@on_sqlite
async def test_with_the_stream_as_the_key_a_stream_is_in_order(
    resources: Resources, leader: Leader, cluster: KafkaCluster, topic: str
) -> None:
    for stream in ("test:a", "test:b", "test:c"):
        await collect(resources, leader, *range(20), stream=stream)
    section = {"servers": cluster.servers, "topic": topic, "key": "stream", "timeout": "60", "compression": "none"}
    await deliver_all(resources, leader, configured(resources, "lake", "kafka", section))
    positions = defaultdict(list)
    for message in await asyncio.to_thread(cluster.read, topic):
        positions[message.key()].append(position_of(message))
    assert positions.keys() == {b"test:a", b"test:b", b"test:c"}
    assert all(found == sorted(found) for found in positions.values())


@on_sqlite
async def test_an_event_that_is_too_large_becomes_a_dead_letter(
    resources: Resources, leader: Leader, cluster: KafkaCluster, topic: str
) -> None:
    await collect(resources, leader, 1, {"key": "large", "text": "x" * 60_000}, 3)
    options = "message.max.bytes=20000, queue.buffering.max.messages=1000"
    section = {"servers": cluster.servers, "topic": topic, "options": options, "timeout": "60"}
    await deliver_all(resources, leader, configured(resources, "lake", "kafka", section))
    assert len(await asyncio.to_thread(cluster.read, topic)) == 2
    [letter] = await resources.repositories.sink_letters.page("lake")
    assert (letter.key, "size too large" in letter.error) == ("large", True)


@on_sqlite
async def test_without_brokers_the_position_stays_and_the_reason_is_shown(resources: Resources, leader: Leader) -> None:
    await collect(resources, leader, 1, 2)
    section = {"servers": "127.0.0.1:9", "topic": "events", "timeout": "1"}
    with pytest.raises(Transient, match="timed out"):
        await deliver_all(resources, leader, configured(resources, "lake", "kafka", section))
    shown = await resources.repositories.sinks.show("lake")
    assert (shown.position, shown.state, shown.lag_events) == (0, "failing", 2)
    assert "127.0.0.1:9" in (shown.error or "")


@on_sqlite
async def test_wrong_options_are_explained_without_secrets(resources: Resources, leader: Leader) -> None:
    needed = {"servers": "127.0.0.1:9", "topic": "events"}
    for section, says in (
        ({"topic": "events"}, "SINK_LAKE_SERVERS is not set"),
        ({"servers": "127.0.0.1:9"}, "SINK_LAKE_TOPIC is not set"),
        ({**needed, "topics": "x"}, "SINK_LAKE_TOPICS is set, but the sink lake has no such option"),
        ({**needed, "key": "canary"}, "SINK_LAKE_KEY is not one of item, stream"),
        ({**needed, "tls": "canary"}, "SINK_LAKE_TLS is not true or false"),
        ({**needed, "options": "acks=0"}, "SINK_LAKE_OPTIONS is not a list"),
        ({**needed, "timeout": "0"}, "SINK_LAKE_TIMEOUT is not a whole number"),
    ):
        with pytest.raises(InvalidInput, match=says) as refusal:
            configured(resources, "lake", "kafka", section)
        assert "canary" not in str(refusal.value)
    await collect(resources, leader, 1)
    wrong = {**needed, "options": "no.such.option=1", "username": "ada", "password": "canary"}
    with pytest.raises(InvalidInput, match=r'No such configuration property: "no.such.option"'):
        await deliver_all(resources, leader, configured(resources, "lake", "kafka", wrong))
    assert "canary" not in str(await resources.repositories.sinks.show("lake"))


@on_sqlite
async def test_without_the_client_the_extra_is_named(resources: Resources, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        assert name == "confluent_kafka"

    monkeypatch.setattr(kafka, "find_spec", missing)
    with pytest.raises(InvalidInput, match="need confluent-kafka") as refusal:
        configured(resources, "lake", "kafka", {})
    assert refusal.value.hint == "pip install 'floodmark[kafka]'"
