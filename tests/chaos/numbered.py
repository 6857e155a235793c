"""A source of numbers, so that what must have been collected is known beforehand: every number, once.

Stream k of n holds its share of 1..items. Even streams are read by one long execution that goes on where the
watermark says; odd ones by a short execution a second, each beginning with the last few numbers once more, as a
page that overlaps the one before. `tick` fires every second and keeps one item for each of its instants.
"""

import asyncio
import os
import random
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path

from msgspec import Struct

from floodmark import Batch, Context, Floodmark, Item, Settings, SlowDown
from floodmark.observability.events import Events

TICK = "tick"
TICK_SECONDS = 1
OVERLAP = 10


class Plan(Struct, frozen=True, kw_only=True):
    """What there is to collect, and at what pace."""

    items: int = 20_000
    streams: int = 8
    batch: int = 100
    pause: float = 1.0
    """Longest pause before a batch, in seconds; the mean is half of it."""
    slow_down: bool = False
    """Whether a stream that is read for the first time asks to be left alone for a moment after one batch."""
    until: str = ""
    """A file: no long execution keeps its last batch before it exists, so that one runs for as long as a test needs."""

    def name(self, stream: int) -> str:
        return f"numbers-{stream}"

    def numbers(self, stream: int) -> range:
        share = self.items // self.streams
        return range(stream * share + 1, (stream + 1) * share + 1)

    def keys(self, stream: int) -> set[str]:
        return {key(number) for number in self.numbers(stream)}


def key(number: int) -> str:
    """Sorts as the numbers do."""
    return f"{number:06}"


def numbered_app(settings: Settings, plan: Plan, events: Events) -> Floodmark:
    """An application that collects all of it."""
    app = Floodmark(settings, events=events)
    # Patient: an outage of the test's making must not end in a dead letter.
    for stream in range(plan.streams):
        if stream % 2:
            app.collector(name=plan.name(stream), every="1s", retry_max=1000, overlap="skip")(_short(plan, stream))
        else:
            app.collector(name=plan.name(stream), once=True, retry_max=1000)(_long(plan, stream))

    @app.collector(name=TICK, every=timedelta(seconds=TICK_SECONDS), retry_max=1000, overlap="queue")
    async def tick(context: Context) -> AsyncIterator[Batch]:
        yield Batch([Item(context.scheduled_for.isoformat(), {})])

    return app


def _long(plan: Plan, stream: int) -> Callable[..., AsyncIterator[Batch]]:
    async def collect(since: int | None) -> AsyncIterator[Batch]:
        numbers = plan.numbers(stream)
        reached = numbers[0] - 1 if since is None else since
        while reached < numbers[-1]:
            await _pause(plan)
            if reached + plan.batch >= numbers[-1] and not _may_end(plan):
                continue
            yield _batch(plan, numbers, reached + 1)
            if plan.slow_down and since is None:
                raise SlowDown(timedelta(seconds=0.1), f"numbers-{stream}")
            reached = min(reached + plan.batch, numbers[-1])

    return collect


def _may_end(plan: Plan) -> bool:
    return not plan.until or Path(plan.until).exists()


def _short(plan: Plan, stream: int) -> Callable[..., AsyncIterator[Batch]]:
    async def collect(since: int | None) -> AsyncIterator[Batch]:
        numbers = plan.numbers(stream)
        reached = numbers[0] - 1 if since is None else since
        if reached < numbers[-1]:
            await _pause(plan)
            yield _batch(plan, numbers, max(numbers[0], reached + 1 - OVERLAP), reached + 1)

    return collect


def _batch(plan: Plan, numbers: range, first: int, new: int | None = None) -> Batch:
    last = min((new or first) + plan.batch - 1, numbers[-1])
    items = [Item(key(number), {"number": number}) for number in range(first, last + 1)]
    return Batch(items, {"value": last})


async def _pause(plan: Plan) -> None:
    # Each process its own: forked ones would otherwise all draw the same.
    await asyncio.sleep(random.Random(os.urandom(8)).uniform(0, plan.pause))
