"""A local Telegram server: MTProto 2.0 for the unmodified Telethon client, with faults on demand.

    from floodmark.testing.telegram import LoopbackTelegram, TelegramBackend

    backend = TelegramBackend(seed=7)
    backend.account("reader1")
    backend.channel("harbour").fill(1000)
    async with LoopbackTelegram(backend) as server:
        client = TelegramClient(StringSession(server.session("reader1")), 1, "any")

Modules, in the order in which a call passes them: `server` listens, `wire` implements the protocol (`handshake` for
clients without a key), `faults` injects faults, `methods` responds (`client_view`, `sign_in`, `updates`) from `backend`
(`history`, `makers`, `media`, `texts`). `preview` serves the web previews of the channels.
"""

from .backend import Account, Channel, TelegramBackend
from .faults import Call, Failure, Fault, Flood
from .handshake import trust_loopback
from .makers import Kind
from .server import Duplicate, LoopbackTelegram

__all__ = [
    "Account",
    "Call",
    "Channel",
    "Duplicate",
    "Failure",
    "Fault",
    "Flood",
    "Kind",
    "LoopbackTelegram",
    "TelegramBackend",
    "trust_loopback",
]
