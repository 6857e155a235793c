"""Stores matches and moves the position of the evaluator, in one transaction: nothing is missed or matched twice.

Tables: `watch_matches`, `watch_counts`, `watch_channels`, `consumers`.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy import bindparam, insert, select, text, update

from floodmark.repositories.repository import Repository
from floodmark.rules.notification_times import reach_threshold
from floodmark.store.async_engine import AsyncConnection
from floodmark.store.dialects import chunks, present_moment

from .compiled import CompiledWatch
from .evaluation import FoundMatch
from .rows import EvaluatorState, lock_state, store_state
from .tables import watch_channels, watch_counts, watch_matches

# Matches of one watch in an hour that are stored; more are only counted.
MOST_AN_HOUR = 1000
_m, _k, _c = watch_matches.c, watch_counts.c, watch_channels.c


class StoredMatches(Struct, frozen=True):
    """The result of storing matches: new ones, those of back-fill, and whether there is something to send."""

    new: int = 0
    suppressed: int = 0
    is_due: bool = False


class _OfWatch:
    """The new matches of one watch, in order: which of them are stored, and which are reported."""

    def __init__(self, watch: CompiledWatch) -> None:
        self.watch, self.matches = watch, list[FoundMatch]()
        self.suppressed = 0
        self.is_due: list[bool] = []
        # How many are stored in the hour so far, and of the new ones.
        self.stored_before, self.stored = 0, 0

    @property
    def due(self) -> int:
        return sum(self.is_due)


class MatchRepository(Repository):
    """Stores what the evaluator finds."""

    async def now(self) -> datetime:
        """Return the present time, as items are dated."""
        async with self._database.reading() as connection:
            return await present_moment(self._database, self._clock, connection)

    async def store(
        self,
        found: Sequence[FoundMatch],
        state: EvaluatorState,
        *,
        position: int,
        memory: Mapping[str, Any] | None = None,
    ) -> StoredMatches | None:
        """Store matches and move on from `state`; None if it has changed: another leader or a person was faster."""
        async with self._database.writing() as connection:
            locked = await lock_state(self._database, connection)
            if (locked.position, locked.generation) != (state.position, state.generation):
                return None
            now = await present_moment(self._database, self._clock, connection)
            groups = _group(await _without_known(connection, found))
            if groups:
                await self._write(connection, groups, now)
            moved = replace(locked, position=position, memory={**locked.memory, **(memory or {})})
            await store_state(connection, moved, moved_at=now, error=None, failed_at=None)
        return StoredMatches(
            sum(len(one.matches) for one in groups.values()),
            sum(one.suppressed for one in groups.values()),
            any(one.due for one in groups.values()),
        )

    async def _write(self, connection: AsyncConnection, groups: Mapping[str, _OfWatch], now: datetime) -> None:
        await _count_in_hour(connection, groups, now)
        await _decide_due(connection, groups)
        rows = [row for one in groups.values() for row in _rows(one, now)]
        for some in chunks(rows):
            await connection.execute(insert(watch_matches), some)
        await _store_counts(connection, groups, now)
        await _store_channels(connection, groups, now)


def _group(found: Iterable[FoundMatch]) -> dict[str, _OfWatch]:
    groups: dict[str, _OfWatch] = {}
    for match in found:
        group = groups.setdefault(match.watch.watch_id, _OfWatch(match.watch))
        if match.is_backfill:
            group.suppressed += 1
        else:
            group.matches.append(match)
    return groups


async def _without_known(connection: AsyncConnection, found: Sequence[FoundMatch]) -> list[FoundMatch]:
    """Return the matches that are not stored: events may be read again after the database was restored."""
    known: set[tuple[str, str]] = set()
    for some in chunks(list({match.event_id for match in found})):
        query = select(_m.event_id, _m.watch_id).where(_m.event_id.in_(some))
        known |= {(row.event_id, row.watch_id) for row in await connection.execute(query)}
    return [match for match in found if (match.event_id, match.watch.watch_id) not in known]


async def _count_in_hour(connection: AsyncConnection, groups: Mapping[str, _OfWatch], now: datetime) -> None:
    """Decide how many of the new matches are stored."""
    hour = _hour_of(now)
    for some in chunks(list(groups)):
        query = select(_k.watch_id, _k.hour, _k.stored).where(_k.watch_id.in_(some))
        for row in await connection.execute(query):
            group = groups[row.watch_id]
            group.stored_before = row.stored if row.hour == hour else 0
            group.stored = min(len(group.matches), max(0, MOST_AN_HOUR - group.stored_before))


async def _decide_due(connection: AsyncConnection, groups: Mapping[str, _OfWatch]) -> None:
    """Decide which matches are reported: all, or with a threshold when it is reached."""
    counting = {key: one for key, one in groups.items() if one.watch.threshold is not None and one.matches}
    earlier = await _read_unreported(connection, counting)
    reported: list[int] = []
    for key, one in groups.items():
        threshold = one.watch.threshold
        if threshold is None:
            one.is_due = [True] * len(one.matches)
            continue
        before = earlier.get(key, [])
        times = [match.at for match in one.matches[: one.stored]]
        reached = reach_threshold(threshold, [at for _, at in before], times)
        one.is_due = [*reached.new, *[False] * (len(one.matches) - one.stored)]
        reported += [seq for (seq, _), is_due in zip(before, reached.earlier, strict=True) if is_due]
        # The earlier ones are part of the message too.
        one.is_due += [True] * sum(reached.earlier)
    for some in chunks(reported):
        await connection.execute(update(watch_matches).where(_m.seq.in_(some)).values(is_due=True))


async def _read_unreported(
    connection: AsyncConnection, counting: Mapping[str, _OfWatch]
) -> dict[str, list[tuple[int, datetime]]]:
    """Return matches that were not reported and may still count: fewer than the threshold for each watch."""
    found: dict[str, list[tuple[int, datetime]]] = {key: [] for key in counting}
    since = {key: min(match.at for match in one.matches) - _within(one) for key, one in counting.items()}
    # Watches with similar times are read together, so that few rows are read that do not count.
    similar: dict[int, list[str]] = {}
    for key, one in counting.items():
        similar.setdefault(int(_within(one).total_seconds()).bit_length(), []).append(key)
    for keys in similar.values():
        for some in chunks(keys):
            wanted = (_m.watch_id.in_(some), text("NOT watch_matches.is_due"), _m.at > min(since[key] for key in some))
            query = select(_m.watch_id, _m.seq, _m.at).where(*wanted).order_by(_m.seq)
            for row in await connection.execute(query):
                if row.at > since[row.watch_id]:
                    found[row.watch_id].append((row.seq, row.at))
    return found


def _within(one: _OfWatch) -> timedelta:
    assert one.watch.threshold is not None
    return one.watch.threshold.within


def _rows(one: _OfWatch, now: datetime) -> list[dict[str, Any]]:
    return [
        {
            "watch_id": one.watch.watch_id,
            "event_id": match.event_id,
            "stream": match.stream,
            "key": match.key,
            "revision": match.revision,
            "position": match.position,
            "at": match.at,
            "is_due": is_due,
            "title": match.title,
            "text": match.text,
            "url": match.url,
            "created_at": now,
        }
        for match, is_due in zip(one.matches[: one.stored], one.is_due, strict=False)
    ]


async def _store_counts(connection: AsyncConnection, groups: Mapping[str, _OfWatch], now: datetime) -> None:
    rows = [
        {
            "of": key,
            "more": len(one.matches),
            "more_suppressed": one.suppressed,
            "hour": _hour_of(now),
            "stored": one.stored_before + one.stored,
            "last_match_at": max((match.at for match in one.matches), default=None),
        }
        for key, one in groups.items()
    ]
    for is_match in (True, False):
        values: dict[str, Any] = {
            "matches": _k.matches + bindparam("more"),
            "suppressed": _k.suppressed + bindparam("more_suppressed"),
        }
        if is_match:
            values |= {name: bindparam(name) for name in ("hour", "stored", "last_match_at")}
        some = [row for row in rows if bool(row["more"]) == is_match]
        if some:
            await connection.execute(update(watch_counts).where(_k.watch_id == bindparam("of")).values(**values), some)


async def _store_channels(connection: AsyncConnection, groups: Mapping[str, _OfWatch], now: datetime) -> None:
    """Say when each channel is notified, unless it already waits for an earlier match."""
    due = {key: one for key, one in groups.items() if one.due}
    changes = []
    for some in chunks(list(due)):
        query = select(_c.watch_id, _c.channel, _c.due_at, _c.sent_at).where(_c.watch_id.in_(some))
        for row in await connection.execute(query):
            one = due[row.watch_id]
            due_at = one.watch.times.due_at(now, row.sent_at) if row.due_at is None else row.due_at
            changes.append({"of": row.watch_id, "over": row.channel, "more": one.due, "due": due_at})
    if changes:
        this = update(watch_channels).where(_c.watch_id == bindparam("of"), _c.channel == bindparam("over"))
        values = {"waiting": _c.waiting + bindparam("more"), "due_at": bindparam("due")}
        await connection.execute(this.values(**values), changes)


def _hour_of(moment: datetime) -> datetime:
    return moment.replace(minute=0, second=0, microsecond=0)
