"""Where events arrive: a server that takes webhooks, and a Kafka cluster, both on this machine."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from confluent_kafka import Consumer, Message, Producer, TopicPartition


class Answer(NamedTuple):
    """What a receiver says."""

    status: int = 200
    headers: Mapping[str, str] = {}
    text: str = "ok"


OK = Answer()


class Delivered(NamedTuple):
    """A request with events."""

    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def events(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.body)["events"]
        return found

    @property
    def keys(self) -> list[str]:
        return [event["key"] for event in self.events]


class EventReceiver:
    """Takes webhooks. `judge` answers each request; those that it answers with 2xx are in `taken`."""

    def __init__(self) -> None:
        self.asked: list[Delivered] = []
        self.taken: list[Delivered] = []
        self.judge: Callable[[Delivered], Answer] = lambda _: OK
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                delivered = Delivered(self.path, {k.lower(): v for k, v in self.headers.items()}, body)
                receiver.asked.append(delivered)
                answer = receiver.judge(delivered)
                if answer.status < 300:
                    receiver.taken.append(delivered)
                self.send_response(answer.status)
                for name, value in {**answer.headers, "Content-Length": str(len(answer.text.encode()))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(answer.text.encode())

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def keys(self) -> list[str]:
        return [key for delivered in self.taken for key in delivered.keys]

    @contextmanager
    def serving(self) -> Iterator["EventReceiver"]:
        thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            thread.join()
            self._server.server_close()


class KafkaCluster:
    """Librdkafka's own mock cluster: real brokers as far as clients can tell, over sockets of this machine."""

    def __init__(self, **options: Any) -> None:
        self._host = Producer(
            {"test.mock.num.brokers": 1, "bootstrap.servers": "none", "log_level": 0, "client.id": "host", **options}
        )
        brokers = self._host.list_topics(timeout=60).brokers.values()
        self.servers = ",".join(f"{broker.host}:{broker.port}" for broker in brokers)

    def read(self, topic: str) -> list[Message]:
        """Every message of a topic, by partition and offset."""
        consumer = Consumer(
            {"bootstrap.servers": self.servers, "group.id": "test", "enable.auto.commit": False, "log_level": 0}
        )
        try:
            found: list[Message] = []
            for partition in consumer.list_topics(topic, timeout=60).topics[topic].partitions:
                at = TopicPartition(topic, partition, 0)
                first, end = consumer.get_watermark_offsets(at, timeout=60)
                consumer.assign([TopicPartition(topic, partition, first)])
                here: list[Message] = []
                while len(here) < end - first:
                    here += consumer.consume(end - first - len(here), timeout=60)
                found += here
            return found
        finally:
            consumer.close()

    def close(self) -> None:
        self._host.close()


def position_of(message: Message) -> int:
    """The position of an event, from its header."""
    return int(header_of(message, "position"))


def header_of(message: Message, name: str) -> str:
    found = dict(message.headers() or [])[name]
    assert isinstance(found, bytes)
    return found.decode()
