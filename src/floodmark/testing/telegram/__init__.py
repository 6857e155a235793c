"""A local Telegram server: MTProto 2.0 for the unmodified Telethon client, with faults on demand.

    from floodmark.testing.telegram import LoopbackTelegram, World

    world = World(seed=7)
    world.account("reader1")
    world.channel("harbour").fill(1000)
    async with LoopbackTelegram(world) as server:
        client = TelegramClient(StringSession(server.session("reader1")), 1, "any")

Modules, in the order in which a call passes them: `server` listens, `wire` implements the protocol (`handshake` for
clients without a key), `faults` injects faults, `methods` responds (`client_view`, `sign_in`, `updates`) from `world`
(`history`, `makers`, `media`, `texts`).
"""

from .faults import Call, Failure, Fault, Flood
from .handshake import trust_loopback
from .makers import Kind
from .server import Duplicate, LoopbackTelegram
from .world import Account, Channel, World

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
    "World",
    "trust_loopback",
]
