"""Stores views, forwards, replies and reactions of posts over time. Table: `telegram_engagement`.

A sample is stored once: the first sighting of a post at or after its age. The row with the point 0 is the newest change
that was seen. Storing a sighting again changes nothing, so it may be repeated after a crash.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct
from sqlalchemy import or_, select

from floodmark.model.engagement import COUNTS, EngagementSample, counts_of, points_reached
from floodmark.store.database import Database
from floodmark.store.dialects import chunks, insert_into

from .tables import telegram_engagement

_CELL = telegram_engagement.c
_NEWEST = 0


class Sighting(Struct, frozen=True):
    """The counts of a post as they were seen at a time."""

    key: str
    posted_at: datetime
    seen_at: datetime
    data: Mapping[str, Any]


class Engagement:
    """Reads and writes the counts of posts over time."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def store(self, stream: str, seen: Sequence[Sighting], points: tuple[timedelta, ...]) -> None:
        """Store sightings: for the ages that they count for, and as the newest ones if counts have changed."""
        newest, samples = [], []
        for one in seen:
            counts = counts_of(one.data)
            if not counts:
                continue
            row = {"stream": stream, "key": one.key, "seen_at": one.seen_at, **dict.fromkeys(COUNTS), **counts}
            newest.append({**row, "point": _NEWEST})
            reached = points_reached(one.seen_at - one.posted_at, points)
            samples += [{**row, "point": round(point.total_seconds())} for point in reached]
        if newest:
            await self._write(newest, samples)

    async def missing(self, stream: str, keys: Sequence[str], point: timedelta) -> set[str]:
        """Return those of these posts that have no sample for an age."""
        found: set[str] = set()
        async with self._database.reading() as connection:
            for some in chunks(keys):
                query = select(_CELL.key).where(
                    _CELL.stream == stream, _CELL.key.in_(some), _CELL.point == round(point.total_seconds())
                )
                found.update((await connection.execute(query)).scalars())
        return set(keys) - found

    async def of_posts(self, stream: str, keys: Sequence[str]) -> dict[str, list[EngagementSample]]:
        """Return what is stored of these posts, the oldest sighting first."""
        found: dict[str, list[EngagementSample]] = {}
        async with self._database.reading() as connection:
            for some in chunks(keys):
                query = select(telegram_engagement).where(_CELL.stream == stream, _CELL.key.in_(some))
                for row in (await connection.execute(query)).mappings():
                    found.setdefault(row["key"], []).append(_sample(dict(row)))
        for samples in found.values():
            samples.sort(key=lambda sample: (sample.seen_at, sample.after_seconds or 0))
        return found

    async def _write(self, newest: Sequence[dict[str, Any]], samples: Sequence[dict[str, Any]]) -> None:
        insert = insert_into(self._database, telegram_engagement)
        excluded = insert.excluded
        has_changed = or_(*(_CELL[name].is_distinct_from(excluded[name]) for name in COUNTS))
        replace = insert.on_conflict_do_update(
            index_elements=["stream", "key", "point"],
            set_={name: excluded[name] for name in ("seen_at", *COUNTS)},
            # A worker that was replaced may be late with what it has seen.
            where=(_CELL.seen_at < excluded.seen_at) & has_changed,
        )
        async with self._database.writing() as connection:
            await connection.execute(replace, newest)
            if samples:
                await connection.execute(insert.on_conflict_do_nothing(), samples)


def _sample(row: Mapping[str, Any]) -> EngagementSample:
    is_newest = row["point"] == _NEWEST
    return EngagementSample(
        occasion="newest" if is_newest else "sample",
        after_seconds=None if is_newest else row["point"],
        **{name: row[name] for name in ("seen_at", *COUNTS)},
    )
