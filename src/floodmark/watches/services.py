"""The services of watches: the evaluator, the sender and the pruner."""

from datetime import timedelta

from floodmark.coordination.service import Service
from floodmark.coordination.signals.port import Bell
from floodmark.notifications.loading import open_channels
from floodmark.observability.events import EventsRelayed
from floodmark.process.threads import DaemonThreads
from floodmark.wiring.resources import Resources
from floodmark.wiring.services import services_for

from .evaluator import EventMatcher, WatchEvaluator
from .loading import LoadedWatches
from .match_repository import MatchRepository
from .notification_repository import NotificationRepository
from .repository import WatchRepository
from .sender import WatchSender
from .sources import SourceWatcher

_SOON, _SELDOM = timedelta(seconds=1), timedelta(minutes=5)
_PRUNED_AT_ONCE = 5000


def build_evaluator(resources: Resources, bell: Bell) -> WatchEvaluator:
    """Return the evaluator. It rings the bell when there is something to send."""
    database, clock, threads = resources.database, resources.clock, DaemonThreads(1)
    repository = WatchRepository(database, clock)
    return WatchEvaluator(
        database,
        resources.events,
        watches=LoadedWatches(repository, threads, default_max_age=resources.settings.watch_max_age),
        matcher=EventMatcher(database, clock, threads),
        matches=MatchRepository(database, clock),
        sources=SourceWatcher(database, clock, resources.repositories.staleness),
        notify=bell.ring,
    )


def build_sender(resources: Resources) -> WatchSender:
    """Return the sender, with all configured channels."""
    return WatchSender(
        NotificationRepository(resources.database, resources.clock),
        resources.events,
        open_channels(lambda name: services_for(resources, name)),
        instance=resources.settings.hostname,
    )


def build_watch_services(resources: Resources) -> list[Service]:
    """Return the services of watches, for the leader."""
    found, due = Bell(), Bell()
    evaluator, sender = build_evaluator(resources, due), build_sender(resources)
    history = NotificationRepository(resources.database, resources.clock)
    keep = timedelta(days=resources.settings.history_keep_days)
    resources.events.listen(EventsRelayed, lambda _: found.ring())

    async def prune() -> timedelta | None:
        deleted = await history.prune(keep, limit=_PRUNED_AT_ONCE)
        return _SOON if deleted >= _PRUNED_AT_ONCE else None

    return [
        Service("watches", evaluator.step, _SOON, found, leader_only=True),
        Service("watch messages", sender.step, _SOON, due, leader_only=True, interrupt=sender.stop, close=sender.close),
        Service("watch history", prune, _SELDOM, leader_only=True),
    ]
