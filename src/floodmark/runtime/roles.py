"""What a process does: schedule, work, or both. Starts the loops, and ends them in the right order."""

import asyncio
import os
from collections.abc import Coroutine, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from floodmark.coordination.leader import Leader
from floodmark.coordination.loop import Loop, Step
from floodmark.coordination.signals.port import Bell, Topic
from floodmark.importers.shadow import Shadow
from floodmark.importers.shadow_fires import ShadowFires
from floodmark.inbound.intake import Intake
from floodmark.inbound.redis_listeners import ChannelListener, StreamListener
from floodmark.inbound.refusals import FLUSH_EVERY
from floodmark.observability.events import DepthMeasured, Events, SchedulerStarted, StepFailed
from floodmark.operations.overview import Glance
from floodmark.outbound.breakers import Breakers
from floodmark.rules.breaker import BreakerState
from floodmark.rules.retries import Retries
from floodmark.scheduler.cleanup import Leftovers
from floodmark.scheduler.dead_processes import Deaths
from floodmark.scheduler.death_watch import DeathWatch
from floodmark.scheduler.pruner import Pruner
from floodmark.scheduler.requeuer import Requeuer, Waker
from floodmark.scheduler.rescuer import Rescuer
from floodmark.scheduler.scheduler import Scheduler
from floodmark.scheduler.state_metrics import Measuring
from floodmark.sinks.delivery import Delivery
from floodmark.sinks.loading import is_relayed, open_sinks
from floodmark.sinks.relay import Relay
from floodmark.sinks.sql import SqlSink
from floodmark.sources.port import Source
from floodmark.store.events import EventLog
from floodmark.store.fleet import Fleet
from floodmark.wiring.resources import Resources, call_policy
from floodmark.wiring.services import services_for
from floodmark.worker.executor import Executor
from floodmark.worker.worker import Worker

if TYPE_CHECKING:
    from floodmark.notifications.notifier import Notifier
    from floodmark.sync.sync import Syncer

_SOON = timedelta(seconds=1)
# After the grace: to write down what was handed back.
_LAST_WORDS = timedelta(seconds=3)
# For what was cancelled to let go of its connections.
_CLEANING_UP = timedelta(seconds=1)
_TICK = timedelta(seconds=5)
# How often events are delivered to a sink: often enough for people, and rarely enough to send many at once.
_DELIVER = timedelta(seconds=2)
_PRESENCE = timedelta(seconds=2)
# Twice within the time after which a missing lock means death.
_DEATHS = timedelta(seconds=0.5)
# Longer than a sender tries to deliver a webhook, and than a signature is good for.
_DELIVERIES_KEPT = timedelta(days=1)
# Pages and pictures that are deleted at once.
_LEFTOVERS = 500
# Open breakers that are read at the start, one by one.
_BREAKERS = 100
_SHADOW = timedelta(seconds=15)
_MEASURE = timedelta(seconds=15)
# After measuring, rest so many times as long as it took: it takes a twentieth of one core at most.
_MEASURE_REST = 20
_NOTIFY = timedelta(seconds=5)
# What was put on the queue this long ago and is still waiting is put once more, in case the queue forgot.
_FORGOTTEN = timedelta(seconds=5)


