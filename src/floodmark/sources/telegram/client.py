"""Telethon's client without its own waits, retries and updates: `outbound` decides those. Imports Telethon."""

import logging

from telethon import TelegramClient
from telethon.sessions import StringSession

from floodmark.version import __version__

_CONNECT_SECONDS = 10
# Telethon logs every broken connection as an error; our own messages report the result.
_QUIET = logging.getLogger("telethon.floodmark")
_QUIET.addHandler(logging.NullHandler())
_QUIET.propagate = False


def make_client(
    session: StringSession, api_id: int, api_hash: str, *, request_retries: int = 0, retry_delay: int = 0
) -> TelegramClient:
    """Return a client for a session; it is not connected."""
    return TelegramClient(
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
    )
