"""Measurements of the benchmark of metrics, each in its own process: a worker with and without metrics."""

import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Literal

import msgspec
from msgspec import Struct
from prometheus_client import CollectorRegistry

from floodmark.observability.events import E, Events, InternalEvent
from floodmark.observability.metrics import Metrics
from floodmark.scheduler.scheduler import Scheduler
from floodmark.settings import Settings
from floodmark.wiring.resources import open_resources

from ._executions import Place, drain, given_jobs
from ._measuring import Watch, in_a_process, migrated, run, tell

Role = Literal["watched", "unwatched", "replayed"]
_REPLAYS = 20


class Cost(Struct, frozen=True):
    """CPU seconds for a number of executions."""

    count: int
    cpu: float


class Unwatched(Events):
    """Events without listeners, except for the benchmark itself, which must know when the work is done."""

    def listen(self, event_type: type[E], callback: Callable[[E], None]) -> Callable[[], None]:
        if not str(callback.__module__).startswith("bench."):
            return lambda: None
        return super().listen(event_type, callback)


class Recorded(Events):
    """A listener that stores all events."""

    def __init__(self) -> None:
        super().__init__()
        self.happened: list[InternalEvent] = []

    def emit(self, event: InternalEvent) -> None:
        self.happened.append(event)
        super().emit(event)


async def measured(role: Role, place: Place) -> Cost:
    """Measure in a fresh process."""
    return await in_a_process(__spec__.name, role, place, Cost)


async def worked(place: Place, events: Events) -> Cost:
    """Let the scheduler fire jobs that are all due, then measure one worker that runs them."""
    settings, watch = Settings(database_url=place.database), Watch()
    await migrated(settings)
    async with open_resources(settings, events=events) as resources:
        await given_jobs(resources, place.count)
        scheduler = Scheduler(resources.firing, resources.queue, resources.events)
        while await scheduler.step() == timedelta():
            pass
        await drain(resources, place.count, watch)
    return Cost(place.count, watch.cpu)


async def replayed(place: Place) -> Cost:
    """Replay the same events with and without metrics: the difference is the cost of the metrics.

    This is far more exact than the difference of two runs, because the cost is about a hundredth of a run.
    """
    recorded = Recorded()
    await worked(place, recorded)
    watched = Events()
    Metrics(CollectorRegistry(), 200).attach(watched)
    to_metrics, to_nobody = (_told(events, recorded.happened) for events in (watched, Events()))
    return Cost(place.count * _REPLAYS, to_metrics - to_nobody)


def _told(events: Events, happened: list[InternalEvent]) -> float:
    watch = Watch()
    with watch.running():
        for _ in range(_REPLAYS):
            for event in happened:
                events.emit(event)
    return watch.cpu


async def main(role: str, told: str) -> None:
    place: Any = msgspec.json.decode(told, type=Place)
    tell(
        await (
            replayed(place) if role == "replayed" else worked(place, Unwatched() if role == "unwatched" else Events())
        )
    )


if __name__ == "__main__":
    run(lambda: main(*sys.argv[1:]))
