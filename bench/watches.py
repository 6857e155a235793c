"""CPU time of 100, 1,000 and 10,000 watches per event, compared with a bare automaton of their literals.

python run.py bench watches [events] [rounds]
"""

import random
import sys
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from statistics import median

import ahocorasick_rs
import msgspec

from floodmark.coordination.signals.port import Bell
from floodmark.model.batch import Batch, Item
from floodmark.model.outcome import Done
from floodmark.model.watches import WatchFields
from floodmark.search.tokens import fold
from floodmark.settings import Settings
from floodmark.testing.factories import given_executions, given_job, settle, take
from floodmark.watches.compiled import CompiledWatch
from floodmark.watches.documents import WatchedItem, read_data
from floodmark.watches.evaluation import evaluate
from floodmark.watches.event_reader import WatchedEvent
from floodmark.watches.index import WatchIndex, WatchSet
from floodmark.watches.places import StreamPlace
from floodmark.watches.repository import WatchRepository
from floodmark.watches.services import build_evaluator
from floodmark.wiring.resources import Resources

from ._measuring import Report, Watch, floodmark, folder, run

SIZES = (100, 1_000, 10_000)
STREAM = "telegram:7"
NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
# The letters of Latin, Cyrillic, Arabic and Hebrew words, and ideographs; the share of posts in each script.
ALPHABETS = (
    "etaoinshrdlucmfwypvbgk",
    "оеаинтсрвлкмдпуяыьгз",
    "ايلمنوربتعد",
    "יהולאמרתבש",
    "的一是不了人我在有他这中大来上个国",
)
SHARES = (45, 25, 10, 5, 15)
WORDS_IN_POST = 64


