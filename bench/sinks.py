"""Events delivered per second by each sink, compared with its bare client sending the same messages.

python run.py bench sinks [events] [rounds]

Receivers are processes of their own: a web server, Valkey, and librdkafka's mock cluster. Then the delay from the start
of the relay to the entry in the Redis stream, compared with writing it within the numbering.
"""

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import aiohttp
from aiohttp import web
from confluent_kafka import Producer
from msgspec.structs import replace
from redis.asyncio import Redis

from floodmark.coordination.leader import Leader
from floodmark.model.batch import Batch, Item
from floodmark.outbound.retrying import RetryPolicy
from floodmark.settings import Settings
from floodmark.sinks.delivery import ConfiguredSink, Delivery
from floodmark.sinks.event_json import event_json
from floodmark.sinks.loading import open_one
from floodmark.sinks.port import SendsTests
from floodmark.sinks.redis_stream import RedisStreamSink
from floodmark.sinks.relay import Relay
from floodmark.store.port import Event
from floodmark.testing.contracts.event_sink import delivery_store
from floodmark.testing.factories import TTL, given_lease
from floodmark.wiring.resources import Resources
from floodmark.wiring.services import services_for

from ._measuring import Report, Watch, both_servers, floodmark, folder, interleaved, percentile, ratio, run

AT_ONCE, BATCH = 500, 100
TEXT = "lorem ipsum " * 30
Measure = Callable[[], Awaitable[float]]


class Bench:
    """An installation with numbered events, and its leader."""

    def __init__(self, resources: Resources, leader: Leader, events: Sequence[Event]) -> None:
        self.resources, self.leader, self.events = resources, leader, events

    @classmethod
    async def stocked(cls, resources: Resources, count: int) -> "Bench":
        leader = Leader(resources.leases, resources.events, name="leader", holder="bench", ttl=timedelta(hours=1))
        await leader.step()
        lease, at = await given_lease(resources, ttl=600 * TTL), datetime(2026, 6, 1, tzinfo=UTC)
        for start in range(0, count, AT_ONCE):
            items = [
                Item(
                    f"7:{n}",
                    {"id": n, "channel_id": 7, "text": TEXT, "kind": "message"},
                    at + timedelta(seconds=200 * n),
                )
                for n in range(start, min(start + AT_ONCE, count))
            ]
            await resources.keeping.keep(lease, Batch(items, stream="telegram:7"))
        relay = Relay(resources.keeping, leader, resources.events, resources.clock)
        while await relay.step() is not None:
            pass
        events: list[Event] = []
        while len(events) < count:
            events += await resources.repositories.events.after(len(events), 1000)
        return cls(resources, leader, events)

    def sink(self, name: str, kind: str, **options: str) -> ConfiguredSink:
        foreign = {f"SINK_{name}_{option}".upper(): text for option, text in options.items()}
        settings = self.resources.settings.model_copy(update={"sinks": f"{name}={kind}"}).with_foreign(foreign)
        found = open_one(settings, partial(services_for, self.resources), name)
        return replace(found, traits=replace(found.traits, starts="oldest", rest=0))

    async def read(self) -> float:
        """Return the events per second that are read from the store and not sent."""
        watch, log = Watch(), self.resources.repositories.events
        with watch.running():
            for position in range(0, len(self.events), AT_ONCE):
                await log.to_send(position, AT_ONCE)
        return len(self.events) / watch.wall

    async def deliver(self, sink: ConfiguredSink) -> float:
        """Return the events per second of a delivery from the first event to the last."""
        resources = self.resources
        delivery = Delivery(sink, delivery_store(resources), self.leader, resources.events, retry=RetryPolicy())
        await delivery.prepare()
        await resources.repositories.sinks.replay(sink.name, 0)
        await delivery._enter()
        if isinstance(sink.sink, SendsTests):
            # Connect before the measurement, as a delivery that goes on does.
            await sink.sink.send_test(self.events[0])
        watch = Watch()
        with watch.running():
            while await delivery.step() == timedelta():
                pass
        await delivery.close()
        assert (await resources.repositories.sinks.show(sink.name)).lag_events == 0
        return len(self.events) / watch.wall


@contextmanager
def process(role: str) -> Iterator[str]:
    """Start a receiver, and return its address."""
    command = [sys.executable, "-m", "bench.sinks", role]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stdin is not None
        yield running.stdout.readline().strip()
        running.stdin.close()


