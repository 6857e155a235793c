"""The demo: a feed on this machine that grows by itself, and a Floodmark that collects every post of it once.

Everything is in one folder: `floodmark.db`, `feed.json` (how long the feed has lived) and `demo.log`. Which posts
there are depends only on the seed and on that length of life, so a second start goes on with the same posts.
"""

import asyncio
import json
import random
import shutil
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import timedelta
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, TextIO
from urllib.parse import parse_qs, urlsplit

from msgspec import Struct

from .app import Floodmark
from .errors import Conflict, SlowDown, Transient
from .execution import ENDED
from .explain import explain
from .parts import Parts
from .roles import SchedulerRole, WorkerRole
from .settings import Settings
from .store.events import EventLog
from .store.history import History
from .store.jobs import Jobs
from .store.views import Views
from .telemetry.events import ExecutionSettled

SEED = 7
PAGE = 50
# While nobody watches the feed goes on, but not for ever: a start after a holiday should not take an hour.
LONGEST_ABSENCE = 60.0
# Written ahead of time, so that after `kill -9` no post is younger than the feed says it is.
_AHEAD_SECONDS = 3.0
_LOOK_SECONDS = 0.5
_DRAIN_SECONDS = 20.0


class Topic(Struct, frozen=True):
    """One part of the feed: how often it is collected, and the seconds between two posts on average."""

    name: str
    every: timedelta
    pace: float
    words: tuple[tuple[str, ...], ...]


TOPICS = (
    Topic(
        "harbour",
        timedelta(seconds=2),
        0.7,
        (
            ("Ferry Aurora", "Tug Petrel", "Freighter Maren", "Pilot boat 4", "Trawler Sibylle"),
            ("berths at", "leaves", "waits off", "turns back to", "signals to"),
            ("pier 3", "the east basin", "the lock", "the fish market", "the coal quay"),
        ),
    ),
    Topic(
        "weather",
        timedelta(seconds=3),
        1.3,
        (
            ("Gusts", "Fog", "Light rain", "Sunshine", "A thunderstorm"),
            ("over", "reaching", "clearing from", "forecast for", "reported in"),
            ("the bay", "the old town", "the islands", "the airport", "the hills"),
        ),
    ),
    Topic(
        "traffic",
        timedelta(seconds=5),
        1.9,
        (
            ("Tram 2", "The ring road", "Bus 41", "The tunnel", "The bridge"),
            ("is delayed near", "is clear again at", "is closed at", "crawls past", "reopens at"),
            ("the station", "the stadium", "the theatre", "the hospital", "the university"),
        ),
    ),
)


