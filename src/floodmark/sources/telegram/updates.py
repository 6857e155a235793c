"""Turn pushed updates into hints: a post in a joined channel makes the jobs of the channel run at once.

An update decides when a job runs, never what is collected: it may be lost, late or repeated. Updates that
come shortly after each other are stored together, in one statement.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Collection, Iterable

from floodmark.coordination.signals.port import Signals, Topic
from floodmark.observability.events import Events, HintsGiven, StepFailed
from floodmark.repositories.hints import Hints

from .channels import Channels

_SOURCE = "telegram"
# How long updates are gathered after the first one: the posts of an album, or of a channel that posts several at once.
_GATHER_SECONDS = 0.3
# After a failure of the database.
_PAUSE_SECONDS = 5.0
# How long the jobs of a channel are remembered: members also get the updates of channels that nobody collects.
_REMEMBER_SECONDS = 60.0
_UNKNOWN: tuple[float, Collection[str]] = (0.0, ())


class PushedUpdates:
    """Stores hints for the jobs whose channels have news. One per process, for all its sessions."""

    def __init__(self, channels: Channels, hints: Hints, signals: Signals, events: Events) -> None:
        self._channels, self._hints, self._signals, self._events = channels, hints, signals, events
        self._news: dict[int, int | None] = {}
        # The update counters up to which the channels were read, or hints were stored.
        self._known: dict[int, int] = {}
        # The targets of the runs that have read the channels: the name of a renamed channel is not that of its job.
        self._read_as: defaultdict[int, set[str]] = defaultdict(set)
        self._targets: dict[int, tuple[float, Collection[str]]] = {}
        self._wanted: tuple[float, bool] | None = None
        self._storing: asyncio.Task[None] | None = None

    async def are_wanted(self) -> bool:
        """Return whether there are jobs that use hints. The result may be a minute old."""
        now = time.monotonic()
        if self._wanted is None or self._wanted[0] <= now:
            self._wanted = now + _REMEMBER_SECONDS, await self._hints.are_used_by(_SOURCE)
        return self._wanted[1]

    def receive(self, channel_id: int, pts: int | None) -> None:
        """Handle the news that something was posted in a channel."""
        if self._is_known(channel_id, pts):
            return
        earlier = self._news.get(channel_id)
        self._news[channel_id] = pts if earlier is None or pts is None else max(pts, earlier)
        if self._storing is None:
            self._storing = asyncio.create_task(self._store(), name="store hints")

    def report(self, error: Exception) -> None:
        """Report an error, which delays posts until their channel is polled."""
        self._events.emit(StepFailed(step="telegram updates", error=f"{type(error).__name__}: {error}"))

    def record_read(self, channel_id: int, target: str, pts: int) -> None:
        """Record that a run has read a channel to its end, when its update counter was `pts`."""
        self._known[channel_id] = max(pts, self._known.get(channel_id, 0))
        if target not in self._read_as[channel_id]:
            self._read_as[channel_id].add(target)
            self._targets.pop(channel_id, None)

    async def close(self) -> None:
        """Drop the updates that are not stored: the channels are polled later."""
        if self._storing is not None:
            self._storing.cancel()
            await asyncio.wait([self._storing])

    def _is_known(self, channel_id: int, pts: int | None) -> bool:
        return pts is not None and pts <= self._known.get(channel_id, 0)

    async def _store(self) -> None:
        """Store hints until there is no more news."""
        try:
            while self._news:
                await asyncio.sleep(_GATHER_SECONDS)
                # A run may have read a channel meanwhile.
                news = {id_: pts for id_, pts in self._news.items() if not self._is_known(id_, pts)}
                self._news = {}
                try:
                    await self._give(news)
                except Exception as error:  # noqa: BLE001 - reported; the updates are not lost
                    self.report(error)
                    self._news = {**news, **self._news}
                    await asyncio.sleep(_PAUSE_SECONDS)
        finally:
            self._storing = None

    async def _give(self, news: dict[int, int | None]) -> None:
        targets = await self._targets_of(news)
        hinted = await self._hints.give_targets(_SOURCE, targets) if targets else 0
        if hinted:
            self._events.emit(HintsGiven(_SOURCE, hinted))
            await self._signals.notify(Topic.JOBS)
        for channel_id, pts in news.items():
            self._known[channel_id] = max(pts or 0, self._known.get(channel_id, 0))

    async def _targets_of(self, channel_ids: Iterable[int]) -> list[str]:
        """Return the targets of the jobs that collect these channels."""
        now, wanted = time.monotonic(), list(channel_ids)
        unknown = [id_ for id_ in wanted if self._targets.get(id_, _UNKNOWN)[0] <= now]
        if unknown:
            names = await self._channels.names(unknown)
            possible = {
                id_: {str(id_), *(f"@{name.lower()}" for name in names.get(id_, ())), *self._read_as.get(id_, ())}
                for id_ in unknown
            }
            used = await self._hints.filter_targets(_SOURCE, [*set().union(*possible.values())])
            for id_, targets in possible.items():
                self._targets[id_] = now + _REMEMBER_SECONDS, targets & used
        return [target for id_ in wanted for target in self._targets.get(id_, _UNKNOWN)[1]]
