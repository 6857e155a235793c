"""Handlers of external triggers. The audit log contains none of their secrets."""

from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any

import msgspec

from floodmark.coordination.redis_errors import redis_errors
from floodmark.coordination.signals.port import Topic
from floodmark.errors import InvalidInput
from floodmark.inbound.redis_listeners import CHANNELS, STREAMS, Hearing, find_hearing, group_of, make_group, own_names
from floodmark.inbound.triggers import UNMATCHED, UNREADABLE, Triggers, new_secret
from floodmark.model.external_triggers import (
    HubSubscription,
    Kind,
    NewTrigger,
    OfJobs,
    TriggerRow,
    TriggersStatus,
    TriggerStatus,
    Unmatched,
)
from floodmark.model.page import Page, last_key, page_of
from floodmark.operations.triggers import AddedTrigger, TriggerOperations, TriggerPage
from floodmark.security.vault import Vault
from floodmark.sources.feed.subscriptions import FeedSubscriptions

from .base import Handlers

_FACTS = {"channel": CHANNELS, "stream": STREAMS}
_MOST_SHOWN = 500


class TriggerHandlers(TriggerOperations, Handlers):
    """Triggers in the store."""

    async def triggers_status(self) -> TriggersStatus:
        hearings = await self._hearings()
        rows = await self._triggers.page(limit=_MOST_SHOWN)
        holders = [hearing.holder for hearing in hearings.values() if hearing is not None]
        unmatched, unreadable = [
            await self.store.fleet.get_fact(name) or {"count": 0} for name in (UNMATCHED, UNREADABLE)
        ]
        return TriggersStatus(
            listener=holders[0] if holders else None,
            triggers=tuple(self._status(row, hearings) for row in rows),
            of_jobs=tuple(await self._of_jobs(hearings)),
            unmatched=msgspec.convert(unmatched, Unmatched),
            unreadable=msgspec.convert(unreadable, Unmatched),
        )

    async def hubs(self, *, cursor: str | None = None, limit: int = 50) -> Page[HubSubscription]:
        subscriptions = FeedSubscriptions(self.resources.database, self.resources.clock)
        rows = await subscriptions.page(last_key("hubs", cursor, str), limit + 1)
        return page_of(rows, limit, "hubs", lambda row: [row.target])

    async def webhooks(self, *, cursor: str | None = None, limit: int = 50) -> TriggerPage:
        return await self._page_with_jobs("webhook", cursor, limit)

    async def add_webhook(
        self, pattern: str, *, secret: str | None = None, signed: bool = False, **options: Any
    ) -> AddedTrigger:
        made = new_secret() if signed and secret is None else None
        return await self._add("webhook", pattern, secret=made or secret, shown=made, **options)

    async def remove_webhook(self, trigger: str) -> TriggerStatus:
        return await self._remove(trigger, "webhook")

    async def channels(self, *, cursor: str | None = None, limit: int = 50) -> TriggerPage:
        return await self._page_with_jobs("channel", cursor, limit)

    async def add_channel(self, pattern: str, **options: Any) -> AddedTrigger:
        return await self._add("channel", pattern, **options)

    async def remove_channel(self, trigger: str) -> TriggerStatus:
        return await self._remove(trigger, "channel")

    async def stream_triggers(self, *, cursor: str | None = None, limit: int = 50) -> Page[TriggerStatus]:
        return await self._page("stream", cursor, limit)

    async def add_stream_trigger(self, pattern: str, **options: Any) -> AddedTrigger:
        return await self._add("stream", pattern, **options)

    async def remove_stream_trigger(self, trigger: str) -> TriggerStatus:
        return await self._remove(trigger, "stream")

    async def _page(self, kind: Kind, cursor: str | None, limit: int) -> Page[TriggerStatus]:
        listing = f"triggers.{kind}"
        rows = await self._triggers.page(kind, after=last_key(listing, cursor, str), limit=limit + 1)
        return page_of(await self._statuses(rows), limit, listing, lambda row: [row.trigger_id])

    async def _page_with_jobs(self, kind: Kind, cursor: str | None, limit: int) -> TriggerPage:
        page, of_jobs = await self._page(kind, cursor, limit), await self._of_jobs(await self._hearings())
        return TriggerPage(items=page.items, next=page.next, of_jobs=[row for row in of_jobs if row.kind == kind])

    async def _add(
        self, kind: Kind, pattern: str, *, replace: bool = False, shown: str | None = None, **options: Any
    ) -> AddedTrigger:
        """Add a trigger; every process follows it within a second. `shown`: the secret that was made for it."""
        new = NewTrigger(kind=kind, pattern=pattern, **options)
        if new.kind != "webhook" and new.pattern in own_names(self.resources.settings.scheduler_queue_prefix):
            raise InvalidInput(
                f"{new.pattern} is where Floodmark itself writes: its own runs would fire the trigger, without end",
                hint="to run a job after another, use depends_on; or forward the events you want to another stream",
            )
        async with self.transaction():
            row = await self._triggers.add(new, replace=replace)
            await self.record("trigger.added", _name_trigger(row), after=_describe_trigger(row))
        await self._begin(row)
        await self.resources.signals.notify(Topic.JOBS)
        [status] = await self._statuses([row])
        return AddedTrigger(**msgspec.structs.asdict(status), secret=shown)

    async def _remove(self, text: str, kind: Kind) -> TriggerStatus:
        async with self.transaction(Topic.JOBS):
            [row] = await self._statuses([await self._triggers.get(text, kind)])
            await self._triggers.remove(row.trigger_id)
            await self.record("trigger.removed", _name_trigger(row), before=_describe_trigger(row))
        return row

    @cached_property
    def _triggers(self) -> Triggers:
        return Triggers(self.resources.database, self.resources.clock, Vault.of(self.resources.settings))

    async def _statuses(self, rows: Sequence[TriggerRow]) -> list[TriggerStatus]:
        hearings = await self._hearings()
        return [self._status(row, hearings) for row in rows]

    async def _begin(self, row: TriggerRow) -> None:
        """Let a stream count from now on, not from when the leader notices it."""
        if row.kind == "stream" and self.resources.redis is not None:
            # The leader tries again and reports errors.
            with suppress(*redis_errors()):
                group = group_of(self.resources.settings.scheduler_queue_prefix)
                await make_group(self.resources.redis, row.pattern, group)

    async def _hearings(self) -> dict[str, Hearing | None]:
        now, found = self.resources.clock.now(), {}
        for kind, fact in _FACTS.items():
            hearing = await find_hearing(self.store.fleet, fact)
            found[kind] = hearing if hearing is not None and hearing.is_recent(now) else None
        return found

    def _status(self, row: TriggerRow, hearings: dict[str, Hearing | None]) -> TriggerStatus:
        why_not = self._why_not(row, hearings)
        return TriggerStatus(**msgspec.structs.asdict(row), listening=why_not is None, why_not=why_not)

    def _why_not(self, row: TriggerRow, hearings: dict[str, Hearing | None]) -> str | None:
        if not row.enabled:
            return "it is disabled"
        if row.kind == "webhook":
            return None
        if self.resources.redis is None:
            return "there is no Redis: set REDIS_URL"
        hearing = hearings[row.kind]
        if hearing is None:
            return "no scheduler listens to Redis right now"
        if row.pattern not in hearing.patterns:
            return f"the scheduler does not hear this {row.kind} yet"
        return None

    async def _of_jobs(self, hearings: dict[str, Hearing | None]) -> list[OfJobs]:
        found: list[OfJobs] = []
        kinds: tuple[Kind, ...] = ("webhook", "channel")
        for kind in kinds:
            hearing = hearings.get(kind)
            heard_patterns = () if hearing is None else hearing.patterns
            for pattern, count in (await self._triggers.count_jobs(kind)).items():
                listening = kind == "webhook" or pattern in heard_patterns
                found.append(OfJobs(kind=kind, pattern=pattern, jobs=count, listening=listening))
        return found


def _name_trigger(row: TriggerRow) -> str:
    return f"trigger:{row.kind}:{row.pattern}"


def _describe_trigger(row: TriggerRow) -> dict[str, Any]:
    names = ("trigger_id", "jobs", "params", "signed", "debounce_seconds", "enabled")
    return {name: getattr(row, name) for name in names}
