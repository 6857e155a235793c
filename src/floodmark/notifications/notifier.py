"""Reads problems, decides on messages, stores them and sends them. Only the leader does.

A message is stored before it is sent and removed afterwards, channel by channel. After a crash in between, the next
leader sends it again with the same id.
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
from floodmark.repositories.staleness import StaleJob
from floodmark.rules.backoff import backoff_bound

from .decisions import (
    Letter,
    NotificationPace,
    NotifierState,
    PendingNotification,
    Standing,
    TroubleSeen,
    add_pending,
    copy_state,
    decide,
    find_look_back,
    initial_state,
)
from .port import NotificationChannel, NotSent
from .trouble_repository import MOST_AT_ONCE, TroubleRepository

# A message that its receiver refuses is given up after so many attempts, because the next ones wait for it. A receiver
# that cannot be reached gets its messages for some days.
MOST_REFUSALS = 12
GIVE_UP_AFTER = timedelta(days=3)
MOST_PENDING = 20
# A message about a new problem waits at most this long for a receiver that has recovered.
_FIRST_REST, _LONGEST_REST = timedelta(seconds=5), timedelta(minutes=30)
# After a 410: rarely enough not to disturb, often enough to find a receiver that works again.
_REST_WHEN_GONE = timedelta(days=1)
# Without other changes, the time until which dead letters were read is stored this often.
_STORE_AFTER = timedelta(minutes=5)
# Finding stale jobs reads all jobs.
_STALE_EVERY = timedelta(seconds=15)


class Leading(Protocol):
    """Knows whether this process is the leader."""

    @property
    def is_leader(self) -> bool:
        """Return whether this process is the leader now."""
        ...


class Notifier:
    """Notifies people of problems. Only the leader does."""

    def __init__(
        self,
        repository: TroubleRepository,
        leader: Leading,
        events: Events,
        channels: Mapping[str, NotificationChannel],
        *,
        kinds: Sequence[Kind],
        pace: NotificationPace,
        instance: str,
    ) -> None:
        self._repository, self._leader, self._events = repository, leader, events
        self._channels, self._kinds, self._pace, self._instance = channels, kinds, pace, instance
        self._writing = asyncio.Lock()
        self._state = NotifierState()
        self._stale: tuple[datetime | None, list[StaleJob]] = (None, [])
        self._is_leaving = False
        self._sending: asyncio.Future[list[BaseException | None]] | None = None

    async def step(self) -> timedelta | None:
        """Read problems once and send the pending messages, as the leader."""
        if not self._leader.is_leader:
            return None
        now = await self._repository.now()
        if await self._update(now) and any(self._waiting(name, now) for name in self._channels):
            await self._send(now)
        return None

    async def _send(self, now: datetime) -> None:
        """Send over all channels at once. A failing channel does not affect the others."""
        over = (self._send_over(name, now) for name in self._channels)
        self._sending = asyncio.gather(*over, return_exceptions=True)
        try:
            results = await self._sending
        except asyncio.CancelledError:
            if not self._is_leaving:
                raise
            return
        finally:
            self._sending = None
        for error in results:
            if isinstance(error, BaseException):
                raise error

    def stop(self) -> None:
        """Stop sending. The next leader sends the pending messages."""
        self._is_leaving = True
        if self._sending is not None:
            self._sending.cancel()

    async def close(self) -> None:
        """Close the connections."""
        for channel in self._channels.values():
            await channel.close()

    async def _update(self, now: datetime) -> bool:
        """Read problems and store the new messages; return False if another leader has stored its own."""
        kept = await self._repository.load_state()
        before = initial_state(now) if kept is None else msgspec.convert(kept, NotifierState)
        self._state = copy_state(before)
        messages = decide(
            self._state, await self._read_problems(before, now), self._kinds, self._pace, instance=self._instance
        )
        add_pending(self._state, messages, tuple(self._channels))
        self._drop_unsendable()
        after = copy_state(self._state)
        after.letters_until = before.letters_until
        is_old = before.letters_until is None or now - before.letters_until >= _STORE_AFTER
        if kept is None or is_old or after != before:
            return await self._store()
        return True

    async def _read_problems(self, state: NotifierState, now: datetime) -> TroubleSeen:
        repository, standing, gone = self._repository, dict[Kind, list[Standing]](), dict[Kind, set[str]]()
        rows = await repository.dead_letters(find_look_back(state, now)) if "dead_letter" in self._kinds else []
        letters = [
            Letter(subject=row.job_id, name=row.job_name, at=row.completed_at, error=row.error_message or "")
            for row in rows
        ]
        if "account_lost" in self._kinds:
            parked = await repository.parked_accounts()
            standing["account_lost"] = [Standing(subject=name, name=name, text=reason) for name, reason in parked]
            ended = set(state.records.get("account_lost", ())) - {name for name, _ in parked}
            gone["account_lost"] = ended - await repository.active_accounts(ended)
        if "stale_source" in self._kinds:
            stale = await self._find_stale(now)
            standing["stale_source"] = [Standing(subject=job.job_id, name=job.name, text="") for job in stale]
            ended = set(state.records.get("stale_source", ())) - {job.job_id for job in stale}
            gone["stale_source"] = ended - await repository.active_jobs(ended)
        return TroubleSeen(at=now, letters=letters, are_all=len(rows) < MOST_AT_ONCE, standing=standing, gone=gone)

    async def _find_stale(self, now: datetime) -> list[StaleJob]:
        at, found = self._stale
        if at is None or not timedelta() <= now - at < _STALE_EVERY:
            found = await self._repository.stale_jobs()
            self._stale = now, found
        return found

    async def _send_over(self, name: str, now: datetime) -> None:
        """Send the pending messages of a channel in order, until one fails: then the channel pauses."""
        for pending in self._waiting(name, now):
            try:
                await self._channels[name].send(pending.message)
            except NotSent as error:
                await self._note_failure(name, pending, error)
                return
            failpoint(NOTIFY_POINT)
            self._events.emit(NotificationSent(name, "sent"))
            if not await self._change(partial(self._remove, pending, name)):
                return

    def _waiting(self, name: str, now: datetime) -> list[PendingNotification]:
        until = self._state.resting.get(name)
        if until is not None and now < until:
            return []
        return [pending for pending in self._state.pending if name in pending.left]

    async def _note_failure(self, name: str, pending: PendingNotification, error: NotSent) -> None:
        attempts, now = pending.left[name] + 1, await self._repository.now()
        is_over = (
            error.is_gone
            or (error.is_refused and attempts >= MOST_REFUSALS)
            or now - pending.message.at >= GIVE_UP_AFTER
        )
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

        def note() -> None:
            pending.left[name] = attempts
            if is_over:
                self._remove(pending, name)
            self._state.resting[name] = now + rest

        await self._change(note)

    def _remove(self, pending: PendingNotification, name: str) -> None:
        pending.left.pop(name, None)
        if not pending.left and pending in self._state.pending:
            self._state.pending.remove(pending)
        if name in self._state.resting and not any(name in one.left for one in self._state.pending):
            del self._state.resting[name]

    def _drop_unsendable(self) -> None:
        """Drop messages for channels that were removed, and the oldest ones if there are too many."""
        for pending in self._state.pending:
            pending.left = {name: tries for name, tries in pending.left.items() if name in self._channels}
        waiting = [pending for pending in self._state.pending if pending.left]
        for pending in waiting[:-MOST_PENDING]:
            for name in pending.left:
                self._events.emit(NotificationSent(name, "failed"))
            structlog.get_logger().error("notification given up", message=pending.message.title, error="too many wait")
        self._state.pending = waiting[-MOST_PENDING:]

    async def _change(self, how: Callable[[], None]) -> bool:
        async with self._writing:
            how()
            return await self._store()

    async def _store(self) -> bool:
        """Store the state; return False if another leader has done so meanwhile."""
        self._state.turn += 1
        return await self._repository.store_state(msgspec.to_builtins(self._state))
