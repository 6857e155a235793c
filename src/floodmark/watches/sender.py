"""Makes the messages of watches that are due, and sends them. Only the leader does.

At least once: if a process is killed after the receiver has accepted a message and before that is recorded, the next
leader sends it again with the same id. Nothing else is sent twice, and nothing is lost.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import structlog

from floodmark.notifications.port import NotificationChannel, NotSent
from floodmark.observability.events import Events, NotificationSent
from floodmark.process.failpoints import failpoint
from floodmark.rules.backoff import backoff_bound

from .notification_repository import NotificationRepository, UnsentNotification

_AT_ONCE = 100
# Longer than a channel takes to send or to fail: then another leader may try.
_CLAIM = timedelta(seconds=60)
_FIRST_REST, _LONGEST_REST = timedelta(seconds=5), timedelta(minutes=10)
# After a 410: rarely enough not to disturb, often enough to find a receiver that works again.
_REST_WHEN_GONE = timedelta(days=1)
# What one channel sends in one step: the others must not wait for a slow one.
_EACH, _LONGEST_SECONDS = 20, 5.0


class WatchSender:
    """Sends the messages of watches over the configured channels. A failing channel does not affect the others."""

    def __init__(
        self,
        repository: NotificationRepository,
        events: Events,
        channels: Mapping[str, NotificationChannel],
        *,
        instance: str,
    ) -> None:
        self._repository, self._events, self._channels, self._instance = repository, events, channels, instance
        # By channel: failures in a row, and until when it rests. A new leader tries at once.
        self._failures: dict[str, int] = {}
        self._resting: dict[str, datetime] = {}
        self._is_leaving = False
        self._sending: asyncio.Future[list[int | BaseException]] | None = None

    async def step(self) -> timedelta | None:
        """Make messages that are due and send those that wait; return zero if there is more to do."""
        made = await self._repository.make_due(instance=self._instance, limit=_AT_ONCE)
        if made:
            failpoint("watch.made")
        now = await self._repository.now()
        ready = [name for name in self._channels if self._resting.get(name, now) <= now]
        unsent = {name: await self._repository.unsent(name, limit=_EACH) for name in ready}
        sent = await self._send(unsent) if any(unsent.values()) and not self._is_leaving else 0
        # After a message the next one of the same watch may be due.
        return timedelta() if (made == _AT_ONCE or sent) and not self._is_leaving else None

    def stop(self) -> None:
        """Stop sending. The next leader sends the rest."""
        self._is_leaving = True
        if self._sending is not None:
            self._sending.cancel()

    async def close(self) -> None:
        """Close the connections."""
        for channel in self._channels.values():
            await channel.close()

    async def _send(self, unsent: Mapping[str, Sequence[UnsentNotification]]) -> int:
        """Send over all channels at once, over each in order; return the number of messages that were sent."""
        work = (self._send_over(name, some) for name, some in unsent.items())
        self._sending = asyncio.gather(*work, return_exceptions=True)
        try:
            results = await self._sending
        except asyncio.CancelledError:
            if not self._is_leaving:
                raise
            return 0
        finally:
            self._sending = None
        for error in results:
            if isinstance(error, BaseException):
                raise error
        return sum(count for count in results if isinstance(count, int))

    async def _send_over(self, name: str, unsent: Sequence[UnsentNotification]) -> int:
        """Send messages in order, until one fails because of the channel: then the channel rests."""
        sent, began = 0, time.monotonic()
        for one in unsent:
            if time.monotonic() - began > _LONGEST_SECONDS:
                break
            if not await self._repository.claim(one, until=_CLAIM):
                continue
            failpoint("watch.claimed")
            try:
                await self._channels[name].send(one.message)
            except NotSent as error:
                if await self._note_failure(one, error):
                    break
                continue
            # The shorter the time until it is recorded, the fewer messages are sent twice.
            failpoint("watch.sent")
            await self._repository.settle_sent(one)
            self._events.emit(NotificationSent(name, "sent"))
            self._failures.pop(name, None)
            sent += 1
        return sent

    async def _note_failure(self, unsent: UnsentNotification, error: NotSent) -> bool:
        """Record a failure; return whether the channel rests."""
        name, attempt = unsent.channel, unsent.attempts + 1
        self._events.emit(NotificationSent(name, "failed"))
        structlog.get_logger().warning(
            "notification failed", channel=name, attempt=attempt, message=unsent.message.title, error=str(error)
        )
        # Without jitter: only the leader sends.
        again = max(backoff_bound(attempt, base=_FIRST_REST, longest=_LONGEST_REST), error.after or timedelta())
        await self._repository.settle_failed(unsent, str(error), again=_REST_WHEN_GONE if error.is_gone else again)
        if error.is_refused and error.after is None:
            return False
        self._failures[name] = self._failures.get(name, 0) + 1
        rest = backoff_bound(self._failures[name], base=_FIRST_REST, longest=_LONGEST_REST)
        rest = _REST_WHEN_GONE if error.is_gone else max(rest, error.after or timedelta())
        self._resting[name] = await self._repository.now() + rest
        return True
