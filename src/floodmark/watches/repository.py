"""Watches as people create, change and remove them. Tables: `watches`, `watch_counts`, `watch_channels`."""

import asyncio
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

from msgspec.structs import replace
from sqlalchemy import Select, delete, func, insert, or_, select, update
from sqlalchemy.exc import IntegrityError

from floodmark.errors import Conflict, InvalidInput, NotFound
from floodmark.model.ids import new_id
from floodmark.model.watches import ChannelState, WatchFields, WatchRow
from floodmark.repositories.repository import Repository, bound_limit
from floodmark.rules.notification_times import NotificationTimes
from floodmark.store.async_engine import AsyncConnection
from floodmark.store.dialects import chunks, present_moment

from .rows import columns_of, fields_of, last_position, lock_state, store_state
from .tables import watch_channels, watch_counts, watch_matches, watch_notifications, watches

MOST_SHOWN = 500
# Enough for the promised 10,000, and few enough to load and compile in a second or two.
MOST_WATCHES = 20_000
_COMPARED, _SHOWN = 2000, 10
_READ_AT_ONCE = 500

_w, _c, _n = watches.c, watch_channels.c, watch_notifications.c
_COUNTS = ("matches", "suppressed", "last_match_at")


class WatchRepository(Repository):
    """Creates, lists, changes and removes watches."""

    async def page(self, *, after: str | None = None, kind: str | None = None, limit: int = 100) -> list[WatchRow]:
        """Return watches in order of name. The next page is `after` the name of the last one."""
        query = _select() if after is None else _select().where(_w.name > after)
        query = query if kind is None else query.where(_w.kind == kind)
        async with self._database.reading() as connection:
            return await _rows(connection, query.order_by(_w.name).limit(bound_limit(limit, MOST_SHOWN)))

    async def get(self, text: str) -> WatchRow:
        """Return the watch with this name or id, or the only one with a name or id that begins with it."""
        async with self._database.reading() as connection:
            return await _find(connection, text.strip())

    async def add(self, fields: WatchFields) -> WatchRow:
        """Create a watch. It looks at events from now on."""
        async with self._database.writing() as connection:
            state = await lock_state(self._database, connection)
            last, watch_id = await last_position(connection), new_id()
            is_first = (await connection.execute(select(_w.watch_id).limit(1))).first() is None
            # There were at least as many changes as there are watches.
            if state.generation >= MOST_WATCHES:
                await _check_count(connection)
            generation = state.generation + 1
            now = self._now()
            row = {**columns_of(fields), "watch_id": watch_id, "after_position": last, "generation": generation}
            await self._insert(connection, {**row, "active_at": now, "created_at": now, "updated_at": now}, fields.name)
            await connection.execute(insert(watch_counts).values(watch_id=watch_id))
            await self._add_channels(connection, watch_id, fields.notify)
            # Without a watch nobody has read the events so far, and nobody has to.
            position = last if is_first else state.position
            await store_state(connection, replace(state, generation=generation, position=position))
            return await _find(connection, watch_id)

    async def change(self, watch_id: str, fields: WatchFields, times: NotificationTimes) -> WatchRow:
        """Replace the fields that people set. The version increases by one."""
        async with self._database.writing() as connection:
            generation = await self._next_generation(connection)
            values = {**columns_of(fields), "generation": generation, "version": _w.version + 1}
            try:
                this = update(watches).where(_w.watch_id == watch_id)
                await connection.execute(this.values(**values, updated_at=self._now()))
            except IntegrityError:
                raise _refuse_taken(fields.name) from None
            await self._change_channels(connection, watch_id, fields.notify, times)
            return await _find(connection, watch_id)

    async def pause(self, watch_id: str, *, paused: bool) -> WatchRow:
        """Pause or resume a watch. Events during the pause are not looked at."""
        async with self._database.writing() as connection:
            generation = await self._next_generation(connection)
            values: dict[str, Any] = {"paused": paused, "generation": generation, "version": _w.version + 1}
            if not paused:
                values |= {"after_position": await last_position(connection), "active_at": self._now()}
            this = update(watches).where(_w.watch_id == watch_id)
            await connection.execute(this.values(**values, updated_at=self._now()))
            return await _find(connection, watch_id)

    async def remove(self, watch_id: str) -> None:
        """Delete a watch with its matches and notifications."""
        async with self._database.writing() as connection:
            await self._next_generation(connection)
            await connection.execute(delete(watches).where(_w.watch_id == watch_id))

    async def names_like(self, name: str) -> set[str]:
        """Return the names that begin with a name."""
        query = select(_w.name).where(func.substr(_w.name, 1, len(name)) == name)
        async with self._database.reading() as connection:
            return set((await connection.execute(query)).scalars())

    async def patterns(self, *, besides: str | None = None) -> list[str]:
        """Return the patterns of watches without words, except those of one watch."""
        query = select(_w.pattern).where(_w.pattern.is_not(None), _w.query.is_(None))
        if besides is not None:
            query = query.where(_w.watch_id != besides)
        async with self._database.reading() as connection:
            return list((await connection.execute(query)).scalars())

    async def changed_since(self, generation: int) -> tuple[list[dict[str, Any]], set[str]]:
        """Return the rows of watches that were changed after a generation, and the ids of all that are not paused."""
        async with self._database.reading() as connection:
            query = select(watches).where(_w.generation > generation, ~_w.paused)
            rows = list[dict[str, Any]]()
            for some in (await connection.execute(query)).mappings().partitions(_READ_AT_ONCE):
                rows += [dict(row) for row in some]
                # Reading ten thousand watches takes 0.4 s, and a job may be due meanwhile.
                await asyncio.sleep(0)
            active = set((await connection.execute(select(_w.watch_id).where(~_w.paused))).scalars())
        return rows, active

    async def _next_generation(self, connection: AsyncConnection) -> int:
        state = await lock_state(self._database, connection)
        await store_state(connection, replace(state, generation=state.generation + 1))
        return state.generation + 1

    async def _insert(self, connection: AsyncConnection, row: dict[str, Any], name: str) -> None:
        statement = self._insert_into(watches).values(**row).on_conflict_do_nothing(index_elements=["name"])
        if not (await connection.execute(statement)).rowcount:
            raise _refuse_taken(name)

    async def _add_channels(self, connection: AsyncConnection, watch_id: str, channels: Sequence[str]) -> None:
        """Add channels. They are notified of matches from now on."""
        if not channels:
            return
        last = select(func.max(watch_matches.c.seq)).where(watch_matches.c.watch_id == watch_id)
        seq = (await connection.execute(last)).scalar() or 0
        rows = [{"watch_id": watch_id, "channel": channel, "notified_seq": seq} for channel in channels]
        await connection.execute(insert(watch_channels), rows)

    async def _change_channels(
        self, connection: AsyncConnection, watch_id: str, channels: Sequence[str], times: NotificationTimes
    ) -> None:
        known = (await connection.execute(select(watch_channels).where(_c.watch_id == watch_id))).all()
        gone = [row.channel for row in known if row.channel not in channels]
        if gone:
            await connection.execute(delete(watch_channels).where(_c.watch_id == watch_id, _c.channel.in_(gone)))
            unsent = (_n.watch_id == watch_id, _n.channel.in_(gone), _n.try_at.is_not(None))
            await connection.execute(
                update(watch_notifications).where(*unsent).values(try_at=None, error="the watch no longer uses it")
            )
        await self._add_channels(
            connection, watch_id, [one for one in channels if one not in {r.channel for r in known}]
        )
        now = await present_moment(self._database, self._clock, connection)
        for row in known:
            if row.due_at is not None and row.channel in channels:
                this = update(watch_channels).where(_c.watch_id == watch_id, _c.channel == row.channel)
                await connection.execute(this.values(due_at=times.due_at(now, row.sent_at)))