class SchedulerRole:
    """Fires what is due and sweeps up, while it is the leader; waits to take over, while it is not.

    `is_alone`: no worker runs in the same process, which would otherwise speak for both in the list of the fleet.
    """

    def __init__(self, parts: Resources, *, is_alone: bool = True) -> None:
        self._is_alone = is_alone
        settings, events = parts.settings, parts.events
        self._parts, self._fleet = parts, Fleet(parts.database, parts.clock)
        self.leader = Leader(
            parts.leases,
            events,
            name=settings.scheduler_leader_key,
            holder=parts.name,
            ttl=settings.scheduler_leader_ttl,
        )
        self.scheduler = Scheduler(parts.firing, parts.queue, self.leader, events, parts.tracing)
        waker = Waker(parts.upkeep, parts.queue, self.leader)
        rescuer = Rescuer(parts.upkeep, parts.queue, self.leader, events, rescue_max=settings.execution_rescue_max)
        self._requeuer = Requeuer(parts.upkeep, parts.queue, self.leader, events, older_than=_FORGOTTEN)
        pruner = Pruner(
            parts.upkeep,
            self.leader,
            history=timedelta(days=settings.history_keep_days),
            events=timedelta(days=settings.events_keep_days),
            most=settings.history_keep_count,
        )
        sinks = open_sinks(lambda name: services_for(parts, name))
        self._relay = Relay(
            parts.keeping,
            self.leader,
            events,
            parts.clock,
            sinks={name: sink for name, sink in sinks.items() if is_relayed(sink)},
            retry=call_policy(settings).retry,
            tracing=parts.tracing,
        )
        log = EventLog(parts.database, parts.clock)
        self._deliveries = [
            Delivery(name, sink, log, self._fleet, self.leader) for name, sink in sinks.items() if not is_relayed(sink)
        ]
        self._fire_bell, self._measure_bell, self._requeue_bell = parts.signals.bell(Topic.JOBS), Bell(), Bell()
        self._deaths, self._election_bell = death_watch(parts), Bell()
        # A parent that has seen a process end rings too.
        self._rescue_bell = parts.signals.bell(Topic.WORKERS)
        # Only Redis can forget; where the database is the queue, the rows are all there is.
        forgetful = (
            [] if parts.redis is None else [self._led("requeuer", self._requeuer.step, _FORGOTTEN, self._requeue_bell)]
        )
        self._intake = Intake(parts)
        self._channels = None if parts.redis is None else ChannelListener(parts, self._intake, self.leader)
        age = timedelta(hours=settings.lpa_max_age_hours)
        self._measure_at = 0.0
        self._measuring = Measuring(parts.database, parts.clock, telegram_max_age=age)
        self._glance = Glance(parts.database, parts.clock)
        self._shadow = Shadow(ShadowFires(parts.database, parts.clock))
        self._syncer = None if settings.api_url is None else _syncer(parts, self.leader)
        self._notifier = _notifier(parts, self.leader)
        self._loops = [
            *forgetful,
            *self._listeners(),
            self._led("scheduler", self.scheduler.step, settings.schedule_check_interval, self._fire_bell),
            self._loop("waker", waker.step, _SOON),
            self._loop("deaths", self._hand_on, _DEATHS),
            self._loop("rescuer", rescuer.step, _SOON, self._rescue_bell),
            self._loop("relay", self._relay.step, _SOON),
            *(self._led(delivery.name, delivery.step, _DELIVER) for delivery in self._deliveries),
            self._led("pruner", pruner.step, timedelta(minutes=5)),
            self._led("deliveries", self._forget_deliveries, timedelta(minutes=5)),
            self._led("leftovers", self._forget_leftovers, timedelta(minutes=5)),
            *([] if self._syncer is None else [self._led("sync", self._syncer.step, settings.sync_interval)]),
            *([] if self._notifier is None else [self._led("notifier", self._notifier.step, _NOTIFY)]),
            self._led("shadow", self._record_shadow, _SHADOW),
            self._loop("tick", self.tick, _TICK),
            self._led("measure", self._measure_within_reason, _MEASURE, self._measure_bell),
        ]

    def _listeners(self) -> list[Loop]:
        """Redis is heard, if there is one. Whoever makes a trigger or a job rings."""
        if self._channels is None:
            return []
        bell = self._parts.signals.bell
        streams = StreamListener(self._parts, self._intake, self.leader)
        return [
            self._loop("channels", self._channels.step, _SOON, bell(Topic.JOBS)),
            self._loop("streams", streams.step, _SOON, bell(Topic.JOBS)),
            self._loop("refusals", self._intake.refusals.flush, FLUSH_EVERY),
        ]

    async def _forget_leftovers(self) -> timedelta | None:
        settings = self._parts.settings
        gone = await Leftovers(self._parts.database, self._parts.clock).forget(
            pages=timedelta(days=settings.history_keep_days),
            blobs=timedelta(days=settings.reports_keep_days),
            limit=_LEFTOVERS,
        )
        return timedelta(seconds=1) if gone >= _LEFTOVERS else None

    async def _forget_deliveries(self) -> None:
        await self._intake.deliveries.forget(max(_DELIVERIES_KEPT, 2 * self._parts.settings.webhook_window))

    async def _record_shadow(self) -> timedelta | None:
        recorded = await self._shadow.step()
        return timedelta() if recorded is not None and recorded.is_behind else None

    async def _measure_within_reason(self) -> None:
        """Some of it reads every job: the more there are, the rarer it is done."""
        now = asyncio.get_running_loop().time
        began = now()
        if began >= self._measure_at:
            await self.measure()
            self._measure_at = now() + (now() - began) * _MEASURE_REST

    async def measure(self) -> None:
        """As the leader, count what somebody should know of."""
        if self.leader.is_leader:
            self._parts.events.emit(await self._measuring.measure())
            self._parts.events.emit(await self._measuring.unfinished_channels())
            await self._glance.measure(telegram_max_age=timedelta(hours=self._parts.settings.lpa_max_age_hours))

    def _loop(self, name: str, step: Step, interval: timedelta, bell: Bell | None = None) -> Loop:
        return Loop(name, step, interval=interval, events=self._parts.events, bell=bell)

    def _led(self, name: str, step: Step, interval: timedelta, bell: Bell | None = None) -> Loop:
        """A step that only the leader takes. Who is not the leader looks again soon, however long the interval is:
        while a renewal is slow, leadership lapses, and comes back without anybody being told."""

        async def led() -> timedelta | None:
            asked = await step() if self.leader.is_leader else None
            return asked if self.leader.is_leader else _SOON

        return self._loop(name, led, interval, bell)

    async def announce(self) -> None:
        """Say that the process is there, before it holds anything."""
        if self._is_alone:
            self._parts.lock.take()
            await politely(self._present(), self._parts.events)

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop`; then let another take over at once."""
        interval, ttl = self._parts.settings.schedule_check_interval, self._parts.settings.scheduler_leader_ttl
        self._parts.events.emit(SchedulerStarted(interval.total_seconds()))
        elections = self._loop("leader", self._elect, ttl / 3, self._election_bell)
        tasks = [asyncio.create_task(loop.run(), name=loop.name) for loop in [elections, *self._loops]]
        await stop.wait()
        for loop in [elections, *self._loops]:
            loop.stop()
        self._relay.stop()
        if self._syncer is not None:
            self._syncer.stop()
        if self._notifier is not None:
            self._notifier.stop()
        await end_loops(tasks)
        if self._notifier is not None:
            await politely(self._notifier.close(), self._parts.events)
        if self._channels is not None:
            await politely(self._channels.close(), self._parts.events)
            await politely(self._intake.refusals.flush(), self._parts.events)
        for delivery in self._deliveries:
            await politely(delivery.close(), self._parts.events)
        await politely(self.leader.resign(), self._parts.events)
        if self._is_alone:
            await politely(self._fleet.left(self._parts.name), self._parts.events)

    async def _hand_on(self) -> None:
        if await self._deaths.step():
            self._election_bell.ring()
            self._rescue_bell.ring()

    async def _elect(self) -> timedelta:
        was_leader = self.leader.is_leader
        pause = await self.leader.step()
        if self.leader.is_leader and not was_leader:
            # What fell due while nobody led is fired now, not at the next look.
            self._fire_bell.ring()
            # And whoever asks is told at once that somebody leads.
            await self.tick()
            self._measure_bell.ring()
            self._requeuer.begin_again()
            self._requeue_bell.ring()
            self._rescue_bell.ring()
        return pause if self.leader.is_leader else min(pause, _SOON)

    async def tick(self) -> None:
        """Say that the scheduler is there and, as the leader, how long the queue is."""
        if self._is_alone:
            await self._present()
        if self.leader.is_leader:
            # The step that fires, and how often it is made at least: the metric of the last tick says the same.
            await self._fleet.tick(
                self._parts.name, self._parts.settings.schedule_check_interval, at=self.scheduler.last_tick
            )
            self._parts.events.emit(DepthMeasured(await self._parts.queue.depth()))

    async def _present(self) -> None:
        await self._fleet.seen(
            worker=self._parts.name,
            role="scheduler",
            hostname=self._parts.settings.hostname,
            pid=os.getpid(),
            slots=0,
            busy=0,
            draining=False,
            ttl=max(self._parts.settings.execution_lease, 3 * _TICK),
            lock_file=self._parts.lock.file,
            lock_key=self._parts.lock.key,
        )


def death_watch(parts: Resources) -> DeathWatch:
    """What notices the death of other processes of this installation."""
    return DeathWatch(
        Deaths(parts.database, parts.clock),
        parts.leases,
        parts.queue,
        parts.events,
        me=parts.name,
        leader_key=parts.settings.scheduler_leader_key,
    )


def _syncer(parts: Resources, leader: Leader) -> "Syncer":
    from floodmark.sync.sync import Syncer  # noqa: PLC0415 - with an HTTP client, which takes a while to import

    return Syncer(parts, leader)


def _notifier(parts: Resources, leader: Leader) -> "Notifier | None":
    from floodmark.notifications.making import notifier_of  # noqa: PLC0415 - with what posts and mails, which few have a need for

    return notifier_of(parts, leader)


class WorkerRole:
    """Runs executions until told to stop; then finishes or hands back what it holds, within the grace time."""

    def __init__(self, parts: Resources, sources: Mapping[str, Source]) -> None:
        settings = parts.settings
        self._parts, self._fleet = parts, Fleet(parts.database, parts.clock)
        self._leaving = asyncio.Event()
        retries = Retries(base=settings.execution_retry_base, longest=settings.execution_retry_max)
        sink = SqlSink(parts.keeping, parts.events, parts.clock, parts.tracing)
        executor = Executor(sources, sink, retries, self._leaving)
        self.worker = Worker(
            parts.queue,
            executor,
            parts.events,
            name=parts.name,
            slots=settings.scheduler_worker_pool_size,
            batch=settings.scheduler_queue_batch_size,
            ttl=settings.execution_lease,
            tracing=parts.tracing,
        )

    async def announce(self) -> None:
        """Say that the process is there, before it holds anything."""
        self._parts.lock.take()
        await politely(self._present(), self._parts.events)
        await politely(self._load_open_breakers(), self._parts.events)

    async def _load_open_breakers(self) -> None:
        """Show the breakers that are not closed, which would otherwise be shown as closed until their first call."""
        for row in await Breakers(self._parts.database, self._parts.clock).page(limit=_BREAKERS):
            if row.state != BreakerState.CLOSED.value:
                await self._parts.caller.load(row.key)

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop`."""
        beat = Loop(
            "heartbeat",
            self.worker.heartbeat,
            interval=self._parts.settings.execution_lease / 3,
            events=self._parts.events,
            bell=self._parts.signals.bell(Topic.CANCEL),
        )
        presence = Loop("presence", self._step, interval=_PRESENCE, events=self._parts.events)
        orders = Loop(
            "orders",
            self._obey,
            interval=_PRESENCE,
            events=self._parts.events,
            bell=self._parts.signals.bell(Topic.WORKERS),
        )
        tasks = [asyncio.create_task(loop.run(), name=loop.name) for loop in (beat, orders, presence)]
        working = asyncio.create_task(self.worker.run(), name="worker")
        stopped = asyncio.create_task(stop.wait(), name="stop")
        await asyncio.wait([stopped, working], return_when=asyncio.FIRST_COMPLETED)
        # A worker that came to an end by itself has failed: rather no process than one that does nothing.
        stop.set()
        await stopped
        try:
            await self._leave(working)
        finally:
            for loop in (beat, orders, presence):
                loop.stop()
            await end_loops(tasks)
            await politely(self._fleet.left(self._parts.name), self._parts.events)

    async def _leave(self, working: "asyncio.Task[None]") -> None:
        """Half of the grace to finish, the other half to stop at a good place, then everything is handed back."""
        half = self._parts.settings.shutdown_grace.total_seconds() / 2
        self.worker.stop()
        for last_call in (self._leaving.set, self.worker.hand_back):
            done, _ = await asyncio.wait([working], timeout=half)
            if done:
                return await working
            last_call()
        _, undone = await asyncio.wait([working], timeout=_LAST_WORDS.total_seconds())
        if undone:
            # The database is away. What we hold is taken back when its lease ends, and goes on from its watermark.
            self._parts.events.emit(StepFailed(step="leave", error="outcomes could not be written down in time"))
            working.cancel()
            await asyncio.wait([working], timeout=_CLEANING_UP.total_seconds())
        return None

    async def _obey(self) -> None:
        """Drain or resume, if asked to. Nothing is written otherwise: on SQLite any write rings the others."""
        is_draining = await self._fleet.is_draining()
        if is_draining == self.worker.is_draining:
            return
        if is_draining:
            self.worker.drain()
        else:
            self.worker.resume()
        await self._present()

    async def _present(self) -> None:
        await self._fleet.seen(
            worker=self._parts.name,
            role="worker",
            hostname=self._parts.settings.hostname,
            pid=os.getpid(),
            slots=self.worker.slots,
            busy=self.worker.busy,
            draining=self.worker.is_draining,
            # Not less than it takes to say so: a worker with short leases is there all the same.
            ttl=max(self._parts.settings.execution_lease, 3 * _PRESENCE),
            lock_file=self._parts.lock.file,
            lock_key=self._parts.lock.key,
        )

    async def _step(self) -> None:
        await self._present()
        await self._parts.caller.step()


async def end_loops(tasks: "Sequence[asyncio.Task[None]]") -> None:
    """Wait for the steps under way, but not for one that hangs: each may be cut off at any point."""
    done, late = await asyncio.wait(tasks, timeout=_LAST_WORDS.total_seconds())
    for task in late:
        task.cancel()
    if late:
        await asyncio.wait(late, timeout=_CLEANING_UP.total_seconds())
    await asyncio.gather(*done)


async def politely(goodbye: Coroutine[Any, Any, None], events: Events) -> None:
    """Spares others a wait, but is not worth failing or hanging for: they would notice by themselves."""
    try:
        async with asyncio.timeout(_LAST_WORDS.total_seconds()):
            await goodbye
    except Exception as error:  # noqa: BLE001 - whatever keeps us from saying goodbye, we leave; it is reported
        events.emit(StepFailed(step="leave", error=f"{type(error).__name__}: {error}"))