def serve_webhooks() -> None:
    """Answer every POST with 204, until the input ends."""

    async def take(request: web.Request) -> web.Response:
        await request.read()
        return web.Response(status=204)

    async def main() -> None:
        app = web.Application(client_max_size=10**8)
        app.router.add_post("/", take)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        print(f"{runner.addresses[0][0]}:{runner.addresses[0][1]}", flush=True)
        await asyncio.to_thread(sys.stdin.read)
        await runner.cleanup()

    asyncio.run(main())


def serve_kafka() -> None:
    """Run a mock cluster until the input ends."""
    cluster = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "none", "log_level": 0})
    print(",".join(f"{b.host}:{b.port}" for b in cluster.list_topics(timeout=30).brokers.values()), flush=True)
    sys.stdin.read()
    cluster.close()


async def bare_webhook(url: str, events: Sequence[Event]) -> float:
    async with aiohttp.ClientSession() as session:
        bodies = [
            b'{"sink":"x","events":[' + b",".join(map(event_json, events[at : at + BATCH])) + b"]}"
            for at in range(0, len(events), BATCH)
        ]
        watch = Watch()
        with watch.running():
            for body in bodies:
                async with session.post(url, data=body) as answer:
                    assert answer.status == 204
                    await answer.read()
    return len(events) / watch.wall


async def bare_redis(url: str, events: Sequence[Event]) -> float:
    rows = [[event.event_id, event.type, event.kind, event.stream, event.key, event.data] for event in events]
    names = ("event_id", "type", "kind", "stream", "key", "data")
    async with Redis.from_url(url, protocol=2) as redis:
        watch = Watch()
        with watch.running():
            for at in range(0, len(rows), AT_ONCE):
                async with redis.pipeline(transaction=False) as pipeline:
                    for row in rows[at : at + AT_ONCE]:
                        fields: Any = dict(zip(names, row, strict=True))
                        pipeline.xadd("bare", fields, maxlen=100_000)
                    await pipeline.execute()
        await redis.delete("bare")
    return len(events) / watch.wall


async def bare_kafka(servers: str, events: Sequence[Event]) -> float:
    messages = [(event_json(event), f"{event.stream}/{event.key}") for event in events]

    def produce() -> float:
        producer = Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": True,
                "linger.ms": 5,
                "compression.type": "lz4",
                "log_level": 0,
            }
        )
        producer.produce("bare", b"first")
        producer.flush()
        watch = Watch()
        with watch.running():
            for at in range(0, len(messages), AT_ONCE):
                for value, key in messages[at : at + AT_ONCE]:
                    producer.produce("bare", value, key)
                producer.flush()
        producer.close()
        return len(messages) / watch.wall

    return await asyncio.to_thread(produce)


def bare_files(target: Path, source: Path, count: int) -> float:
    """Write the same bytes, each file once."""
    contents = [path.read_bytes() for path in sorted(source.rglob("*.json"))]
    watch = Watch()
    with watch.running():
        for number, content in enumerate(contents):
            (target / f"{number}.json").write_bytes(content)
    return count / watch.wall


async def delays(resources: Resources, rounds: int, count: int) -> dict[str, list[Watch]]:
    """Return the time from the start of the relay to the entries in the stream, for three ways."""
    assert resources.redis is not None
    leader = Leader(resources.leases, resources.events, name="leader", holder="bench", ttl=timedelta(hours=1))
    await leader.step()
    lease, number = await given_lease(resources, ttl=600 * TTL), 0
    sink, store = RedisStreamSink(resources.redis, "delays"), delivery_store(resources)
    delivery = Delivery(ConfiguredSink(name="redis", kind="redis", sink=sink), store, leader, resources.events)
    await delivery.prepare()
    found: dict[str, list[Watch]] = {"within": [], "by position": [], "read again": []}
    for _ in range(rounds + 3):
        for way, watches in found.items():
            items = [Item(str(number + n), {"text": TEXT}) for n in range(count)]
            number += count
            await resources.keeping.keep(lease, Batch(items))
            await asyncio.sleep(0.01)
            watch = Watch()
            watches.append(watch)
            if way == "within":
                with watch.running():
                    await resources.keeping.relay(lambda events: _send(sink, events), limit=AT_ONCE)
                _, newest = await resources.repositories.events.bounds()
                await resources.repositories.sinks.replay("redis", newest)
                continue
            recent = store.recent if way == "by position" else None
            relay = Relay(resources.keeping, leader, resources.events, resources.clock, recent=recent)
            with watch.running():
                await relay.step()
                stored = await delivery._load()
                await sink.send(await delivery._read(stored))
            await resources.repositories.sinks.move("redis", stored, stored.newest)
    return {way: watches[3:] for way, watches in found.items()}


