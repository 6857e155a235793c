"""A Telegram on this machine: MTProto 2.0 for the unmodified Telethon client, with trouble on demand.

    from floodmark.testing.telegram import LoopbackTelegram, World

    world = World(seed=7)
    world.account("reader1")
    world.channel("harbour").fill(1000)
    async with LoopbackTelegram(world) as server:
        client = TelegramClient(StringSession(server.session("reader1")), 1, "any")

Files, in the order a call meets them: `server` listens, `wire` speaks the protocol (`handshake` for clients without a
key), `faults` makes trouble, `methods` answers (`asking`, `signing_in`, `updating`) from `world` (`history`, `makers`,
`media`, `words`).
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