class Vocabulary:
    """Words of one script. Few of them make up most of a text, as in real texts."""

    def __init__(self, chance: random.Random, alphabet: str, size: int = 20_000) -> None:
        self._chance = chance
        self.words = list({"".join(chance.choices(alphabet, k=chance.randint(4, 10))) for _ in range(size)})
        self._weights = list(accumulate(1 / (place + 3) for place in range(len(self.words))))

    def text(self, count: int) -> list[str]:
        return self._chance.choices(self.words, cum_weights=self._weights, k=count)

    def rare(self) -> str:
        return self._chance.choice(self.words[len(self.words) // 4 :])


def make_events(chance: random.Random, scripts: list[Vocabulary], count: int) -> list[WatchedEvent]:
    """Return posts of about 500 bytes."""
    events = []
    for number in range(count):
        words = chance.choices(scripts, weights=SHARES)[0].text(WORDS_IN_POST)
        data = {"id": number, "channel_id": 7, "channel": "news", "text": " ".join(words).capitalize(), "views": number}
        events.append(
            WatchedEvent(
                position=number + 1,
                stream=STREAM,
                key=f"7:{number}",
                revision=1,
                existed=None,
                occurred_at=NOON,
                collected_at=NOON,
                deleted=False,
                data=msgspec.json.encode(data).decode(),
            )
        )
    return events


def make_fields(chance: random.Random, scripts: list[Vocabulary], number: int) -> WatchFields:
    """Return a watch: two words that must both be there, one of two, a phrase, a beginning or a pattern."""
    words = chance.choices(scripts, weights=SHARES)[0]
    first, second = words.rare(), words.rare()
    queries = (f"{first} {second}", f"{first} OR {second}", f'"{first} {second}"', f"{first[:6]}* -{second}", None)
    query = chance.choices(queries, weights=(50, 30, 10, 5, 5))[0]
    pattern = None if query is not None else f"(?i){first}.+{second}"
    streams = chance.choice([(), ("telegram:*",), ("web:*",)])
    return WatchFields(name=f"w{number}", query=query, pattern=pattern, streams=streams, notify=("webhook",))


def measure_watches(watches: WatchSet, events: list[WatchedEvent]) -> tuple[float, int]:
    """Return the CPU seconds of an evaluation, and the number of matches."""
    watch, places = Watch(), {STREAM: StreamPlace(STREAM)}
    with watch.running():
        found = evaluate(events, watches, places)
    assert found.examined == len(events), "there were too many matches"
    assert not found.failures
    return watch.cpu, len(found.matches)


def measure_automaton(watches: WatchSet, events: list[WatchedEvent]) -> float:
    """Return the CPU seconds to fold the same texts and to search them for the same literals."""
    texts = [WatchedItem(event.key, read_data(event.data)).text for event in events]
    literals = sorted({literal for one in watches.all() for literal in one.literals or ()})
    automaton = ahocorasick_rs.AhoCorasick(literals, implementation=ahocorasick_rs.Implementation.ContiguousNFA)
    watch = Watch()
    with watch.running():
        for text in texts:
            automaton.find_matches_as_indexes(fold(text), overlapping=True)
    return watch.cpu


async def measure_service(resources: Resources, fields: list[WatchFields], events: list[WatchedEvent]) -> float:
    """Return the events per CPU second of the whole evaluator: reading, matching, storing."""
    repository = WatchRepository(resources.database, resources.clock)
    for one in fields:
        await repository.add(one)
    evaluator, watch = build_evaluator(resources, Bell()), Watch()
    # Loads the watches.
    await evaluator.step()
    job_id = await given_job(resources, name="news", stream=STREAM)
    await given_executions(resources, [job_id])
    [lease] = await take(resources)
    assert await settle(resources, lease, Done())
    await given_executions(resources, [job_id])
    [lease] = await take(resources)
    for start in range(0, len(events), 100):
        items = [Item(event.key, read_data(event.data)) for event in events[start : start + 100]]
        await resources.keeping.keep(lease, Batch(items))

    async def publish(_: object) -> None:
        pass

    while await resources.keeping.relay(publish, limit=1000):
        pass
    with watch.running():
        while await evaluator.step() is not None:
            pass
    return len(events) / watch.cpu


async def main(events: int = 3000, rounds: int = 3) -> None:
    chance = random.Random(7)
    scripts = [Vocabulary(chance, alphabet) for alphabet in ALPHABETS]
    posts = make_events(chance, scripts, events)
    fields = [make_fields(chance, scripts, number) for number in range(max(SIZES))]
    report = Report(f"{events:,} posts of {WORDS_IN_POST} words in five scripts, CPU time, median of {rounds} rounds")
    for size in SIZES:
        build, compiled = Watch(), {}
        for one in fields[:size]:
            compiled[one.name] = CompiledWatch(one, watch_id=one.name, default_max_age=timedelta(days=1))
        with build.running():
            watches = WatchSet(WatchIndex(compiled))
        measured = [(*measure_watches(watches, posts), measure_automaton(watches, posts)) for _ in range(rounds)]
        ours, matches, bare = (median(column) for column in zip(*measured, strict=True))
        report.add(
            f"{size:,} watches, {matches / events:.2f} matches per event, automaton built in {build.cpu * 1000:.0f} ms",
            f"{ours / events * 1e6:.0f} us/event",
            f"{bare / events * 1e6:.0f} us/event fold and bare automaton",
            f"{ours / bare:.1f}x",
            ">= 1,000 events/s of a core",
            figure=events / ours,
        )
    with folder() as files:
        async with floodmark(Settings(database_url=f"sqlite:///{files}/watches.db")) as resources:
            per_second = await measure_service(resources, fields, posts)
    report.add(
        f"the evaluator with {max(SIZES):,} watches on SQLite: reading, matching, storing",
        f"{per_second:,.0f} events per CPU second",
        "",
        "",
        ">= 1,000",
        figure=per_second,
    )
    report.print()


if __name__ == "__main__":
    arguments = [int(argument) for argument in sys.argv[1:]]
    run(lambda: main(*arguments))
