"""Handlers of channels for notifications."""

import asyncio
import time
from datetime import timedelta

from floodmark.errors import Conflict, NotFound, Transient
from floodmark.model.notification_channels import ChannelRow, ChannelTest
from floodmark.notifications.loading import open_channels
from floodmark.notifications.messages import build_test_message
from floodmark.notifications.port import NotificationChannel, NotSent
from floodmark.operations.notifications import NotificationOperations
from floodmark.watches.channel_use import ChannelUse, read_channel_use
from floodmark.wiring.services import services_for

from .base import Handlers

_LONGEST_TEST = timedelta(seconds=60)
_HINT = "its settings begin with NOTIFY_, see docs/how-to/notifications.md"


class NotificationHandlers(NotificationOperations, Handlers):
    """Channels of this process, and their messages in the store."""

    async def notification_channels(self) -> list[ChannelRow]:
        places = {name: channel.where for name, channel in (await self._open()).items()}
        uses = await read_channel_use(self.resources.database)
        return [_row(name, places.get(name), uses.get(name)) for name in sorted({*places, *uses})]

    async def test_notification_channel(self, name: str) -> ChannelTest:
        channel = (await self._open(name)).get(name)
        if channel is None:
            known = [row.name for row in await self.notification_channels()]
            if name in known:
                raise Conflict(f"the channel {name} is not configured in this process", hint=_HINT)
            hint = f"there are: {', '.join(known)}" if known else f"none is configured yet: {_HINT}"
            raise NotFound(f"there is no channel {name[:60]!r}", hint=hint)
        message = build_test_message(at=self.resources.clock.now(), instance=self.resources.settings.hostname)
        began, deadline = time.monotonic(), self.deadline or _LONGEST_TEST
        try:
            async with asyncio.timeout(deadline.total_seconds()):
                await channel.send(message)
        except NotSent as error:
            raise Transient(str(error), hint=error.hint) from error
        except TimeoutError:
            raise Transient(f"{channel.where} took longer than {deadline.total_seconds():g} s") from None
        finally:
            await channel.close()
        seconds = time.monotonic() - began
        async with self.transaction():
            await self.record("channel.tested", f"channel:{name}", after={"message_id": message.id})
        return ChannelTest(channel=name, place=channel.where, message_id=message.id, seconds=round(seconds, 3))

    async def _open(self, kept: str | None = None) -> dict[str, NotificationChannel]:
        """Return the configured channels; only the one that is `kept` stays open."""
        opened = open_channels(lambda name: services_for(self.resources, name))
        for name, channel in opened.items():
            if name != kept:
                await channel.close()
        return opened


def _row(name: str, place: str | None, use: ChannelUse | None) -> ChannelRow:
    row = ChannelRow(name=name, place=place, is_configured=place is not None)
    if use is None:
        return row
    return ChannelRow(
        name=name,
        place=place,
        is_configured=row.is_configured,
        watches=use.watches,
        unsent=use.unsent,
        attempts=use.attempts,
        error=use.error,
        retry_at=use.retry_at,
        sent_at=use.sent_at,
    )
