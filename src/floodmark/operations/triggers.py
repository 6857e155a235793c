"""The verbs for triggers from outside, with an audit of every change. Secrets are in none of it."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Protocol

import msgspec

from floodmark.client import Client
from floodmark.coordination.redis_errors import redis_errors
from floodmark.coordination.signals.port import Topic
from floodmark.errors import InvalidInput
from floodmark.inbound.redis_listeners import CHANNELS, STREAMS, Hearing, group_of, heard, make_group, own_names
from floodmark.inbound.triggers import (
    UNMATCHED,
    UNREADABLE,
    Kind,
    NewTrigger,
    OfJobs,
    TriggerRow,
    Triggers,
    TriggersStatus,
    TriggerStatus,
    Unmatched,
    the_only,
)
from floodmark.security.vault import Vault
from floodmark.store.fleet import Fleet

from .local import LocalOffice
from .port import Office
from .remote import RemoteOffice

_FACTS = {"channel": CHANNELS, "stream": STREAMS}


class TriggerVerbs(Protocol):
    """What can be asked and told of triggers, here or of a server."""

    async def status(self) -> TriggersStatus:
        """How all of them fare; of more than 500 the first."""
        ...

    async def show(self, text: str, kind: Kind | None = None) -> TriggerStatus:
        """One of them, by id or pattern."""
        ...

    async def add(self, new: NewTrigger, *, replace: bool = False) -> TriggerStatus:
        """Make a trigger, or change the one of this pattern."""
        ...

    async def remove(self, text: str, kind: Kind | None = None) -> TriggerStatus:
        """Forget a trigger; what it was."""
        ...


class TriggerOffice:
    """Adds, lists and removes triggers in the name of whoever the office acts for."""

    def __init__(self, office: LocalOffice) -> None:
        parts = office.parts
        self._office, self._parts = office, parts
        self._triggers = Triggers(parts.database, parts.clock, Vault.of(parts.settings))
        self._fleet = Fleet(parts.database, parts.clock)

    async def page(
        self, kind: Kind | None = None, *, after: str | None = None, limit: int = 100
    ) -> list[TriggerStatus]:
        """In the order they were made. The next page is `after` the id of the last one."""
        return await self._statuses(await self._triggers.page(kind, after=after, limit=limit))

    async def show(self, text: str, kind: Kind | None = None) -> TriggerStatus:
        """One of them, by id or pattern."""
        [status] = await self._statuses([await self._triggers.get(text, kind)])
        return status

    async def add(self, new: NewTrigger, *, replace: bool = False) -> TriggerStatus:
        """Make a trigger, or change the one of this pattern. Every process heeds it within a second."""
        if new.kind != "webhook" and new.pattern in own_names(self._parts.settings.scheduler_queue_prefix):
            raise InvalidInput(
                f"{new.pattern} is where Floodmark itself writes: its own runs would fire the trigger, without end",
                hint="to run a job after another, use depends_on; or forward the events you want to another stream",
            )
        async with self._office.changing():
            row = await self._triggers.add(new, replace=replace)
            await self._office.note("trigger.added", _named(row), after=_told(row))
        await self._begin(row)
        await self._parts.signals.notify(Topic.JOBS)
        [status] = await self._statuses([row])
        return status

    async def remove(self, text: str, kind: Kind | None = None) -> TriggerStatus:
        """Forget a trigger; what it was."""
        async with self._office.changing():
            row = await self.show(text, kind)
            await self._triggers.remove(row.trigger_id)
            await self._office.note("trigger.removed", _named(row), before=_told(row))
        await self._parts.signals.notify(Topic.JOBS)
        return row

    async def status(self) -> TriggersStatus:
        """How all of them fare; of more than 500 the first."""
        hearings = await self._hearings()
        rows = await self._triggers.page(limit=500)
        holders = [hearing.holder for hearing in hearings.values() if hearing is not None]
        unmatched, unreadable = [await self._fleet.get_fact(name) or {"count": 0} for name in (UNMATCHED, UNREADABLE)]
        return TriggersStatus(
            listener=holders[0] if holders else None,
            triggers=tuple(self._status(row, hearings) for row in rows),
            of_jobs=tuple(await self._of_jobs(hearings)),
            unmatched=msgspec.convert(unmatched, Unmatched),
            unreadable=msgspec.convert(unreadable, Unmatched),
        )

    async def _statuses(self, rows: Sequence[TriggerRow]) -> list[TriggerStatus]:
        hearings = await self._hearings()
        return [self._status(row, hearings) for row in rows]

    async def _begin(self, row: TriggerRow) -> None:
        """A stream counts from this moment on, not from when the leader notices."""
        if row.kind == "stream" and self._parts.redis is not None:
            # The leader tries again, and tells what is wrong with it.
            with suppress(*redis_errors()):
                group = group_of(self._parts.settings.scheduler_queue_prefix)
                await make_group(self._parts.redis, row.pattern, group)

    async def _hearings(self) -> dict[str, Hearing | None]:
        now, found = self._parts.clock.now(), {}
        for kind, fact in _FACTS.items():
            hearing = await heard(self._fleet, fact)
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
        if self._parts.redis is None:
            return "there is no Redis: set REDIS_URL"
        hearing = hearings[row.kind]
        if hearing is None:
            return "no scheduler listens to Redis right now"
        if row.pattern not in hearing.patterns:
            return f"the scheduler does not hear this {row.kind} yet"
        return None

    async def of_jobs(self, kind: Kind) -> list[OfJobs]:
        """The patterns of a kind that jobs carry themselves."""
        return [found for found in await self._of_jobs(await self._hearings()) if found.kind == kind]

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


class RemoteTriggers:
    """The same on a server. Who acts is who the token belongs to."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def status(self) -> TriggersStatus:
        """How all of them fare; of more than 500 the first."""
        return await self._client.triggers_status()

    async def show(self, text: str, kind: Kind | None = None) -> TriggerStatus:
        """One of them, by id or pattern."""
        typed = text.strip()
        rows = [row for row in (await self.status()).triggers if kind in (None, row.kind)]
        found = [row for row in rows if row.pattern == typed or (len(typed) >= 8 and row.trigger_id.startswith(typed))]
        return the_only(found, typed)

    async def add(self, new: NewTrigger, *, replace: bool = False) -> TriggerStatus:
        """Make a trigger, or change the one of this pattern."""
        return await self._client.add_trigger(new, replace=replace)

    async def remove(self, text: str, kind: Kind | None = None) -> TriggerStatus:
        """Forget a trigger; what it was."""
        row = await self.show(text, kind)
        return await self._client.remove_trigger(row.kind, row.trigger_id)


def triggers_of(office: Office) -> TriggerVerbs:
    """The verbs for triggers of an office, wherever it is."""
    if isinstance(office, RemoteOffice):
        return RemoteTriggers(office.client)
    assert isinstance(office, LocalOffice)
    return TriggerOffice(office)


def _named(row: TriggerRow) -> str:
    return f"trigger:{row.kind}:{row.pattern}"


def _told(row: TriggerRow) -> dict[str, Any]:
    names = ("trigger_id", "jobs", "params", "signed", "debounce_seconds", "enabled")
    return {name: getattr(row, name) for name in names}
