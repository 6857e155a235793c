"""The leader's step: look, decide, write down, send.

A message is written down before it is sent and struck off after, channel by channel. Whoever is killed in between has
sent it, and the next leader sends it once more, under the same id.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Protocol

import msgspec
import structlog

from floodmark.model.notification_kinds import Kind
from floodmark.observability.events import Events, NotificationSent
from floodmark.process.failpoints import NOTIFY_POINT, failpoint
from floodmark.rules.backoff import backoff_bound
from floodmark.store.staleness import StaleJob

from .deciding import (
    Letter,
    NotificationPace,
    PendingNotification,
    Standing,
    Told,
    TroubleSeen,
    begin,
    copy_of,
    decide,
    looks_from,
    written_down,
)
from .noticing import MOST_AT_ONCE, Noticing, without
from .port import NotificationChannel, NotSent

MOST_ATTEMPTS = 12
MOST_PENDING = 20
_FIRST_REST, _LONGEST_REST = timedelta(seconds=5), timedelta(minutes=10)
# After a 410: long enough to bother nobody, short enough that a receiver that was mended is found again.
_REST_WHEN_GONE = timedelta(days=1)
# If nothing else has changed, what was looked at is written down this often.
_WRITTEN_AFTER = timedelta(minutes=5)
_STALE_AFTER = timedelta(seconds=15)


class Leading(Protocol):
    """Whether it is us who tell."""

    @property
    def is_leader(self) -> bool:
        """Now."""
        ...


class Notifier:
    """Tells people of trouble. Only the leader does."""

    def __init__(
        self,
        noticing: Noticing,
        leader: Leading,
        events: Events,
        channels: Mapping[str, NotificationChannel],
        *,
        kinds: Sequence[Kind],
        pace: NotificationPace,
        instance: str,
    ) -> None:
        self._noticing, self._leader, self._events = noticing, leader, events
        self._channels, self._kinds, self._pace, self._instance = channels, kinds, pace, instance
        self._writing = asyncio.Lock()
        self._told = Told()
        self._looked: tuple[datetime | None, list[StaleJob]] = (None, [])
        self._is_leaving = False
        self._sending: asyncio.Future[list[BaseException | None]] | None = None

    async def step(self) -> timedelta | None:
        """One look, and whatever is to be sent. Who does not lead looks again soon: it may be about to."""
        if not self._leader.is_leader:
            return None
        now = await self._noticing.now()
        if await self._look(now) and any(self._waiting(name, now) for name in self._channels):
            await self._send(now)
        return None

    async def _send(self, now: datetime) -> None:
        """Over all channels at once; returns when every one of them is done, whatever another has met."""
        over = (self._send_over(name, now) for name in self._channels)
        self._sending = asyncio.gather(*over, return_exceptions=True)
        try:
            met = await self._sending
        except asyncio.CancelledError:
            if not self._is_leaving:
                raise
            return
        finally:
            self._sending = None
        for error in met:
            if isinstance(error, BaseException):
                raise error

    def stop(self) -> None:
        """Send no more: this process is leaving, and what is not struck off is sent by the next leader."""
        self._is_leaving = True
        if self._sending is not None:
            self._sending.cancel()

    async def close(self) -> None:
        """Close the connections."""
        for channel in self._channels.values():
            await channel.close()

    async def _look(self, now: datetime) -> bool:
        """Read what is wrong and write down what is to be told of it; whether we may go on."""
        kept = await self._noticing.told()
        before = begin(now) if kept is None else msgspec.convert(kept, Told)
        self._told = copy_of(before)
        messages = decide(self._told, await self._seen(before, now), self._kinds, self._pace, instance=self._instance)
        written_down(self._told, messages, tuple(self._channels))
        self._drop_the_unsendable()
        is_news = copy_of(self._told)
        is_news.letters_until = before.letters_until
        old = before.letters_until is None or now - before.letters_until >= _WRITTEN_AFTER
        if kept is None or old or is_news != before:
            return await self._write()
        return True

    async def _seen(self, told: Told, now: datetime) -> TroubleSeen:
        rows = await self._noticing.letters(looks_from(told, now)) if "dead_letter" in self._kinds else []
        letters = [
            Letter(subject=row.job_id, name=row.job_name, at=row.completed_at, error=row.error_message or "")
            for row in rows
        ]
        standing: dict[Kind, list[Standing]] = {}
        gone: dict[Kind, list[str]] = {}
        if "account_lost" in self._kinds:
            parked = await self._noticing.parked()
            standing["account_lost"] = [Standing(subject=name, name=name, text=reason) for name, reason in parked]
            left = without(list(told.records.get("account_lost", {})), {name for name, _ in parked})
            gone["account_lost"] = without(left, await self._noticing.working(left))
        if "stale_source" in self._kinds:
            stale = await self._stale(now)
            standing["stale_source"] = [Standing(subject=job.job_id, name=job.name, text="") for job in stale]
            left = without(list(told.records.get("stale_source", {})), {job.job_id for job in stale})
            gone["stale_source"] = without(left, await self._noticing.due(left))
        return TroubleSeen(at=now, letters=letters, are_all=len(rows) < MOST_AT_ONCE, standing=standing, gone=gone)

    async def _stale(self, now: datetime) -> list[StaleJob]:
        """Which jobs are stale, as of a moment ago: to know it is to read them all."""
        at, found = self._looked
        if at is None or not timedelta() <= now - at < _STALE_AFTER:
            found = await self._noticing.stale()
            self._looked = now, found
        return found

    async def _send_over(self, name: str, now: datetime) -> None:
        """Everything that waits for this channel, in order, until it fails: then it rests for a while."""
        for pending in self._waiting(name, now):
            try:
                await self._channels[name].send(pending.message)
            except NotSent as error:
                await self._failed(name, pending, error)
                return
            failpoint(NOTIFY_POINT)
            self._events.emit(NotificationSent(name, "sent"))
            if not await self._change(partial(self._strike_off, pending, name)):
                return

    def _waiting(self, name: str, now: datetime) -> list[PendingNotification]:
        until = self._told.resting.get(name)
        if until is not None and now < until:
            return []
        return [pending for pending in self._told.pending if name in pending.left]

    async def _failed(self, name: str, pending: PendingNotification, error: NotSent) -> None:
        attempts = pending.left[name] + 1
        is_over = error.is_gone or attempts >= MOST_ATTEMPTS
        self._events.emit(NotificationSent(name, "failed"))
        structlog.get_logger().log(
            40 if is_over else 30,
            "notification given up" if is_over else "notification failed",
            channel=name,
            attempt=attempts,
            message=pending.message.title,
            error=str(error),
        )
        # Without jitter: only the leader sends.
        rest = max(backoff_bound(attempts, base=_FIRST_REST, longest=_LONGEST_REST), error.after or timedelta())
        if error.is_gone:
            rest = _REST_WHEN_GONE
        now = await self._noticing.now()

        def note() -> None:
            pending.left[name] = attempts
            if is_over:
                self._strike_off(pending, name)
            self._told.resting[name] = now + rest

        await self._change(note)

    def _strike_off(self, pending: PendingNotification, name: str) -> None:
        pending.left.pop(name, None)
        if not pending.left and pending in self._told.pending:
            self._told.pending.remove(pending)
        if name in self._told.resting and not any(name in one.left for one in self._told.pending):
            del self._told.resting[name]

    def _drop_the_unsendable(self) -> None:
        """What waits for channels that are no longer there, and the oldest when there are too many."""
        for pending in self._told.pending:
            pending.left = {name: tries for name, tries in pending.left.items() if name in self._channels}
        waiting = [pending for pending in self._told.pending if pending.left]
        for pending in waiting[:-MOST_PENDING]:
            for name in pending.left:
                self._events.emit(NotificationSent(name, "failed"))
            structlog.get_logger().error("notification given up", message=pending.message.title, error="too many wait")
        self._told.pending = waiting[-MOST_PENDING:]

    async def _change(self, how: Callable[[], None]) -> bool:
        async with self._writing:
            how()
            return await self._write()

    async def _write(self) -> bool:
        """Write everything down; False if another leader has done so meanwhile."""
        self._told.turn += 1
        return await self._noticing.tell(msgspec.to_builtins(self._told))