async def _check_count(connection: AsyncConnection) -> None:
    count = (await connection.execute(select(func.count()).select_from(watches))).scalar_one()
    if count >= MOST_WATCHES:
        raise Conflict(f"there are {count:,} watches, and no more are possible", hint="remove some first")


def _select() -> Select[Any]:
    counts = [watch_counts.c[name] for name in _COUNTS]
    return select(watches, *counts).outerjoin(watch_counts, watch_counts.c.watch_id == _w.watch_id)


async def _rows(connection: AsyncConnection, query: Select[Any]) -> list[WatchRow]:
    rows = (await connection.execute(query)).mappings().all()
    states = await _read_channels(connection, [row["watch_id"] for row in rows])
    others = ("watch_id", "paused", "version", "created_at", "updated_at", "last_match_at")
    return [
        WatchRow(
            **{name: getattr(fields_of(row), name) for name in WatchFields.__struct_fields__},
            **{name: row[name] for name in others},
            matches=row["matches"] or 0,
            suppressed=row["suppressed"] or 0,
            channels=tuple(states.get(row["watch_id"], ())),
        )
        for row in rows
    ]


async def _read_channels(connection: AsyncConnection, ids: Sequence[str]) -> dict[str, list[ChannelState]]:
    found: dict[str, list[ChannelState]] = {}
    pending = watch_channels.outerjoin(watch_notifications, _n.notification_id == _c.notification_id)
    cells = (_c.watch_id, _c.channel, _c.waiting, _c.due_at, _c.sent_at, _n.attempts, _n.error, _n.try_at, _n.matches)
    for some in chunks(ids):
        query = select(*cells).select_from(pending).where(_c.watch_id.in_(some)).order_by(_c.watch_id, _c.channel)
        for row in await connection.execute(query):
            state = ChannelState(
                channel=row.channel,
                waiting=row.waiting + (row.matches or 0),
                due_at=row.due_at if row.try_at is None else row.try_at,
                sent_at=row.sent_at,
                attempts=row.attempts or 0,
                error=row.error,
            )
            found.setdefault(row.watch_id, []).append(state)
    return found


async def _find(connection: AsyncConnection, typed: str) -> WatchRow:
    exact = await _rows(connection, _select().where(or_(_w.name == typed, _w.watch_id == typed)).limit(2))
    if exact:
        return next((row for row in exact if row.name == typed), exact[0])
    begins = or_(func.substr(_w.name, 1, len(typed)) == typed, func.substr(_w.watch_id, 1, len(typed)) == typed)
    found = await _rows(connection, _select().where(begins).order_by(_w.name).limit(_SHOWN + 1)) if typed else []
    if len(found) == 1:
        return found[0]
    if found:
        raise InvalidInput(
            f"{typed[:60]!r} fits {'more than ' if len(found) > _SHOWN else ''}{min(len(found), _SHOWN)} watches",
            hint=f"write out one of: {', '.join(row.name for row in found[:_SHOWN])}",
        )
    names = list((await connection.execute(select(_w.name).order_by(_w.name).limit(_COMPARED))).scalars())
    close = get_close_matches(typed[:200], names, n=3, cutoff=0.5)
    hint = f"did you mean {', '.join(close)}?" if close else "see what there is with: floodmark watch ls"
    raise NotFound(f"there is no watch {typed[:60]!r}", hint=hint)


def _refuse_taken(name: str) -> Conflict:
    return Conflict(
        f"there is already a watch {name[:80]!r}",
        hint=f"choose another --name, or change it: floodmark watch edit {name[:80]}",
    )
