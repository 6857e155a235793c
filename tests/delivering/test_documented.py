"""The page of sinks: its code works with what sinks send, and it names every option."""

import asyncio
import re
import sqlite3
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer

from delivering.installation import collect, configured, deliver_all, on_sqlite
from delivering.receivers import EventReceiver, KafkaCluster
from floodmark.coordination.leader import Leader
from floodmark.errors import InvalidInput
from floodmark.model.ids import new_id
from floodmark.security.webhook_signatures import signed_headers
from floodmark.wiring.resources import Resources

pytestmark = pytest.mark.spec("B7")

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "sinks.md").read_text("utf-8")


def documented(name: str) -> Any:
    """A function that a code block of the page defines."""
    [block] = [text for text in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if f"def {name}(" in text]
    found: dict[str, Any] = {}
    exec(compile(block, "sinks.md", "exec"), found)
    return found[name]


@on_sqlite
async def test_a_receiver_can_verify_what_is_sent(
    resources: Resources, leader: Leader, receiver: EventReceiver
) -> None:
    is_valid = documented("is_valid")
    await collect(resources, leader, {"key": "a", "text": "ж 👍"})
    section = {"url": f"{receiver.url}/events?for=%D0%B6", "secret": "s"}
    await deliver_all(resources, leader, configured(resources, "archive", "webhook", section))
    [sent] = receiver.taken
    assert is_valid("s", "POST", sent.path, sent.headers, sent.body)
    assert not is_valid("t", "POST", sent.path, sent.headers, sent.body)
    assert not is_valid("s", "PUT", sent.path, sent.headers, sent.body)
    assert not is_valid("s", "POST", "/other", sent.headers, sent.body)
    assert not is_valid("s", "POST", sent.path, sent.headers, sent.body + b" ")
    assert not is_valid("s", "POST", sent.path, {}, sent.body)
    old = signed_headers("s", resources.clock.now().timestamp() - 301, sent.body, address=sent.path)
    late = {name.lower(): value for name, value in old.items()}
    assert not is_valid("s", "POST", sent.path, late, sent.body)


@on_sqlite
async def test_a_consumer_of_kafka_handles_each_event_once(
    resources: Resources, leader: Leader, cluster: KafkaCluster
) -> None:
    topic, new_events = f"events-{new_id()}", documented("new_events")
    await collect(resources, leader, *range(10))
    section = {"servers": cluster.servers, "topic": topic, "key": "stream", "timeout": "60"}
    sink = configured(resources, "lake", "kafka", section)
    await deliver_all(resources, leader, sink)
    await resources.repositories.sinks.replay("lake", 5)
    await collect(resources, leader, *range(10, 15))
    await deliver_all(resources, leader, sink)
    assert len(await asyncio.to_thread(cluster.read, topic)) == 20

    def read() -> list[str]:
        options: Any = {"group.id": "readers", "auto.offset.reset": "earliest", "enable.auto.commit": False}
        consumer = Consumer({**options, "bootstrap.servers": cluster.servers, "log_level": 0})
        consumer.subscribe([topic])
        store = sqlite3.connect(":memory:")
        try:
            return [event["key"] for event in islice(new_events(consumer, store), 15)]
        finally:
            consumer.close()
            store.close()

    assert await asyncio.to_thread(read) == [str(number) for number in range(15)]


@on_sqlite
@pytest.mark.parametrize(
    ("kind", "needed", "heading"),
    [
        ("webhook", {"url": "https://a.example/"}, "### Webhook"),
        ("kafka", {"servers": "a:9092", "topic": "t"}, "### Kafka"),
    ],
)
async def test_every_option_is_documented(
    resources: Resources, kind: str, needed: dict[str, str], heading: str
) -> None:
    with pytest.raises(InvalidInput) as refusal:
        configured(resources, "x", kind, {**needed, "nonsense": "1"})
    known = set(re.findall(r"SINK_X_(\w+)", refusal.value.hint))
    section = PAGE.partition(heading)[2].partition("\n#")[0]
    rows = re.findall(r"^\| ((?:`[A-Z_]+`(?:, )?)+) \|", section, re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"[A-Z_]+", row)} == known
