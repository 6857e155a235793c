"""Messages of watches: made from stored matches, then sent. Tables: `watch_notifications`, `watch_channels`.

A message is stored before it is sent, and has the same id and content in every attempt. A channel of a watch has one
unsent message at most: matches that come meanwhile are part of the next one, so nothing piles up and nothing is lost.
"""

from datetime import datetime, timedelta

import msgspec
from msgspec import Struct
from sqlalchemy import delete, insert, select, update

from floodmark.model.ids import floor_id
from floodmark.model.watches import WatchMatch, WatchMatchRow, WatchNotificationRow
from floodmark.notifications.port import Notification
from floodmark.repositories.repository import Repository, bound_limit
from floodmark.store.async_engine import AsyncConnection
from floodmark.store.dialects import present_moment

from .compiled import notification_times
from .messages import MOST_SHOWN, build_watch_message
from .rows import fields_of, lock_state
from .tables import watch_channels, watch_counts, watch_matches, watch_notifications, watches

MOST_LISTED = 500
# Matches of one watch that are kept.
MOST_KEPT = 10_000
_BUSY_AT_ONCE = 100
_w, _m, _c, _n = watches.c, watch_matches.c, watch_channels.c, watch_notifications.c
_MATCH = tuple(_m[name] for name in WatchMatch.__struct_fields__)


class UnsentNotification(Struct, frozen=True, kw_only=True):
    """A message to be sent, with the number of earlier attempts."""

    notification_id: str
    watch_id: str
    channel: str
    message: Notification
    attempts: int
    matches: int


