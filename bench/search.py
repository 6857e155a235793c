"""Search among many posts: query times, the cost of the index, and keeping posts with and without it.

python run.py bench search [posts] [rounds] [sqlite|postgresql] [folder]

A query is measured as a person meets it: with the status of the index, the items of a page, and their snippets.
"""

import asyncio
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import asyncpg
import msgspec
from msgspec import Struct
from sqlalchemy import insert, text

from floodmark.model.audit import Actor
from floodmark.model.batch import Batch, Item
from floodmark.model.execution import Lease
from floodmark.model.job import Work
from floodmark.operations.local import LocalOperations
from floodmark.search.indexer import Indexer
from floodmark.search.tokens import tokenize
from floodmark.settings import Settings
from floodmark.sinks.sql import SqlSink
from floodmark.store.database import SqliteDatabase
from floodmark.store.port import Event
from floodmark.store.tables import watermarks
from floodmark.wiring.resources import Resources
from floodmark.wiring.search_on_demand import index_path

from ._measuring import Report, Watch, both_servers, floodmark, folder, interleaved, percentile, ratio, run
from ._posts import STREAMS, Corpus, make_corpus

AT_ONCE = 1000
YEARS = timedelta(days=5 * 365)
BEGINNING = datetime(2021, 1, 1, tzinfo=UTC)
COLUMNS = "stream, key, occurred_at, collected_at, data, content_hash, fence"
# Posts whose words are counted, to choose frequent and rare ones.
SAMPLE = 20_000


def rows_of(corpus: Corpus, posts: int) -> Iterator[tuple[Any, ...]]:
    """Yield rows of `items`: posts of five years, oldest first."""
    for number, (stream, content) in enumerate(corpus.posts(posts)):
        at = BEGINNING + YEARS * (number / posts)
        data = {"id": number, "channel": f"channel{stream}", "text": content, "kind": "message", "views": number % 1000}
        yield f"telegram:{1_000_000 + stream}", f"{stream}:{number}", at, at, data, "", 1


async def fill(resources: Resources, corpus: Corpus, posts: int) -> None:
    """Insert the posts as rows, without events: as on an installation that had no index."""
    rows = rows_of(corpus, posts)
    async with resources.database.writing() as connection:
        streams = [{"stream": f"telegram:{1_000_000 + number}", "fence": 1} for number in range(STREAMS)]
        await connection.execute(insert(watermarks), streams)
    if isinstance(resources.database, SqliteDatabase):
        statement = f"INSERT INTO items ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)"
        while some := list(islice(rows, AT_ONCE)):
            values = [
                (
                    stream,
                    key,
                    f"{at:%Y-%m-%d %H:%M:%S.%f+00:00}",
                    f"{at:%Y-%m-%d %H:%M:%S.%f+00:00}",
                    _json(data),
                    *rest,
                )
                for stream, key, at, _, data, *rest in some
            ]
            await resources.database.hot("fill", partial(_insert, statement, values))
        return
    server = await asyncpg.connect(resources.settings.database_url)
    while some := list(islice(rows, AT_ONCE)):
        values = [(stream, key, at, at, _json(data), *rest) for stream, key, at, _, data, *rest in some]
        await server.copy_records_to_table("items", records=values, columns=COLUMNS.split(", "))
    await server.execute("ANALYZE items")
    await server.close()


def _json(data: Any) -> str:
    return msgspec.json.encode(data).decode()


def _insert(statement: str, values: list[Any], connection: Any) -> None:
    connection.executemany(statement, values)


async def build(resources: Resources, posts: int) -> tuple[float, float, float]:
    """Build the index of all posts; return its CPU and wall-clock microseconds per post, and its bytes per post."""
    indexer = resources.search.indexer(resources.events, rests=False)
    watch = Watch()
    with watch.running():
        while await _has_more(indexer):
            pass
    return watch.cpu / posts * 1e6, watch.wall / posts * 1e6, await size_of(resources) / posts


async def _has_more(indexer: Indexer) -> bool:
    """Make a step, and return whether there is more. One that took too long is repeated, as by a scheduler."""
    try:
        return await indexer.step() is not None
    except asyncpg.QueryCanceledError as error:
        print(f"a step of the index was given up: {error}", file=sys.stderr)
        return True


