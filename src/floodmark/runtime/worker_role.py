"""The role of a process that runs executions."""

import asyncio
from collections.abc import Mapping
from datetime import timedelta

from floodmark.coordination.service import CANCELLING, LAST_STEP, Service, attempt, run_services
from floodmark.coordination.signals.port import Topic
from floodmark.observability.events import StepFailed
from floodmark.repositories.fleet import WORKER
from floodmark.rules.breaker import BreakerState
from floodmark.rules.retries import Retries
from floodmark.sinks.sql import SqlSink
from floodmark.sources.port import HasServices, Source
from floodmark.wiring.resources import Resources
from floodmark.worker.affinity import Affinity
from floodmark.worker.executor import Executor
from floodmark.worker.polls import Polls
from floodmark.worker.worker import Worker

from .presence import Presence

_PRESENCE = timedelta(seconds=2)
_MOST_BREAKERS = 100


class WorkerRole:
    """Runs executions until stopped; then finishes or hands back what it holds, within the grace time."""

    def __init__(self, resources: Resources, sources: Mapping[str, Source], *, name: str = WORKER) -> None:
        settings, signals = resources.settings, resources.signals
        self._events, self._caller, self._grace = resources.events, resources.caller, settings.shutdown_grace
        self._fleet, self._breakers = resources.repositories.fleet, resources.repositories.breakers
        self._leaving = asyncio.Event()
        retries = Retries(base=settings.execution_retry_base, longest=settings.execution_retry_max)
        sink = SqlSink(resources.keeping, resources.events, resources.clock, resources.tracing)
        polls = Polls(resources.spending, resources.clock, resources.events)
        self._signals, self._partition = signals, resources.partition
        # Only workers that lease from the queue share its executions.
        self._has_affinity = name == WORKER and bool(settings.execution_affinity)
        self.worker = Worker(
            resources.queue,
            Executor(sources, sink, retries, self._leaving, polls, find_gaps=resources.repositories.ledgers.gaps),
            resources.events,
            name=resources.name,
            slots=settings.scheduler_worker_pool_size,
            batch=settings.scheduler_queue_batch_size,
            ttl=settings.execution_lease,
            tracing=resources.tracing,
            affinity=self._affinity(resources, sources) if self._has_affinity else None,
        )
        self._presence = Presence(
            self._fleet,
            settings,
            name=resources.name,
            role=name,
            interval=_PRESENCE,
            lock=resources.lock,
            worker=self.worker,
        )
        # They run longer than the executions: a lease is renewed until its outcome is stored.
        self.services = [
            Service("presence", self._renew, _PRESENCE, close=self._presence.leave),
            Service("orders", self._obey, _PRESENCE, signals.bell(Topic.WORKERS)),
            Service("heartbeat", self.worker.heartbeat, settings.execution_lease / 3, signals.bell(Topic.CANCEL)),
        ]
        if name == WORKER:
            for source in sources.values():
                self.services += source.services() if isinstance(source, HasServices) else ()

    async def announce(self) -> None:
        """Show the process to others, before it holds anything."""
        await self._presence.announce(self._events)
        await attempt(self._load_open_breakers(), self._events)
        if self._has_affinity:
            await attempt(self._join(), self._events)

    async def _join(self) -> None:
        """Learn which workers share the work, and let them know about this one at once."""
        await self._update_partition()
        await self._signals.notify(Topic.WORKERS)

    async def _update_partition(self) -> None:
        self._partition.update(await self._fleet.available())

    def _affinity(self, resources: Resources, sources: Mapping[str, Source]) -> Affinity:
        return Affinity(
            resources.queue,
            sources,
            resources.partition,
            resources.events,
            bell=resources.signals.bell(Topic.OFFERS),
            within=resources.settings.execution_affinity,
        )

    async def _load_open_breakers(self) -> None:
        """Show the breakers that are not closed, which would otherwise be shown as closed until their first call."""
        for row in await self._breakers.page(limit=_MOST_BREAKERS):
            if row.state != BreakerState.CLOSED.value:
                await self._caller.load(row.key)

    async def run(self, stop: asyncio.Event) -> None:
        """Run until `stop`. A worker that ends by itself has failed and sets `stop`: no process may stay idle."""
        async with run_services(self.services, self._events):
            working = asyncio.create_task(self.worker.run(), name="worker")
            stopped = asyncio.create_task(stop.wait(), name="stop")
            await asyncio.wait([stopped, working], return_when=asyncio.FIRST_COMPLETED)
            stop.set()
            await stopped
            await self._leave(working)

    async def _leave(self, working: "asyncio.Task[None]") -> None:
        """Let executions finish for half of the grace, then let them stop after a batch, then hand them back."""
        half = self._grace.total_seconds() / 2
        self.worker.stop()
        for last_call in (self._leaving.set, self.worker.hand_back):
            done, _ = await asyncio.wait([working], timeout=half)
            if done:
                return await working
            last_call()
        _, undone = await asyncio.wait([working], timeout=LAST_STEP.total_seconds())
        if undone:
            # The database is away. The executions are rescued when their leases end, and continue from the watermark.
            self._events.emit(StepFailed(step="leave", error="outcomes could not be stored in time"))
            working.cancel()
            await asyncio.wait([working], timeout=CANCELLING.total_seconds())
        return None

    async def _obey(self) -> None:
        """Drain or resume on request. Otherwise write nothing: on SQLite any write wakes the other processes."""
        is_draining = await self._fleet.is_draining()
        if is_draining != self.worker.is_draining:
            if is_draining:
                self.worker.drain()
            else:
                self.worker.resume()
            await self._presence.renew()
        if self._has_affinity:
            await self._update_partition()

    async def _renew(self) -> None:
        await self._presence.renew()
        await self._caller.step()
