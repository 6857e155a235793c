"""The role of a process that schedules: it fires due jobs and maintains the installation."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from functools import partial

from floodmark.coordination.leader import Leader
from floodmark.coordination.service import Service, run_services
from floodmark.coordination.signals.port import Bell, Topic
from floodmark.importers.shadow import Shadow
from floodmark.importers.shadow_fires import ShadowFires
from floodmark.inbound.intake import build_intake
from floodmark.inbound.redis_listeners import build_listeners
from floodmark.inbound.refusals import FLUSH_EVERY
from floodmark.inbound.websub import STEP_EVERY, build_subscriber
from floodmark.model.sinks import SinkRow
from floodmark.observability.events import (
    DepthMeasured,
    EventsRelayed,
    GapsMeasured,
    SchedulerStarted,
    SinkMeasured,
    SinksMeasured,
)
from floodmark.operations.overview import OverviewReader
from floodmark.repositories.freshness import FreshnessReader
from floodmark.scheduler.budgets import BudgetMeasurer
from floodmark.scheduler.cleanup import Cleanup
from floodmark.scheduler.counting import DayCounter, FreshnessMeasurer, MinuteCounter, ProofMaker
from floodmark.scheduler.dead_processes import DeadProcesses
from floodmark.scheduler.death_watch import DeathWatch
from floodmark.scheduler.pruner import Pruner
from floodmark.scheduler.requeuer import Requeuer, Waker
from floodmark.scheduler.rescuer import Rescuer
from floodmark.scheduler.scheduler import Scheduler
from floodmark.scheduler.state_metrics import StateMeasurer
from floodmark.sinks.delivery import Delivery, DeliveryStore
from floodmark.sinks.loading import open_sinks
from floodmark.sinks.recent_events import RecentEvents
from floodmark.sinks.relay import Relay
from floodmark.wiring.resources import Resources, call_policy
from floodmark.wiring.services import services_for

from .presence import Presence

_SOON = timedelta(seconds=1)
_SELDOM = timedelta(minutes=5)
_TICK = timedelta(seconds=5)
# Often enough for people who wait for events, and rarely enough to send many events at once.
_DELIVER = timedelta(seconds=2)
# Twice within the time after which a missing lock means death.
_DEATHS = timedelta(seconds=0.5)
# Longer than a sender tries to deliver a webhook, and than a signature is valid.
_DELIVERIES_KEPT = timedelta(days=1)
# A weekly budget follows the rhythm of its sources by the hour.
_BUDGETS = timedelta(minutes=1)
_SHADOW = timedelta(seconds=15)
_MEASURE = timedelta(seconds=15)
# After measurements, pause for this many times their duration, so that they use at most a twentieth of one core.
_MEASURE_REST = 20
_NOTIFY = timedelta(seconds=5)
_COUNT = timedelta(seconds=5)
# An execution that still waits this long after it was queued is queued again, in case Redis lost it.
_FORGOTTEN = timedelta(seconds=5)


class SchedulerRole:
    """Fires due jobs and does the maintenance while it is the leader; otherwise waits to take over.

    `is_alone`: no worker runs in the same process, which would otherwise be listed as the worker.
    """

    def __init__(self, resources: Resources, *, is_alone: bool = True) -> None:
        settings, events = resources.settings, resources.events
        self._settings, self._events, self._queue = settings, events, resources.queue
        self._fleet, self._name, self._is_alone = resources.repositories.fleet, resources.name, is_alone
        self._presence = Presence(
            self._fleet, settings, name=self._name, role="scheduler", interval=_TICK, lock=resources.lock
        )
        self.leader = Leader(
            resources.leases,
            events,
            name=settings.scheduler_leader_key,
            holder=self._name,
            ttl=settings.scheduler_leader_ttl,
        )
        self.scheduler = Scheduler(resources.firing, resources.queue, events, resources.tracing)
        self._requeuer = Requeuer(resources.upkeep, resources.queue, events, older_than=_FORGOTTEN)
        self._deaths = death_watch(resources)
        self._fire_bell, self._rescue_bell = resources.signals.bell(Topic.JOBS), resources.signals.bell(Topic.WORKERS)
        self._measure_bell, self._requeue_bell, self._election_bell = Bell(), Bell(), Bell()
        self._intake = build_intake(resources)
        self._measure_at, self._measured_in = 0.0, 0.0
        self._measuring = StateMeasurer(resources.database, resources.clock, resources.repositories.staleness)
        self._overview = OverviewReader(resources.database, resources.clock, resources.repositories)
        self._sinks, self._ledgers = resources.repositories.sinks, resources.repositories.ledgers
        self._shadow = Shadow(ShadowFires(resources.database, resources.clock))
        self.services = self._declare(resources)

    def _declare(self, resources: Resources) -> list[Service]:
        """Return every service of a scheduler. The last one closes first; the leader resigns after its work."""
        settings, events, upkeep, queue = self._settings, self._events, resources.upkeep, self._queue
        waker = Waker(upkeep, queue)
        budgets = BudgetMeasurer(
            resources.database,
            resources.clock,
            default_requests=settings.budget_default_per_minute,
            notify=self._fire_bell.ring,
        )
        rescuer = Rescuer(upkeep, queue, events, rescue_max=settings.execution_rescue_max)
        pruner = Pruner(
            upkeep,
            history=timedelta(days=settings.history_keep_days),
            events=timedelta(days=settings.events_keep_days),
            most=settings.history_keep_count,
        )
        cleaning = partial(
            Cleanup(resources.database, resources.clock).step,
            pages=timedelta(days=settings.history_keep_days),
            blobs=timedelta(days=settings.reports_keep_days),
        )
        return [
            Service("tick", self.tick, _TICK, close=self._presence.leave if self._is_alone else None),
            Service(
                "leader", self._elect, settings.scheduler_leader_ttl / 3, self._election_bell, close=self.leader.resign
            ),
            *_event_services(resources, self.leader),
            *self._redis_services(resources),
            Service(
                "scheduler", self.scheduler.step, settings.schedule_check_interval, self._fire_bell, leader_only=True
            ),
            Service("budgets", budgets.step, _BUDGETS, resources.signals.bell(Topic.JOBS), leader_only=True),
            Service("waker", waker.step, _SOON, leader_only=True),
            Service("deaths", self._hand_on, _DEATHS),
            Service("rescuer", rescuer.step, _SOON, self._rescue_bell, leader_only=True),
            Service("pruner", pruner.step, _SELDOM, leader_only=True),
            Service("deliveries", self._forget_deliveries, _SELDOM, leader_only=True),
            Service("leftovers", cleaning, _SELDOM, leader_only=True),
            *_sync_services(resources),
            *_hub_services(resources),
            *_notification_services(resources, self.leader),
            *_counting_services(resources),
            *_watch_services(resources),
            Service("shadow", self._record_shadow, _SHADOW, leader_only=True),
            Service("measure", self._measure_within_reason, _MEASURE, self._measure_bell, leader_only=True),
        ]

    def _redis_services(self, resources: Resources) -> list[Service]:
        """Return the services that need Redis, among them the requeuer: only Redis can lose queued executions."""
        if resources.redis is None:
            return []
        bell, refusals = resources.signals.bell, self._intake.refusals
        channels, streams = build_listeners(resources, self._intake, self.leader)
        return [
            Service("requeuer", self._requeuer.step, _FORGOTTEN, self._requeue_bell, leader_only=True),
            Service("refusals", refusals.flush, FLUSH_EVERY, close=refusals.flush),
            Service("channels", channels.step, _SOON, bell(Topic.JOBS), close=channels.close),
            Service("streams", streams.step, _SOON, bell(Topic.JOBS)),
        ]

    async def announce(self) -> None:
        """Show the process to others, before it holds anything."""
        if self._is_alone:
            await self._presence.announce(self._events)

    async def run(self, stop: asyncio.Event) -> None:
        """Run until `stop`; then let another take over at once."""
        self._events.emit(SchedulerStarted(self._settings.schedule_check_interval.total_seconds()))
        async with run_services(self.services, self._events, is_leader=lambda: self.leader.is_leader):
            await stop.wait()

    async def _hand_on(self) -> None:
        if await self._deaths.step():
            self._election_bell.ring()
            self._rescue_bell.ring()

    async def _elect(self) -> timedelta:
        was_leader = self.leader.is_leader
        pause = await self.leader.step()
        if self.leader.is_leader and not was_leader:
            # Jobs that fell due while there was no leader are fired now, not at the next check.
            self._fire_bell.ring()
            # Shows the new leader at once.
            await self.tick()
            self._requeuer.begin_again()
            for bell in (self._measure_bell, self._requeue_bell, self._rescue_bell):
                bell.ring()
        return pause if self.leader.is_leader else min(pause, _SOON)

    async def tick(self) -> None:
        """Show that the scheduler is alive and, as the leader, how long the queue is."""
        if self._is_alone:
            await self._presence.renew()
        if self.leader.is_leader:
            # The same time as in the metric of the last tick.
            await self._fleet.tick(self._name, self._settings.schedule_check_interval, at=self.scheduler.last_tick)
            self._events.emit(DepthMeasured(await self._queue.depth()))

    async def _forget_deliveries(self) -> None:
        await self._intake.deliveries.forget(max(_DELIVERIES_KEPT, 2 * self._settings.webhook_window))

    async def _record_shadow(self) -> timedelta | None:
        recorded = await self._shadow.step()
        return timedelta() if recorded is not None and recorded.is_behind else None

    async def _measure_within_reason(self) -> None:
        """Measure less often the longer it takes: some measurements read every job.

        A single slow one does not count: the first competes with everything else that a process does at its start.
        """
        now = asyncio.get_running_loop().time
        began = now()
        if began >= self._measure_at:
            await self.measure()
            before, self._measured_in = self._measured_in, now() - began
            self._measure_at = now() + min(before, self._measured_in) * _MEASURE_REST

    async def measure(self) -> None:
        """Measure the values of the metrics and of the overview, as the leader."""
        if self.leader.is_leader:
            self._events.emit(await self._measuring.measure())
            self._events.emit(await self._measuring.unfinished_channels())
            self._events.emit(await self._measuring.read_budgets())
            self._events.emit(GapsMeasured(await self._ledgers.count_gaps()))
            self._events.emit(_measure_sinks(await self._sinks.rows()))
            await self._overview.measure()


def death_watch(resources: Resources) -> DeathWatch:
    """Return the service that detects dead processes of this installation."""
    return DeathWatch(
        DeadProcesses(resources.database, resources.clock),
        resources.leases,
        resources.queue,
        resources.events,
        me=resources.name,
        leader_key=resources.settings.scheduler_leader_key,
    )


def _measure_sinks(rows: Sequence[SinkRow]) -> SinksMeasured:
    """Return how far the configured sinks are behind."""
    return SinksMeasured(
        tuple(
            SinkMeasured(row.name, row.lag_events, row.lag_seconds, row.dead_letters, row.state == "paused")
            for row in rows
            if row.state != "removed"
        )
    )


def _event_services(resources: Resources, leader: Leader) -> list[Service]:
    """Number the events for readers, deliver them to each sink on its own, and index them for searches."""
    repositories, recent = resources.repositories, RecentEvents()
    store = DeliveryStore(
        log=repositories.events, sinks=repositories.sinks, letters=repositories.sink_letters, recent=recent
    )
    retry = call_policy(resources.settings).retry
    found = open_sinks(resources.settings, partial(services_for, resources))
    deliveries = [Delivery(one, store, leader, resources.events, retry=retry) for one in found]
    bells = [Bell() for _ in deliveries]

    async def prepare() -> None:
        for delivery in deliveries:
            await delivery.prepare()
        await repositories.sinks.keep_only([delivery.name for delivery in deliveries])

    def notify() -> None:
        for bell in bells:
            bell.ring()

    relay = Relay(
        resources.keeping,
        leader,
        resources.events,
        resources.clock,
        prepare=prepare,
        recent=recent,
        notify=notify,
        tracing=resources.tracing,
    )
    return [
        # The search index closes after the relay: it has then seen the last events.
        *_search_services(resources),
        Service("relay", relay.step, _SOON, close=relay.finish),
        *(
            Service(f"sink:{one.name}", one.step, _DELIVER, bell, leader_only=True, interrupt=one.stop, close=one.close)
            for one, bell in zip(deliveries, bells, strict=True)
        ),
    ]


def _counting_services(resources: Resources) -> list[Service]:
    """Count executions and items for charts, and measure what takes too long on request."""
    minutes = MinuteCounter(resources.repositories.minutes, resources.events)
    days = DayCounter(resources.repositories.days)
    freshness = FreshnessMeasurer(FreshnessReader(resources.database, resources.clock))
    return [
        Service("minutes", minutes.step, _COUNT, leader_only=True),
        Service("days", days.step, _COUNT, leader_only=True),
        Service("freshness", freshness.step, _BUDGETS, leader_only=True),
        *_proof_services(resources),
    ]


def _proof_services(resources: Resources) -> list[Service]:
    """Extend the hash chains of streams."""
    if not resources.settings.proofs_enabled:
        return []
    proofs = ProofMaker(resources.repositories.proofs)
    return [Service("proofs", proofs.step, _COUNT, leader_only=True)]


def _search_services(resources: Resources) -> list[Service]:
    """Keep the search index up to date."""
    if not resources.settings.search_enabled:
        return []
    bell, indexer = Bell(), resources.search.indexer(resources.events)
    resources.events.listen(EventsRelayed, lambda _: bell.ring())
    return [Service("search", indexer.step, _SOON, bell, leader_only=True, close=indexer.finish)]


def _sync_services(resources: Resources) -> list[Service]:
    """Sync the schedules of API_URL, if it is set."""
    if resources.settings.api_url is None:
        return []
    from floodmark.sync.sync import build_syncer  # noqa: PLC0415 - with an HTTP client, which takes a while to import

    syncer = build_syncer(resources)
    return [Service("sync", syncer.step, resources.settings.sync_interval, leader_only=True, interrupt=syncer.stop)]


def _hub_services(resources: Resources) -> list[Service]:
    """Subscribe adaptive feeds at their hubs, if API_PUBLIC_URL is set."""
    subscriber = build_subscriber(resources)
    return [] if subscriber is None else [Service("hubs", subscriber.step, STEP_EVERY, leader_only=True)]


def _notification_services(resources: Resources, leader: Leader) -> list[Service]:
    """Notify people of trouble, if a channel is set."""
    from floodmark.notifications.loading import build_notifier  # noqa: PLC0415 - imports mail and HTTP, which few need

    notifier = build_notifier(resources, leader)
    if notifier is None:
        return []
    return [
        Service("notifier", notifier.step, _NOTIFY, leader_only=True, interrupt=notifier.stop, close=notifier.close)
    ]


def _watch_services(resources: Resources) -> list[Service]:
    """Evaluate watches on new events, and send their messages."""
    from floodmark.watches.services import build_watch_services  # noqa: PLC0415 - imports mail and HTTP, which few need

    return build_watch_services(resources)
