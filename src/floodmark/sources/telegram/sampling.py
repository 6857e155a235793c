"""Sample the engagement of posts at certain ages. Imports Telethon.

Each age has a position in the stream: all posts up to it are sampled, or were too old. Posts that are due wait for each
other for a tenth of the age, because a request can return a hundred of them.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from datetime import datetime, timedelta

from floodmark.model.batch import Item
from floodmark.model.engagement import LATEST
from floodmark.sources.collected_items import CollectedKey

from .engagement import Sighting
from .history import PAGE, ChannelHistory
from .plans import SampledMark
from .services import TelegramServices

# The share of the age that a due post may wait for others.
_PATIENCE = 10

Positions = Mapping[str, SampledMark]


class EngagementSampling:
    """Samples the posts of one channel."""

    def __init__(
        self, services: TelegramServices, history: ChannelHistory, stream: str, points: tuple[timedelta, ...]
    ) -> None:
        self._services, self._history, self._stream, self._points = services, history, stream, points

    async def steps(self, positions: Positions) -> AsyncGenerator[Positions, None]:
        """Sample all due posts, and yield the positions after each step. Nothing is yielded if they stay the same."""
        now = self._services.clock.now()
        # The first time, posts that have passed an age already are left out.
        names = {name_of(point): point for point in self._points}
        current = {name: positions.get(name, SampledMark(date=now - point)) for name, point in names.items()}
        if current != dict(positions):
            yield current
        while True:
            due = {point: await self._due(point, current[name_of(point)], now) for point in self._points}
            if not is_time(due, now):
                return
            await self._sample(due)
            for point, keys in due.items():
                if keys:
                    current = {**current, name_of(point): SampledMark(date=keys[-1].occurred_at, key=keys[-1].key)}
            yield current

    async def _due(self, point: timedelta, start: SampledMark, now: datetime) -> Sequence[CollectedKey]:
        # Posts that are too old for a sample are left out: the job may have been paused.
        since = max(start.date, now - LATEST * point)
        after = CollectedKey(key=start.key, occurred_at=start.date) if since == start.date else None
        found = await self._services.collected.keys(self._stream, since=since, after=after, limit=PAGE)
        return [entry for entry in found if entry.occurred_at <= now - point]

    async def _sample(self, due: Mapping[timedelta, Sequence[CollectedKey]]) -> None:
        wanted: dict[str, CollectedKey] = {}
        for point, keys in due.items():
            by_key = {entry.key: entry for entry in keys}
            missing = await self._services.engagement.missing(self._stream, list(by_key), point) if keys else ()
            wanted |= {key: by_key[key] for key in missing}
        numbers = sorted(int(key.rpartition(":")[2]) for key in wanted)
        for start in range(0, len(numbers), PAGE):
            found = await self._history.items(await self._history.messages(numbers[start : start + PAGE]))
            seen = sightings(found, self._services.clock.now())
            await self._services.engagement.store(self._stream, seen, self._points)


def sightings(items: Sequence[Item], now: datetime) -> list[Sighting]:
    """Return the counts of items that were read now; tombstones have none."""
    return [
        Sighting(item.key, item.occurred_at, now, item.data)
        for item in items
        if item.occurred_at is not None and not item.deleted
    ]


def name_of(point: timedelta) -> str:
    """Return the name of an age in the watermark."""
    return str(round(point.total_seconds()))


def is_time(due: Mapping[timedelta, Sequence[CollectedKey]], now: datetime) -> bool:
    """Return whether due posts are read now: a page is full, or one has waited long enough for others."""
    return any(
        len(keys) >= PAGE or (bool(keys) and now - keys[0].occurred_at >= point + point / _PATIENCE)
        for point, keys in due.items()
    )