class NotificationRepository(Repository):
    """Makes, lists and settles messages."""

    _pruned = ""

    async def now(self) -> datetime:
        """Return the present time, as messages are dated."""
        async with self._database.reading() as connection:
            return await present_moment(self._database, self._clock, connection)

    async def make_due(self, *, instance: str, limit: int) -> int:
        """Make the messages that are due, each in its own transaction; return their number."""
        now = await self.now()
        query = (
            select(_c.watch_id, _c.channel)
            .join(watches, _w.watch_id == _c.watch_id)
            .where(_c.due_at <= now, _c.due_at.is_not(None), _c.notification_id.is_(None), ~_w.paused)
        )
        async with self._database.reading() as connection:
            due = list(await connection.execute(query.order_by(_c.due_at, _c.watch_id, _c.channel).limit(limit)))
        return sum([await self._make(row.watch_id, row.channel, now, instance) for row in due])

    async def _make(self, watch_id: str, channel: str, now: datetime, instance: str) -> bool:
        async with self._database.writing() as connection:
            await lock_state(self._database, connection)
            this = (_c.watch_id == watch_id, _c.channel == channel)
            query = select(watches, _c.notified_seq, _c.waiting).join(watch_channels, _w.watch_id == _c.watch_id)
            is_free = (_c.due_at <= now, _c.notification_id.is_(None), ~_w.paused)
            row = (await connection.execute(query.where(*this, *is_free))).mappings().first()
            if row is None:
                # Another leader was faster, or a person paused it.
                return False
            found = await self._read_matches(connection, watch_id, row["notified_seq"])
            message = build_watch_message(fields_of(dict(row)), found, row["waiting"], at=now, instance=instance)
            values = {
                "notification_id": message.id,
                "watch_id": watch_id,
                "channel": channel,
                "matches": row["waiting"],
                "message": msgspec.to_builtins(message),
                "try_at": now,
                "created_at": now,
            }
            await connection.execute(insert(watch_notifications).values(**values))
            newest = select(_m.seq).where(_m.watch_id == watch_id, _m.is_due).order_by(_m.seq.desc()).limit(1)
            seq = (await connection.execute(newest)).scalar() or row["notified_seq"]
            made = {"notification_id": message.id, "notified_seq": seq, "waiting": 0, "due_at": None}
            await connection.execute(update(watch_channels).where(*this).values(**made))
        return True

    async def _read_matches(self, connection: AsyncConnection, watch_id: str, after: int) -> list[WatchMatch]:
        query = select(*_MATCH).where(_m.watch_id == watch_id, _m.seq > after, _m.is_due)
        rows = await connection.execute(query.order_by(_m.seq).limit(MOST_SHOWN))
        return [WatchMatch(**row) for row in rows.mappings()]

    async def unsent(self, channel: str, *, limit: int) -> list[UnsentNotification]:
        """Return messages to send now over a channel, those first that wait longest."""
        now = await self.now()
        cells = (_n.notification_id, _n.watch_id, _n.channel, _n.message, _n.attempts, _n.matches)
        query = select(*cells).join(watches, _w.watch_id == _n.watch_id)
        query = query.where(_n.try_at <= now, _n.try_at.is_not(None), _n.channel == channel, ~_w.paused)
        rows = await self._database.fetch(query.order_by(_n.try_at, _n.notification_id).limit(limit))
        return [UnsentNotification(**{**row, "message": msgspec.convert(row["message"], Notification)}) for row in rows]

    async def claim(self, unsent: UnsentNotification, *, until: timedelta) -> bool:
        """Count an attempt. False if another leader makes it; should this one die, it is made again after `until`."""
        this = (_n.notification_id == unsent.notification_id, _n.attempts == unsent.attempts, _n.try_at.is_not(None))
        values = {"attempts": unsent.attempts + 1, "try_at": self._now(until)}
        async with self._database.writing() as connection:
            return (await connection.execute(update(watch_notifications).where(*this).values(**values))).rowcount > 0

    async def settle_sent(self, unsent: UnsentNotification) -> None:
        """Record that the receiver has a message. Matches that came meanwhile are due after the cooldown."""
        this = (_c.watch_id == unsent.watch_id, _c.channel == unsent.channel)
        async with self._database.writing() as connection:
            await lock_state(self._database, connection)
            now = await present_moment(self._database, self._clock, connection)
            sent = {"sent_at": now, "try_at": None, "error": None}
            mine = update(watch_notifications).where(_n.notification_id == unsent.notification_id)
            await connection.execute(mine.values(**sent))
            query = select(watches, _c.due_at).join(watch_channels, _w.watch_id == _c.watch_id)
            pending = _c.notification_id == unsent.notification_id
            row = (await connection.execute(query.where(*this, pending))).mappings().first()
            if row is not None:
                due = row["due_at"]
                if due is not None:
                    due = notification_times(fields_of(dict(row))).not_before(due, now)
                values = {"notification_id": None, "sent_at": now, "due_at": due}
                await connection.execute(update(watch_channels).where(*this).values(**values))

    async def settle_failed(self, unsent: UnsentNotification, error: str, *, again: timedelta) -> None:
        """Record why a message was not sent, and when it is tried again."""
        this = (_n.notification_id == unsent.notification_id, _n.try_at.is_not(None))
        values = {"error": error, "try_at": self._now(again)}
        async with self._database.writing() as connection:
            await connection.execute(update(watch_notifications).where(*this).values(**values))

    async def notifications(
        self, watch_id: str, *, before: str | None = None, limit: int = 50
    ) -> list[WatchNotificationRow]:
        """Return messages of a watch, newest first. The next page is `before` the id of the last one."""
        names = [name for name in WatchNotificationRow.__struct_fields__ if name != "title"]
        query = select(*(_n[name] for name in names), _n.message).where(_n.watch_id == watch_id)
        query = query if before is None else query.where(_n.notification_id < before)
        rows = await self._database.fetch(
            query.order_by(_n.notification_id.desc()).limit(bound_limit(limit, MOST_LISTED))
        )
        return [
            WatchNotificationRow(**{name: row[name] for name in names}, title=row["message"]["title"]) for row in rows
        ]

    async def matches(self, watch_id: str, *, before: int | None = None, limit: int = 50) -> list[WatchMatchRow]:
        """Return matches of a watch, newest first. The next page is `before` the `seq` of the last one."""
        query = select(*(_m[name] for name in WatchMatchRow.__struct_fields__)).where(_m.watch_id == watch_id)
        query = query if before is None else query.where(_m.seq < before)
        rows = await self._database.fetch(query.order_by(_m.seq.desc()).limit(bound_limit(limit, MOST_LISTED)))
        return [WatchMatchRow(**row) for row in rows]

    async def prune(self, keep: timedelta, *, limit: int) -> int:
        """Delete matches and sent messages older than `keep`, and the oldest matches of watches with too many."""
        now = await self.now()
        async with self._database.writing() as connection:
            matches = select(_m.seq).where(_m.created_at < now - keep).order_by(_m.created_at).limit(limit)
            done = await connection.execute(delete(watch_matches).where(_m.seq.in_(matches)))
            # Ids begin with their time, and have an index.
            is_old = (_n.notification_id < floor_id(now - keep), _n.created_at < now - keep, _n.try_at.is_(None))
            messages = select(_n.notification_id).where(*is_old).order_by(_n.notification_id).limit(limit)
            also = await connection.execute(delete(watch_notifications).where(_n.notification_id.in_(messages)))
        return done.rowcount + also.rowcount + await self._prune_busy(limit)

    async def _prune_busy(self, limit: int) -> int:
        counts = watch_counts.c
        busy = select(counts.watch_id).where(counts.matches > MOST_KEPT, counts.watch_id > self._pruned)
        async with self._database.reading() as connection:
            ids = list((await connection.execute(busy.order_by(counts.watch_id).limit(_BUSY_AT_ONCE))).scalars())
        self._pruned = ids[-1] if len(ids) == _BUSY_AT_ONCE else ""
        deleted = 0
        for watch_id in ids:
            of_watch = select(_m.seq).where(_m.watch_id == watch_id)
            async with self._database.writing() as connection:
                last = (await connection.execute(of_watch.order_by(_m.seq.desc()).offset(MOST_KEPT).limit(1))).scalar()
                if last is not None:
                    old = of_watch.where(_m.seq <= last).order_by(_m.seq).limit(limit)
                    deleted += (await connection.execute(delete(watch_matches).where(_m.seq.in_(old)))).rowcount
        return deleted
