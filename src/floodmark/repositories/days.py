"""Counts the items of each stream by UTC day. Tables: `stream_days`, `minutes`, `consumers` (the consumer `days`).

It follows the events (`outbox`), and moves its position in the transaction of the counts, so that each event counts
once. Without a valid position, days are counted from `items` and `item_revisions` first: everything that has no event
after the position. The state of the consumer is then the last item that was counted.
"""

from collections.abc import Sequence
from datetime import date
from typing import Any

from sqlalchemy import ColumnElement, Select, Table, and_, case, delete, exists, func, select, true, tuple_, union_all

from floodmark.model.clock import Clock
from floodmark.model.consumers import ConsumerRow
from floodmark.model.minutes import StreamDay
from floodmark.process.failpoints import COUNT_POINT, failpoint
from floodmark.store.database import Database
from floodmark.store.dialects import minute_of, utc_day
from floodmark.store.tables import consumers, item_revisions, items, minutes, outbox, stream_days

from .consumers import Consumers
from .events import EventLog
from .repository import Repository, bound_limit

CONSUMER = "days"
MOST_SHOWN = 4000
# Few enough not to block other writers.
_EVENTS_AT_ONCE, _ITEMS_AT_ONCE = 5000, 10_000
_BEGIN = ["", ""]


class StreamDays(Repository):
    """Counts and reads the days of streams."""

    def __init__(self, database: Database, clock: Clock, log: EventLog, positions: Consumers) -> None:
        super().__init__(database, clock)
        self._log, self._consumers = log, positions

    async def page(
        self, stream: str, since: date | None = None, until: date | None = None, limit: int = MOST_SHOWN
    ) -> list[StreamDay]:
        """Return the newest days of a stream, in order; days without items are left out."""
        query = select(stream_days.c.day, stream_days.c.new, stream_days.c.changed)
        query = query.where(stream_days.c.stream == stream)
        query = query if since is None else query.where(stream_days.c.day >= since)
        query = query if until is None else query.where(stream_days.c.day <= until)
        newest = query.order_by(stream_days.c.day.desc()).limit(bound_limit(limit, MOST_SHOWN))
        return [StreamDay(**row) for row in await self._database.fetch(newest)][::-1]

    async def count(self) -> bool:
        """Count one portion of events, or of items; return whether there may be more."""
        stored = await self._stored()
        if stored.paused:
            return False
        return await (self._follow(stored) if stored.state is None else self._fill(stored))

    async def _stored(self) -> ConsumerRow:
        """Return the position. If there is none, or events after it were deleted, start again."""
        stored = await self._consumers.find(CONSUMER)
        oldest, newest = await self._log.bounds()
        if stored is not None and oldest - 1 <= stored.position <= newest:
            return stored
        async with self._database.writing() as connection:
            await connection.execute(delete(stream_days))
            await self._consumers.start(CONSUMER, newest, state=_BEGIN)
        started = await self._consumers.find(CONSUMER)
        assert started is not None
        return started

    async def _follow(self, stored: ConsumerRow) -> bool:
        later = select(outbox.c.position).where(outbox.c.position > stored.position)
        some = later.order_by(outbox.c.position).limit(_EVENTS_AT_ONCE).subquery()
        async with self._database.reading() as connection:
            query = select(func.max(some.c.position), func.count())
            last, count = (await connection.execute(query)).one()
        if last is None:
            return False
        events = and_(outbox.c.position > stored.position, outbox.c.position <= last)
        day, minute = (of(self._database, outbox.c.created_at) for of in (utc_day, minute_of))
        async with self._database.writing() as connection:
            if await self._consumers.move(CONSUMER, stored.position, last):
                each = select(outbox.c.stream, day.label("day"), *_kinds(outbox.c.revision)).where(events)
                await connection.execute(self._add_days(each))
                failpoint(COUNT_POINT)
                each = select(minute.label("minute"), *_kinds(outbox.c.revision)).where(events)
                await connection.execute(self._add_minutes(each))
        return bool(count == _EVENTS_AT_ONCE)

    def _add_days(self, each: Select[Any]) -> Any:
        one = each.subquery()
        sums = select(one.c.stream, one.c.day, func.sum(one.c.new), func.sum(one.c.changed)).where(true())
        statement = self._insert_into(stream_days).from_select(
            ["stream", "day", "new", "changed"], sums.group_by(one.c.stream, one.c.day)
        )
        return self._add_up(statement, stream_days, ("stream", "day"), ("new", "changed"))

    def _add_minutes(self, each: Select[Any]) -> Any:
        one = each.subquery()
        sums = select(one.c.minute, func.sum(one.c.new), func.sum(one.c.changed)).where(true())
        statement = self._insert_into(minutes).from_select(
            ["minute", "items_new", "items_changed"], sums.group_by(one.c.minute)
        )
        return self._add_up(statement, minutes, ("minute",), ("items_new", "items_changed"))

    def _add_up(self, statement: Any, table: Any, keys: Sequence[str], names: Sequence[str]) -> Any:
        more = {name: table.c[name] + statement.excluded[name] for name in names}
        return statement.on_conflict_do_update(index_elements=list(keys), set_=more)

    async def _fill(self, stored: ConsumerRow) -> bool:
        """Count one portion of items. It is read before the transaction, which would block other writers."""
        place = tuple_(items.c.stream, items.c.key)
        rest = select(items.c.stream, items.c.key).where(place > tuple_(*stored.state))
        end = rest.order_by(items.c.stream, items.c.key).offset(_ITEMS_AT_ONCE - 1).limit(1)
        async with self._database.reading_long() as connection:
            last = (await connection.execute(end)).first()
            counts = _count_query(self._database, stored, None if last is None else [*last])
            rows = [dict(row) for row in (await connection.execute(counts)).mappings()]
        async with self._database.writing() as connection:
            # Locked: another leader may have counted this portion meanwhile.
            query = select(consumers.c.state, consumers.c.position).where(consumers.c.name == CONSUMER)
            known = (await connection.execute(query.with_for_update())).mappings().first()
            if known is None or (known["state"], known["position"]) != (stored.state, stored.position):
                return True
            if rows:
                statement = self._insert_into(stream_days)
                add = self._add_up(statement, stream_days, ("stream", "day"), ("new", "changed"))
                await connection.execute(add, rows)
            failpoint(COUNT_POINT)
            following = None if last is None else [*last]
            await self._consumers.move(CONSUMER, stored.position, stored.position, state=following)
        return True