class Feed:
    """Posts that arrive at their own pace, served over HTTP on loopback with the manners of a real server.

    Now and then it answers 429 with a Retry-After, or breaks the connection off.
    """

    def __init__(self, folder: Path) -> None:
        self._file = folder / "feed.json"
        self._lived_before, self._began = self._remembered(), time.monotonic()
        self._frozen: float | None = None
        self._times: dict[str, list[float]] = {topic.name: [] for topic in TOPICS}
        self._gaps = {topic.name: _gaps(topic) for topic in TOPICS}
        self._chance = random.Random()  # noqa: S311 - trouble, not a secret
        self.port = 0

    def _remembered(self) -> float:
        try:
            told = json.loads(self._file.read_text(encoding="utf-8"))
            away = max(0.0, time.time() - self._file.stat().st_mtime)
            return float(told["lived"]) + min(away, LONGEST_ABSENCE)
        except (OSError, ValueError, KeyError, TypeError):
            return 0.0

    def lived(self) -> float:
        """For how many seconds the feed has been growing."""
        if self._frozen is not None:
            return self._frozen
        return self._lived_before + time.monotonic() - self._began

    def freeze(self) -> None:
        """No more posts and no more trouble: what there is can be counted."""
        self._frozen = self.lived()

    def count(self, topic: str) -> int:
        """How many posts there are; they are numbered from 1."""
        times, lived = self._times[topic], self.lived()
        while not times or times[-1] <= lived:
            times.append((times[-1] if times else 0.0) + next(self._gaps[topic]))
        return bisect_right(times, lived)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Answer requests, and remember how long it has lived."""
        server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        remembering = asyncio.create_task(self._remember_often())
        try:
            yield
        finally:
            remembering.cancel()
            with suppress(asyncio.CancelledError):
                await remembering
            server.close()
            await server.wait_closed()
            self._remember(self.lived())

    async def _remember_often(self) -> None:
        while True:
            self._remember(self.lived() + _AHEAD_SECONDS)
            await asyncio.sleep(_AHEAD_SECONDS / 3)

    def _remember(self, lived: float) -> None:
        fresh = self._file.with_suffix(".new")
        fresh.write_text(json.dumps({"seed": SEED, "lived": lived}), encoding="utf-8")
        fresh.replace(self._file)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            request = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)
            luck = 1.0 if self._frozen is not None else self._chance.random()
            if luck < 0.05:
                return writer.transport.abort()
            status, headers, body = self._too_many() if luck < 0.13 else self._page(request.split()[1].decode())
            writer.write(_response(status, headers, body))
            await writer.drain()
        return writer.close()

    def _too_many(self) -> tuple[str, dict[str, str], bytes]:
        return "429 Too Many Requests", {"Retry-After": str(self._chance.randint(1, 3))}, b"{}"

    def _page(self, path: str) -> tuple[str, dict[str, str], bytes]:
        """`/harbour?after=41`: at most a page of posts, oldest first."""
        parts = urlsplit(path)
        topic = next((topic for topic in TOPICS if topic.name == parts.path.strip("/")), None)
        if topic is None:
            return "404 Not Found", {}, b"{}"
        after = int(parse_qs(parts.query).get("after", ["0"])[0])
        numbers = range(after + 1, min(after + PAGE, self.count(topic.name)) + 1)
        return "200 OK", {}, json.dumps([_post(topic, number) for number in numbers]).encode()


def _gaps(topic: Topic) -> Iterator[float]:
    """Seconds between posts, for ever the same: quiet stretches, and bursts."""
    chance = random.Random(f"{SEED}:{topic.name}")  # noqa: S311 - as above
    while True:
        yield chance.expovariate(1 / topic.pace) * chance.choice((0.2, 0.5, 1.0, 1.0, 2.3))


def _post(topic: Topic, number: int) -> dict[str, Any]:
    chance = random.Random(f"{SEED}:{topic.name}:{number}")  # noqa: S311 - as above
    return {"id": number, "title": " ".join(chance.choice(words) for words in topic.words)}


def _response(status: str, headers: Mapping[str, str], body: bytes) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


def fetch(port: int, topic: str, after: int) -> list[dict[str, Any]]:
    """One page of a topic, in the words a source speaks in when it does not get it."""
    connection = HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", f"/{topic}?after={after}")
        answer = connection.getresponse()
        if answer.status == 429:
            wait = timedelta(seconds=int(answer.headers["Retry-After"]))
            raise SlowDown(wait, key=f"demo:{topic}", reason="the feed answered 429 Too Many Requests")
        page: list[dict[str, Any]] = json.loads(answer.read())
    except (OSError, HTTPException, ValueError) as error:
        raise Transient(f"the feed broke off: {type(error).__name__}") from error
    finally:
        connection.close()
    return page


class TopicView(Struct, frozen=True, kw_only=True):
    """One topic as it is shown."""

    name: str
    every: timedelta
    posts: int
    items: int
    code: str
    sentence: str


class View(Struct, frozen=True, kw_only=True):
    """The demo at one moment. `arrived` are the titles of what came since the last look, oldest first."""

    topics: tuple[TopicView, ...]
    arrived: tuple[str, ...]
    done: int
    waited: int
    retried: int


class Summary(Struct, frozen=True, kw_only=True):
    """What became of the posts. `new` were collected this time, `collected` are all there are."""

    posts: int
    collected: int
    new: int
    duplicates: int
    missing: int
    executions: int
    waited: int
    retried: int
    took: timedelta

    @property
    def is_right(self) -> bool:
        """Whether every post was collected once."""
        return not self.duplicates and not self.missing


class Demo:
    """The feed and an embedded Floodmark that collects it, in one process and one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.feed = folder, Feed(folder)
        self.app = Floodmark(_settings(folder))
        for topic in TOPICS:
            self.app.collector(
                name=topic.name,
                every=topic.every,
                key="id",
                watermark="id",
                limit_key=f"demo:{topic.name}",
                params={"topic": topic.name},
            )(self._posts)
        self._settled: Counter[str] = Counter()
        self._position = 0
        self.app.events.listen(ExecutionSettled, self._count)

    def _posts(self, since: int | None, topic: str) -> Iterator[dict[str, Any]]:
        """The collector: a plain generator. It reads what is newer than `since`, page by page."""
        page = fetch(self.feed.port, topic, since or 0)
        while page:
            yield from page
            page = fetch(self.feed.port, topic, page[-1]["id"]) if len(page) == PAGE else []

    def _count(self, event: ExecutionSettled) -> None:
        self._settled["retried" if event.error else event.status] += 1

    async def run(self, stop: asyncio.Event, look: Callable[[View], None]) -> Summary:
        """Collect until `stop`, telling `look` how it goes; then collect what is left, and count."""
        began = time.monotonic()
        async with self.feed.serving(), self.app.open() as parts:
            log = EventLog(parts.database, parts.clock)
            self._position = await log.last_position()
            before = await self._collected(log)
            async with self._working(parts):
                while not stop.is_set():
                    look(await self._view(parts, log))
                    with suppress(TimeoutError):
                        await asyncio.wait_for(stop.wait(), _LOOK_SECONDS)
                self.feed.freeze()
                await self._drain(parts)
                look(await self._view(parts, log))
            return await self._summary(log, before, timedelta(seconds=time.monotonic() - began))

    @asynccontextmanager
    async def _working(self, parts: Parts) -> AsyncIterator[None]:
        ending = asyncio.Event()
        with ThreadPoolExecutor(len(TOPICS), thread_name_prefix="collector") as threads:
            roles = (SchedulerRole(parts, is_alone=False), WorkerRole(parts, self.app.sources(threads)))
            tasks = [asyncio.create_task(role.run(ending)) for role in roles]
            try:
                yield
            finally:
                ending.set()
                await asyncio.gather(*tasks)

    async def _view(self, parts: Parts, log: EventLog) -> View:
        leader = await parts.leases.holder(parts.settings.scheduler_leader_key)
        jobs, views = Jobs(parts.database, parts.clock), Views(parts.database, parts.clock)
        topics = []
        for topic in TOPICS:
            told = explain(await views.load(await jobs.get(topic.name), leader=leader))
            topics.append(
                TopicView(
                    name=topic.name,
                    every=topic.every,
                    posts=self.feed.count(topic.name),
                    items=await log.count(_stream(topic)),
                    code=told.code,
                    sentence=told.sentence,
                )
            )
        arrived = await log.after(self._position, limit=1000)
        self._position = arrived[-1].position if arrived else self._position
        return View(
            topics=tuple(topics),
            arrived=tuple(f"{e.stream.partition(':')[2]} {e.key}: {json.loads(e.data)['title']}" for e in arrived),
            done=self._settled["done"],
            waited=self._settled["waiting"],
            retried=self._settled["retried"],
        )

    async def _drain(self, parts: Parts) -> None:
        """One more collection of each topic, behind the one that may be under way."""
        jobs, history = Jobs(parts.database, parts.clock), History(parts.database, parts.clock)
        forced = [await jobs.force_run(await jobs.get(topic.name)) for topic in TOPICS]
        await parts.queue.put([one.queued for one in forced if one.queued is not None])
        with suppress(TimeoutError):
            async with asyncio.timeout(_DRAIN_SECONDS):
                for one in forced:
                    while (await history.get_execution(one.execution_id)).state not in ENDED:  # noqa: ASYNC110
                        await asyncio.sleep(0.1)

    async def _collected(self, log: EventLog) -> int:
        return sum([await log.count(_stream(topic)) for topic in TOPICS])

    async def _summary(self, log: EventLog, before: int, took: timedelta) -> Summary:
        """Compare what the feed has with what was kept, and with what was announced."""
        missing = duplicates = 0
        for topic in TOPICS:
            kept = {key async for key in _keys(log, _stream(topic))}
            wanted = {str(number) for number in range(1, self.feed.count(topic.name) + 1)}
            missing += len(wanted - kept)
            # Told from outside: the table has no room for two items of one key, so one must look at the events.
            announced = Counter([key async for key in _announced(log, _stream(topic))])
            duplicates += sum(announced.values()) - len(announced) + len(kept - wanted)
        collected = await self._collected(log)
        return Summary(
            posts=sum(self.feed.count(topic.name) for topic in TOPICS),
            collected=collected,
            new=collected - before,
            duplicates=duplicates,
            missing=missing,
            executions=self._settled["done"],
            waited=self._settled["waiting"],
            retried=self._settled["retried"],
            took=took,
        )