def timed(watches: Sequence[Watch]) -> str:
    """Return the fastest tenth, which other programs have disturbed least, and the CPU time."""
    walls = sorted(watch.wall for watch in watches)
    return f"{percentile(walls, 10) * 1000:.1f} ms, CPU {median(watch.cpu for watch in watches) * 1000:.1f} ms"


async def _send(sink: RedisStreamSink, events: Sequence[Event]) -> None:
    await sink.send(events)


async def measure(bench: Bench, name: str, report: Report, rounds: int, addresses: dict[str, str]) -> None:
    """Add the figures of every sink on one database."""
    with folder() as place:
        out, copy = place / "out", place / "copy"
        copy.mkdir()
        sinks = {
            "redis": bench.sink("copy", "redis", url=addresses["redis"], stream="bench"),
            "webhook": bench.sink("hook", "webhook", url=f"http://{addresses['webhook']}/", secret="s"),
            "kafka": bench.sink("lake", "kafka", servers=addresses["kafka"], topic="bench"),
        }
        bare: dict[str, Measure] = {
            "redis": lambda: bare_redis(addresses["redis"], bench.events),
            "webhook": lambda: bare_webhook(f"http://{addresses['webhook']}/", bench.events),
            "kafka": lambda: bare_kafka(addresses["kafka"], bench.events),
        }
        for kind, sink in sinks.items():
            ours, theirs, reading = await interleaved(rounds, partial(bench.deliver, sink), bare[kind], bench.read)
            # Reading and then sending, one after the other, cannot be faster than this.
            both = [1 / (1 / one + 1 / other) for one, other in zip(theirs, reading, strict=True)]
            report.add(
                f"{kind}, {name}",
                f"{median(ours):,.0f}/s",
                f"{median(theirs):,.0f}/s bare client, {median(reading):,.0f}/s reading, {median(both):,.0f}/s both",
                f"{ratio(ours, theirs)}, of both {ratio(ours, both)}",
                "of both >= 0.5x",
                figure=ratio(ours, both),
            )
        files = bench.sink("files", "files", folder=str(out))
        posts = [await bench.deliver(files) for _ in range(rounds)]
        plain = [bare_files(copy, out, len(bench.events)) for _ in range(rounds)]
        report.add(
            f"files, {name}", f"{median(posts):,.0f}/s", f"{median(plain):,.0f}/s, plain writes", ratio(posts, plain)
        )


async def main() -> None:
    count, rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000, int(sys.argv[2]) if len(sys.argv) > 2 else 5
    report = Report(f"{count:,} events of about 600 bytes, {rounds} rounds")
    late = Report("From the start of the relay to the Redis stream: fastest tenth, and median CPU time")
    async with AsyncExitStack() as stack:
        postgres, valkey = stack.enter_context(both_servers())
        place = stack.enter_context(folder())
        addresses = {role: stack.enter_context(process(role)) for role in ("webhook", "kafka")}
        addresses["redis"] = valkey.url
        for name, url in (("SQLite", f"sqlite:///{place}/sinks.db"), ("PostgreSQL", postgres.create_database("sinks"))):
            async with floodmark(Settings(database_url=url, redis_url=valkey.url)) as resources:
                for size in (1, 100, AT_ONCE):
                    within, ours, again = map(timed, (await delays(resources, 40, size)).values())
                    late.add(
                        f"{size} events, {name}", ours, f"{within}, within the numbering", f"{again}, reading again"
                    )
        for name, url in (("SQLite", f"sqlite:///{place}/full.db"), ("PostgreSQL", postgres.create_database("full"))):
            async with floodmark(Settings(database_url=url, redis_url=valkey.url)) as resources:
                await measure(await Bench.stocked(resources, count), name, report, rounds, addresses)
    report.print()
    late.print()


if __name__ == "__main__":
    roles: dict[str, Callable[[], None]] = {"webhook": serve_webhooks, "kafka": serve_kafka}
    if sys.argv[1:2] and sys.argv[1] in roles:
        roles[sys.argv[1]]()
    else:
        run(main)
