"""Counts executions by the minute, for charts. Tables: `minutes`; reads `executions` by its primary key.

Ids begin with the time of their creation, so the executions of a minute are a range of the primary key, and no index is
needed for them. A minute is counted again until all its executions have ended. Their ends are added to the minutes in
which they ended; `counted` remembers which ones, so that each end is counted once, whoever counts.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, RowMapping, Select, and_, bindparam, case, delete, func, or_, select, update

from floodmark.model.ids import floor_id
from floodmark.model.minutes import MinuteReport
from floodmark.process.failpoints import COUNT_POINT, failpoint
from floodmark.rules.minutes import (
    BOUNDS,
    ENDS,
    GIVEN_UP,
    MINUTE,
    CountedGroup,
    Ends,
    Lateness,
    MinuteCount,
    add_ends,
    begin_of_minute,
    count_minute,
    pause_before_recount,
    step_for,
    sum_ends,
    sum_minutes,
)
from floodmark.store.async_engine import AsyncConnection
from floodmark.store.database import Database
from floodmark.store.dialects import minute_of, present_moment, raw, seconds_between
from floodmark.store.tables import job_executions, minutes

from .repository import Repository

KEPT = timedelta(days=28)
# Charts show hours at once after an upgrade.
_FIRST = timedelta(days=1)
_AT_ONCE = 20
# Clocks and rounding: the durations of several runs add up to clearly more than the last one.
_SAME_RUN = 0.05

_SHOWN = (
    *("minute", "counted_at", "created", "unfinished", "lateness", "queued", "items_new", "items_changed"),
    *("done", "dead", "cancelled", "skipped"),
)

_e, _m = job_executions.c, minutes.c


class Minutes(Repository):
    """Counts by the minute."""

    @cached_property
    def _query(self) -> Select[Any]:
        # Not in the constructor: most processes never count, and building the query takes a third of opening one.
        return _group_query(self._database)

    async def count(self, *, queued: int = 0) -> bool:
        """Count the minutes that are due, the newest first; return whether there may be more.

        `queued`: the longest queue since the last call.
        """
        async with self._database.reading() as connection:
            now = await present_moment(self._database, self._clock, connection)
        await self._open(now, queued)
        due = select(_m.minute).where(_m.recount_at <= now).order_by(_m.minute.desc()).limit(_AT_ONCE)
        found = {row["minute"]: await self._read(row["minute"]) for row in await self._database.fetch(due)}
        if found:
            await self._write(found, now)
        return len(found) == _AT_ONCE

    async def read(self, hours: float, most: int = 400) -> MinuteReport:
        """Return the last hours, in at most this many rows."""
        step = step_for(hours, most)
        async with self._database.reading() as connection:
            now = await present_moment(self._database, self._clock, connection)
            since = begin_of_minute(now - timedelta(hours=hours), step) + step * MINUTE
            columns = (raw(_m[name]) for name in _SHOWN)
            rows = await connection.execute(select(*columns).where(_m.minute >= since).order_by(_m.minute))
            found = [dict(zip(_SHOWN, row, strict=True)) for row in rows]
        for row in found:
            row["lateness"] = _decode_lateness(row["lateness"])
        counted = [row["counted_at"] for row in found if row["counted_at"] is not None]
        return MinuteReport(
            step_minutes=step, rows=sum_minutes(found, since, now, step), counted_at=max(counted, default=None)
        )

    async def prune(self) -> None:
        """Delete old minutes."""
        async with self._database.writing() as connection:
            now = await present_moment(self._database, self._clock, connection)
            await connection.execute(delete(minutes).where(_m.minute < now - KEPT))

    async def _open(self, now: datetime, queued: int) -> None:
        """Add the minutes since the last one that was opened, the present one included."""
        newest = select(_m.minute).where(_m.created.is_not(None)).order_by(_m.minute.desc()).limit(1)
        last, present = await self._database.fetch_value(newest), begin_of_minute(now)
        first = present - _FIRST if last is None else max(last + MINUTE, present - GIVEN_UP)
        opened = [first + n * MINUTE for n in range(int((present - first) / MINUTE) + 1)]
        if not opened and not queued:
            return
        async with self._database.writing() as connection:
            if opened:
                statement = self._insert_into(minutes)
                values = {"created": 0, "recount_at": statement.excluded.recount_at}
                upsert = statement.on_conflict_do_update(
                    index_elements=["minute"], set_=values, where=_m.created.is_(None)
                )
                rows = [{"minute": minute, "created": 0, "recount_at": minute} for minute in opened]
                await connection.execute(upsert, rows)
            if queued:
                longer = update(minutes).where(_m.minute == present, _m.queued < queued)
                await connection.execute(longer.values(queued=queued))

    async def _read(self, minute: datetime) -> MinuteCount:
        """Count the executions that were created in a minute."""
        bounds = {"first": floor_id(minute), "last": floor_id(minute + MINUTE)}
        async with self._database.reading() as connection:
            rows = await connection.execute(self._query, bounds)
            return count_minute(CountedGroup(*row) for row in rows)

    async def _write(self, found: Mapping[datetime, MinuteCount], now: datetime) -> None:
        added = dict[datetime, tuple[int, ...]]()
        async with self._database.writing() as connection:
            # Locked: after a split of the fleet two leaders may count the same minutes.
            query = select(minutes).where(_m.minute.in_(found), _m.recount_at.is_not(None)).order_by(_m.minute)
            for row in (await connection.execute(query.with_for_update())).mappings().all():
                minute = row["minute"]
                counted, more = add_ends(_decode_ends(row["counted"]), found[minute].ends)
                added = sum_ends(added, more)
                values = _values(row, found[minute], counted, now)
                if minute == begin_of_minute(now) or any(row[name] != value for name, value in values.items()):
                    await connection.execute(
                        update(minutes).where(_m.minute == minute).values(**values, counted_at=now)
                    )
            failpoint(COUNT_POINT)
            await self._add(connection, added)

    async def _add(self, connection: AsyncConnection, added: Ends) -> None:
        if not added:
            return
        names = [state.value for state in ENDS]
        statement = self._insert_into(minutes)
        more = {name: _m[name] + statement.excluded[name] for name in names}
        rows = [{"minute": at, **dict(zip(names, ends, strict=True))} for at, ends in sorted(added.items())]
        await connection.execute(statement.on_conflict_do_update(index_elements=["minute"], set_=more), rows)


def _values(row: RowMapping, found: MinuteCount, counted: Ends, now: datetime) -> dict[str, Any]:
    """Return the new values of a minute whose executions were counted."""
    pause = pause_before_recount(row["minute"], found.unfinished, now)
    # Runs that were repeated meanwhile have lost the time of their first start.
    is_better = found.lateness.started >= row["started"]
    return {
        "created": max(row["created"] or 0, found.created),
        "unfinished": found.unfinished,
        "recount_at": None if pause is None else now + pause if pause else row["minute"],
        "counted": None if pause is None else _encode_ends(counted),
        **(_encode_lateness(found.lateness) if is_better else {}),
    }


def _group_query(database: Database) -> Select[Any]:
    """Return the query that groups the executions with ids from `first` to `last` by end, state and lateness."""
    late = seconds_between(database, _e.scheduled_for, _e.started_at)
    ended = case((_e.completed_at.is_(None), None), else_=minute_of(database, _e.completed_at))
    buckets = case(*((late < bound, n) for n, bound in enumerate(BOUNDS)), else_=len(BOUNDS))
    bucket = case((_is_first_start(database), buckets), else_=None)
    mine = and_(_e.execution_id >= bindparam("first"), _e.execution_id < bindparam("last"))
    # In a subquery: PostgreSQL does not recognise an expression with parameters in GROUP BY.
    each = select(
        ended.label("ended"), _e.state, bucket.label("bucket"), case((late > 0, late), else_=0.0).label("late")
    )
    one = each.where(mine).subquery()
    groups = (one.c.ended, one.c.state, one.c.bucket)
    return select(*groups, func.count(), func.sum(one.c.late), func.max(one.c.late)).group_by(*groups)


def _is_first_start(database: Database) -> ColumnElement[bool]:
    """Return the condition that `started_at` is the first start: every further run replaces it."""
    run = seconds_between(database, _e.started_at, _e.completed_at)
    is_one_run = or_(_e.duration_seconds.is_(None), _e.duration_seconds <= run + _SAME_RUN)
    return and_(_e.started_at.is_not(None), _e.attempt == 1, _e.rescues == 0, is_one_run)


def _encode_ends(ends: Ends) -> Any:
    return {minute.isoformat(): list(counts) for minute, counts in ends.items()}


def _decode_ends(stored: Mapping[str, Any] | None) -> Ends:
    return {datetime.fromisoformat(minute): tuple(counts) for minute, counts in (stored or {}).items()}


def _encode_lateness(lateness: Lateness) -> dict[str, Any]:
    return {"started": lateness.started, "lateness": msgspec.to_builtins(lateness) if lateness.started else None}


def _decode_lateness(stored: str | None) -> Lateness | None:
    return None if stored is None else msgspec.json.decode(stored, type=Lateness)