def _count_query(database: Database, stored: ConsumerRow, last: Sequence[str] | None) -> Select[Any]:
    """Return the query that counts the revisions up to the item `last` that have no event after the position."""

    def within(table: Table) -> ColumnElement[bool]:
        place = tuple_(table.c.stream, table.c.key)
        after = place > tuple_(*stored.state)
        return after if last is None else and_(after, place <= tuple_(*last))

    event = select(outbox.c.stream, outbox.c.key, outbox.c.revision).where(within(outbox))
    following = union_all(
        event.where(outbox.c.position > stored.position),
        event.where(outbox.c.position.is_(None), outbox.c.sent_at.is_(None)),
    ).cte("following")

    def revisions(table: Table) -> Select[Any]:
        same = (following.c[name] == table.c[name] for name in ("stream", "key", "revision"))
        day = utc_day(database, table.c.collected_at).label("day")
        query = select(table.c.stream, day, *_kinds(table.c.revision))
        return query.where(within(table), ~exists(select(1).select_from(following).where(*same)))

    each = union_all(revisions(items), revisions(item_revisions)).subquery()
    sums = (func.sum(each.c[name]).label(name) for name in ("new", "changed"))
    return select(each.c.stream, each.c.day, *sums).group_by(each.c.stream, each.c.day)


def _kinds(revision: ColumnElement[int]) -> tuple[ColumnElement[int], ...]:
    """Return the columns `new` and `changed` of a revision: one of them is 1, the other 0."""
    return case((revision == 1, 1), else_=0).label("new"), case((revision > 1, 1), else_=0).label("changed")