def _stream(topic: Topic) -> str:
    return f"python:{topic.name}"


async def _keys(log: EventLog, stream: str) -> AsyncIterator[str]:
    page = await log.items(stream, limit=1000)
    while page:
        for item in page:
            yield item.key
        page = await log.items(stream, page[-1].key, limit=1000)


async def _announced(log: EventLog, stream: str) -> AsyncIterator[str]:
    page = await log.after(0, 1000, stream)
    while page:
        for event in page:
            yield event.key
        page = await log.after(page[-1].position, 1000, stream)


def _settings(folder: Path) -> Settings:
    """Embedded, whatever the environment says, and quick to recover from `kill -9`."""
    return Settings(
        database_url=f"sqlite:///{folder / 'floodmark.db'}",
        floodmark_home=folder,
        hostname="demo",
        scheduler_leader_ttl=timedelta(seconds=3),
        execution_lease=timedelta(seconds=5),
        execution_retry_base=timedelta(seconds=2),
        execution_retry_max=timedelta(seconds=4),
        shutdown_grace=timedelta(seconds=4),
    )


@contextmanager
def demo_folder(home: Path, *, is_fresh: bool) -> Iterator[tuple[Path, TextIO]]:
    """The demo's folder, for one demo at a time, and its log."""
    folder = home / "demo"
    folder.mkdir(parents=True, exist_ok=True)
    with (home / "demo.lock").open("a", encoding="utf-8") as lock:
        _lock(lock)
        if is_fresh:
            shutil.rmtree(folder)
            folder.mkdir()
        with (folder / "demo.log").open("a", encoding="utf-8") as log:
            yield folder, log


def _lock(file: TextIO) -> None:
    """Held until the file is closed, by whatever end; Windows goes without."""
    with suppress(ImportError):
        import fcntl  # noqa: PLC0415 - not on Windows

        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Conflict(
                f"a demo is already running in {Path(file.name).parent}",
                hint="stop it with Ctrl-C, or give this one another folder: --set FLOODMARK_HOME=/tmp/another",
            ) from None
