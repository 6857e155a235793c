"""Handlers of sinks."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from datetime import datetime, timedelta
from functools import partial

from floodmark.errors import Conflict, InvalidInput, Transient
from floodmark.model.page import Page, last_key, page_of
from floodmark.model.sinks import SinkLetter, SinkReplay, SinkRow, SinkTest
from floodmark.operations.sinks import SinkOperations
from floodmark.sinks.loading import open_one
from floodmark.sinks.port import SendsTests
from floodmark.sinks.trial import build_test_event
from floodmark.wiring.services import services_for

from .base import Handlers

_LONGEST_TEST = timedelta(seconds=60)


class SinkHandlers(SinkOperations, Handlers):
    """Sinks in the store."""

    async def sinks(self) -> list[SinkRow]:
        return await self.store.sinks.rows()

    async def sink(self, name: str) -> SinkRow:
        return await self.store.sinks.show(name)

    async def pause_sink(self, name: str) -> SinkRow:
        return await self._pause(name, paused=True)

    async def resume_sink(self, name: str) -> SinkRow:
        return await self._pause(name, paused=False)

    async def replay_sink(
        self, name: str, *, position: int | None = None, since: datetime | None = None, dry_run: bool = False
    ) -> SinkReplay:
        sink = await self.store.sinks.show(name)
        if (position is None) == (since is None):
            raise InvalidInput("name either a position or a time", hint="for example: --from 4812, or --since 2h")
        if sink.state == "filling":
            raise Conflict(f"the sink {name} is being filled with all stored items", hint="wait until it is done")
        after = await self._find_start(position, since)
        _, newest = await self.store.events.bounds()
        if not dry_run:
            async with self.transaction():
                await self.store.sinks.replay(name, after)
                was, now = {"position": sink.position}, {"position": after}
                await self.record("sink.replayed", f"sink:{name}", before=was, after=now)
        return SinkReplay(
            sink=name, before=sink.position, after=after, events=max(0, newest - after), applied=not dry_run
        )

    async def test_sink(self, name: str) -> SinkTest:
        resources = self.resources
        await self.store.sinks.show(name)
        configured = open_one(resources.settings, partial(services_for, resources), name)
        sink, event = configured.sink, build_test_event(name, resources.clock.now())
        if not isinstance(sink, SendsTests):
            raise Conflict(f"a {configured.kind} sink cannot send a test event", hint="see its state: floodmark sinks")
        began, deadline = time.monotonic(), self.deadline or _LONGEST_TEST
        try:
            async with AsyncExitStack() as stack, asyncio.timeout(deadline.total_seconds()):
                if isinstance(sink, AbstractAsyncContextManager):
                    await stack.enter_async_context(sink)
                await sink.send_test(event)
        except TimeoutError:
            raise Transient(f"{sink.place} took longer than {deadline.total_seconds():g} s") from None
        seconds = time.monotonic() - began
        async with self.transaction():
            await self.record("sink.tested", f"sink:{name}", after={"event_id": event.event_id})
        return SinkTest(sink=name, place=sink.place, event_id=event.event_id, seconds=round(seconds, 3))

    async def remove_sink(self, name: str) -> SinkRow:
        async with self.transaction():
            before = await self.store.sinks.show(name)
            if before.state != "removed":
                raise Conflict(
                    f"the sink {name} is configured", hint="remove it from SINKS, and restart the schedulers first"
                )
            await self.store.sinks.remove(name)
            values = {"position": before.position, "dead_letters": before.dead_letters}
            await self.record("sink.removed", f"sink:{name}", before=values)
        return before

    async def sink_letters(self, name: str, *, cursor: str | None = None, limit: int = 50) -> Page[SinkLetter]:
        await self.store.sinks.show(name)
        rows = await self.store.sink_letters.page(name, last_key("sink_letters", cursor, int), limit + 1)
        return page_of(rows, limit, "sink_letters", lambda row: [row.position])

    async def retry_sink_letters(self, name: str, positions: Sequence[int] | None = None) -> int:
        async with self.transaction():
            await self.store.sinks.show(name)
            count = await self.store.sink_letters.retry(name, positions)
            await self.record("sink.letters_retried", f"sink:{name}", after={"count": count})
        return count

    async def drop_sink_letters(self, name: str, positions: Sequence[int] | None = None) -> int:
        async with self.transaction():
            await self.store.sinks.show(name)
            count = await self.store.sink_letters.drop(name, positions)
            await self.record("sink.letters_dropped", f"sink:{name}", after={"count": count})
        return count

    async def _pause(self, name: str, *, paused: bool) -> SinkRow:
        async with self.transaction():
            before = await self.store.sinks.show(name)
            await self.store.sinks.pause(name, paused=paused)
            after = await self.store.sinks.show(name)
            was, now = {"state": before.state}, {"state": after.state}
            await self.record("sink.paused" if paused else "sink.resumed", f"sink:{name}", before=was, after=now)
        return after

    async def _find_start(self, position: int | None, since: datetime | None) -> int:
        """Return the position before the first event to send."""
        if since is not None:
            return await self.store.events.position_before(since)
        assert position is not None
        oldest, newest = await self.store.events.bounds()
        if not max(oldest, 1) <= position <= newest + 1:
            raise InvalidInput(
                f"there is no event {position:,}: stored are those from {oldest:,} to {newest:,}",
                hint=f"send all of them with: --from {max(oldest, 1)}",
            )
        return position - 1