async def size_of(resources: Resources) -> int:
    """Return the bytes of the index."""
    if isinstance(resources.database, SqliteDatabase):
        return (await asyncio.to_thread(index_path(resources.database.path).stat)).st_size
    names = ("search_documents", "search_streams", "search_fields", "search_state")
    async with resources.database.reading() as connection:
        sizes = [await connection.execute(text(f"SELECT pg_total_relation_size('{name}')")) for name in names]
        return sum(found.scalar_one() for found in sizes)


class Frequencies(Struct, frozen=True):
    """The words of a corpus with the share of posts that have them, most frequent first."""

    ranked: Sequence[tuple[str, float]]
    letters: Sequence[str]

    def near(self, share: float, *, is_latin: bool = True) -> str:
        """Return a word that about this share of the posts has."""
        fitting = [
            (abs(found - share), word) for word, found in self.ranked if word.isascii() == is_latin and len(word) > 3
        ]
        return min(fitting)[1]

    def dense(self, place: int) -> str:
        """Return two Chinese characters that often follow each other."""
        return [word for word, _ in self.ranked if len(word) == 2 and "\u4e00" <= word[0] <= "\u9fff"][place]

    def pair(self, first: int = 5, second: int = 3) -> str:
        """Return two words in a row, by their places among all words."""
        return f"{self.letters[first]} {self.letters[second]}"


def frequencies(corpus: Corpus) -> Frequencies:
    """Return how frequent words are, by some of the posts."""
    counts: Counter[str] = Counter()
    for _, content in corpus.posts(SAMPLE):
        counts.update(set(tokenize(content)))
    return Frequencies([(word, count / SAMPLE) for word, count in counts.most_common()], corpus.words["latin"])


def queries(corpus: Corpus) -> dict[str, dict[str, Any]]:
    """Return searches by what they look for."""
    words = frequencies(corpus)
    near, pair = words.near, words.pair
    common, frequent, middle, rare = near(0.3), near(0.1), near(0.006), near(0.0003)
    half = {"until": BEGINNING + YEARS / 2}
    return {
        "rare word (0.03 %)": {"query": rare},
        "word (0.6 %)": {"query": middle},
        "common word (30 %)": {"query": common},
        "two words": {"query": f"{frequent} {middle}"},
        "either of two": {"query": f"{middle} OR {rare}"},
        "without": {"query": f"{middle} -{common}"},
        "phrase": {"query": f'"{pair()}"'},
        "phrase, rare": {"query": f'"{pair(50, 30)}"'},
        "prefix of 5 letters": {"query": f"{near(0.001)[:5]}*"},
        "prefix of 3 letters": {"query": f"{near(0.001)[:3]}*"},
        "Cyrillic word": {"query": near(0.006, is_latin=False)},
        "Chinese, 2 characters": {"query": words.dense(20)},
        "Chinese, 3 characters": {"query": words.dense(20) + words.dense(200)[0]},
        "Chinese, 1 character": {"query": corpus.characters[200]},
        "word in a stream": {"query": common, "stream": "telegram:1000077"},
        "word in all streams by pattern": {"query": middle, "stream": "telegram:*"},
        "word, of the first half": {"query": middle, **half},
        "common word, of the first half": {"query": common, **half},
        "rare word, of the first half": {"query": rare, **half},
        "word, ranked": {"query": middle, "order": "rank"},
        "common word, ranked": {"query": common, "order": "rank"},
    }


async def ask(resources: Resources, corpus: Corpus, report: Report, where: str) -> None:
    """Measure each search several times."""
    operations = LocalOperations(resources, Actor(who="bench"))
    for name, search in queries(corpus).items():
        watches, found = [Watch() for _ in range(9)], 0
        for watch in watches:
            with watch.running():
                page = await operations.search(**search)
            found = len(page.items)
        wall = median(watch.wall for watch in watches) * 1e3
        cpu = median(watch.cpu for watch in watches) * 1e3
        shown = f"{wall:.1f} ms, {cpu:.1f} ms of it CPU here"
        report.add(f"{where}: {name}", shown, f"first page: {found} of 20", "", "<= 100 ms", figure=wall)


