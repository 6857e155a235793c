"""Telethon's client without its own waits, retries and handling of updates. Imports Telethon.

`outbound` decides about waits and retries. A pushed update is only a hint that a channel has news: its number goes to
an `UpdateListener`, and nothing is requested because of it. Telethon's own loop would request the difference after
each gap and once in a quarter of an hour.
"""

import logging
from collections.abc import Iterator
from typing import Any, Protocol

from telethon import TelegramClient
from telethon.sessions import StringSession
from telethon.tl import types

from floodmark.version import __version__

from .proxies import ResolvedProxy

_CONNECT_SECONDS = 10
# Telethon logs every broken connection as an error; our own messages report the result.
_QUIET = logging.getLogger("telethon.floodmark")
_QUIET.addHandler(logging.NullHandler())
_QUIET.propagate = False


class UpdateListener(Protocol):
    """Gets the channels of pushed updates."""

    def receive(self, channel_id: int, pts: int | None) -> None:
        """Handle the news that something was posted in a channel; `pts` is its update counter, if it is known."""
        ...

    def report(self, error: Exception) -> None:
        """Handle an error of `receive`, or an update that could not be read."""
        ...


class UpdatesClient(TelegramClient):  # type: ignore[misc] # Telethon has no types
    """A client that receives no updates before `listen` is called."""

    listener: UpdateListener | None = None

    def listen(self) -> None:
        """Subscribe to updates with the next call."""
        self._no_updates = False

    async def __call__(self, request: Any, *args: Any, **options: Any) -> Any:
        """Send a request."""
        # Telethon would refuse the method itself until a flood wait has ended; `outbound` decides that.
        self._flood_waited_requests.clear()
        return await super().__call__(request, *args, **options)

    async def _update_loop(self) -> None:
        """Replace the loop that handles updates; it is cancelled when the client disconnects."""
        while True:
            updates = await self._updates_queue.get()
            if self.listener is None:
                continue
            try:
                for channel_id, pts in _find_news(updates):
                    self.listener.receive(channel_id, pts)
            except Exception as error:  # noqa: BLE001 - one bad update must not end the loop; it is reported
                self.listener.report(error)


def make_client(
    session: StringSession,
    api_id: int,
    api_hash: str,
    *,
    listener: UpdateListener | None = None,
    proxy: ResolvedProxy | None = None,
    request_retries: int = 0,
    retry_delay: int = 0,
) -> UpdatesClient:
    """Return a client for a session; it is not connected."""
    client = UpdatesClient(
        session,
        api_id,
        api_hash,
        app_version=__version__,
        base_logger=_QUIET,
        # Without this, Telethon would connect to its default IPv4 address, where the key of the session is unknown.
        use_ipv6=":" in (session.server_address or ""),
        timeout=_CONNECT_SECONDS,
        auto_reconnect=False,
        connection_retries=1,
        retry_delay=retry_delay,
        request_retries=request_retries,
        flood_sleep_threshold=0,
        raise_last_call_error=True,
        receive_updates=False,
        **({} if proxy is None else proxy.client_options()),
    )
    client.listener = listener
    return client


def _find_news(updates: Any) -> Iterator[tuple[int, int | None]]:
    """Yield the channels with new messages and their update counters."""
    single = getattr(updates, "update", None)
    for update in getattr(updates, "updates", None) or (() if single is None else (single,)):
        if isinstance(update, types.UpdateNewChannelMessage):
            # A `MessageEmpty` may have no peer.
            peer = getattr(update.message, "peer_id", None)
            if isinstance(peer, types.PeerChannel):
                yield peer.channel_id, update.pts
        elif isinstance(update, types.UpdateChannelTooLong):
            yield update.channel_id, update.pts
