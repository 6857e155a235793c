"""Handlers of watches."""

from datetime import timedelta
from functools import cached_property
from typing import Any

from msgspec.structs import asdict, replace

from floodmark.errors import Conflict
from floodmark.model.page import Page, last_key, page_of
from floodmark.model.watches import (
    WatchFields,
    WatchKind,
    WatchMatchRow,
    WatchNotificationRow,
    WatchRow,
    WatchTrial,
)
from floodmark.notifications.loading import configured_channels
from floodmark.operations.watches import WatchOperations
from floodmark.watches.compiled import CompiledWatch
from floodmark.watches.definition import MOST_SLOW_PATTERNS, check_definition, first_name, make_name
from floodmark.watches.literals import literals_of_pattern
from floodmark.watches.notification_repository import NotificationRepository
from floodmark.watches.repository import WatchRepository
from floodmark.watches.trial import try_watch

from .base import Handlers

_ANY = ("any",)


class WatchHandlers(WatchOperations, Handlers):
    """Watches in the store."""

    async def watches(
        self, *, kind: WatchKind | None = None, cursor: str | None = None, limit: int = 50
    ) -> Page[WatchRow]:
        rows = await self._watches.page(after=last_key("watches", cursor, str), kind=kind, limit=limit + 1)
        return page_of(rows, limit, "watches", lambda row: [row.name])

    async def watch(self, name: str) -> WatchRow:
        return await self._watches.get(name)

    async def add_watch(self, fields: WatchFields) -> WatchRow:
        if not fields.name:
            taken = await self._watches.names_like(first_name(fields))
            fields = replace(fields, name=make_name(fields, taken))
        checked = await self._check(fields)
        async with self.transaction():
            row = await self._watches.add(checked.fields)
            await self.record("watch.added", f"watch:{row.name}", after=_values(row))
        return row

    async def replace_watch(self, name: str, fields: WatchFields, *, version: int | None = None) -> WatchRow:
        known = await self._watches.get(name)
        checked = await self._check(replace(fields, name=fields.name or known.name), besides=known)
        async with self.transaction():
            before = await self._watches.get(known.watch_id)
            if before.version != (known.version if version is None else version):
                raise Conflict(
                    f"{before.name} is at version {before.version}, not {version or known.version}",
                    hint=f"look at what has changed: floodmark watch show {before.name}",
                )
            if _values(before) == asdict(checked.fields):
                return before
            row = await self._watches.change(before.watch_id, checked.fields, checked.times)
            await self.record("watch.changed", f"watch:{row.name}", before=_values(before), after=_values(row))
        return row

    async def remove_watch(self, name: str) -> WatchRow:
        async with self.transaction():
            before = await self._watches.get(name)
            await self._watches.remove(before.watch_id)
            await self.record("watch.removed", f"watch:{before.name}", before=_values(before))
        return before

    async def pause_watch(self, name: str) -> WatchRow:
        return await self._switch(name, paused=True)

    async def resume_watch(self, name: str) -> WatchRow:
        return await self._switch(name, paused=False)

    async def try_watch(
        self,
        fields: WatchFields,
        *,
        since: timedelta = timedelta(days=7),
        after: int | None = None,
        limit: int = 50,
    ) -> WatchTrial:
        # Nothing is sent, so it needs neither a name nor a channel.
        named = replace(fields, name=fields.name or first_name(fields), notify=_ANY)
        watch = check_definition(named, channels=_ANY, default_max_age=self._max_age)
        return await try_watch(self.resources, watch, since=since, after=after, limit=limit)

    async def watch_matches(self, name: str, *, cursor: str | None = None, limit: int = 50) -> Page[WatchMatchRow]:
        before = last_key("watch-matches", cursor, int)
        watch = await self._watches.get(name)
        rows = await self._history.matches(watch.watch_id, before=before, limit=limit + 1)
        return page_of(rows, limit, "watch-matches", lambda row: [row.seq])

    async def watch_notifications(
        self, name: str, *, cursor: str | None = None, limit: int = 50
    ) -> Page[WatchNotificationRow]:
        before = last_key("watch-notifications", cursor, str)
        watch = await self._watches.get(name)
        rows = await self._history.notifications(watch.watch_id, before=before, limit=limit + 1)
        return page_of(rows, limit, "watch-notifications", lambda row: [row.notification_id])

    @cached_property
    def _watches(self) -> WatchRepository:
        return WatchRepository(self.resources.database, self.resources.clock)

    @cached_property
    def _history(self) -> NotificationRepository:
        return NotificationRepository(self.resources.database, self.resources.clock)

    @property
    def _max_age(self) -> timedelta:
        return self.resources.settings.watch_max_age

    async def _switch(self, name: str, *, paused: bool) -> WatchRow:
        async with self.transaction():
            before = await self._watches.get(name)
            if before.paused == paused:
                return before
            row = await self._watches.pause(before.watch_id, paused=paused)
            await self.record("watch.paused" if paused else "watch.resumed", f"watch:{row.name}")
        return row

    async def _check(self, fields: WatchFields, besides: WatchRow | None = None) -> CompiledWatch:
        checked = check_definition(
            fields, channels=await configured_channels(self.resources), default_max_age=self._max_age
        )
        if checked.examines_every_text:
            others = await self._watches.patterns(besides=None if besides is None else besides.watch_id)
            slow = sum(literals_of_pattern(pattern) is None for pattern in others)
            if slow >= MOST_SLOW_PATTERNS:
                raise Conflict(
                    f"there are already {slow} patterns that have to be searched in every item",
                    hint="use words, or a pattern with a fixed part of three letters",
                )
        return checked


def _values(row: WatchFields) -> dict[str, Any]:
    return {name: getattr(row, name) for name in WatchFields.__struct_fields__}