async def keep(resources: Resources, batches: Sequence[Batch], stream: str, *, is_indexed: bool) -> tuple[float, float]:
    """Return posts per second, and the 99th percentile of the milliseconds of a batch."""
    async with resources.database.writing() as connection:
        await connection.execute(text("INSERT INTO watermarks (stream, fence) VALUES (:s, 1)"), {"s": stream})
    work = Work(job_id="j", name="bench", source="python", target="bench", stream=stream)
    lease = Lease(execution_id="e", job=work, scheduled_for=datetime.now(UTC), attempt=1, worker="w", fence=1)
    times: list[float] = []
    sink = SqlSink(resources.keeping, resources.events)
    async with following(resources) if is_indexed else relaying(resources):
        began = time.perf_counter()
        for batch in batches:
            start = time.perf_counter()
            await sink.keep(lease, batch)
            times.append((time.perf_counter() - start) * 1e3)
        seconds = time.perf_counter() - began
    return sum(len(batch.items) for batch in batches) / seconds, percentile(sorted(times), 99)


@asynccontextmanager
async def relaying(resources: Resources) -> AsyncIterator[None]:
    """Number the events every second, as a scheduler does."""

    async def nowhere(_: Sequence[Event]) -> None: ...

    async def relay() -> None:
        while True:
            sent = await resources.keeping.relay(nowhere, limit=500)
            await asyncio.sleep(0 if sent == 500 else 1)

    task = asyncio.create_task(relay())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def following(resources: Resources) -> AsyncIterator[None]:
    """Also index them, in the same process."""
    indexer = resources.search.indexer(resources.events)

    async def follow() -> None:
        while True:
            pause = await indexer.step()
            await asyncio.sleep(1 if pause is None else pause.total_seconds())

    async with relaying(resources):
        task = asyncio.create_task(follow())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def compare_keeping(resources: Resources, corpus: Corpus, rounds: int, report: Report, where: str) -> None:
    """Keep posts as fast as possible, with and without the index in the same process."""
    now = datetime.now(UTC)
    contents = [content for _, content in corpus.posts(20_000, seed=2)]
    numbers = iter(range(10**9))

    async def measure(*, is_indexed: bool) -> tuple[float, float]:
        number = next(numbers)
        posts = [Item(f"{number}:{place}", {"text": content}, now) for place, content in enumerate(contents)]
        batches = [Batch(posts[start : start + 100], {"value": start}) for start in range(0, len(posts), 100)]
        return await keep(resources, batches, f"bench:{number}", is_indexed=is_indexed)

    without, with_index = await interleaved(
        rounds, partial(measure, is_indexed=False), partial(measure, is_indexed=True)
    )
    report.add(
        f"{where}: posts kept with the index beside it",
        f"{median(rate for rate, _ in with_index):,.0f}/s, p99 {median(p99 for _, p99 in with_index):.0f} ms a batch",
        f"{median(rate for rate, _ in without):,.0f}/s, p99 {median(p99 for _, p99 in without):.0f} ms without",
        ratio([rate for rate, _ in with_index], [rate for rate, _ in without]),
    )


async def measure(url: str, corpus: Corpus, posts: int, rounds: int, report: Report) -> None:
    """Measure everything on one database."""
    async with floodmark(Settings(database_url=url)) as resources:
        await measure_on(resources, corpus, posts, rounds, report)


async def measure_on(resources: Resources, corpus: Corpus, posts: int, rounds: int, report: Report) -> None:
    where = "SQLite" if isinstance(resources.database, SqliteDatabase) else "PostgreSQL"
    await fill(resources, corpus, posts)
    cpu, wall, size = await build(resources, posts)
    report.add(f"{where}: indexing a post", f"{cpu:.0f} us CPU of this process, {wall:.0f} us wall-clock")
    report.add(f"{where}: the index", f"{size:.0f} bytes per post")
    await ask(resources, corpus, report, where)
    await compare_keeping(resources, corpus, rounds, report, where)


async def main(posts: int, rounds: int, only: str, place: str) -> None:
    corpus = make_corpus()
    report = Report(f"{posts:,} posts of 500 bytes, 5 years, 2,000 streams; median of 9 searches, page of 20")
    with nullcontext(Path(place)) if place else folder() as files:
        if only in {"", "sqlite"}:
            await measure(f"sqlite:///{files}/search.db", corpus, posts, rounds, report)
        if only in {"", "postgresql"}:
            with both_servers() as (postgres, _valkey):
                await measure(postgres.create_database("search"), corpus, posts, rounds, report)
    report.print()


if __name__ == "__main__":
    given = sys.argv[1:] + ["30000", "3", "", ""][len(sys.argv) - 1 :]
    run(lambda: main(int(given[0]), int(given[1]), given[2], given[3]))
