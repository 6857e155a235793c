"""Names become addresses, and addresses become sockets: the one place where anything is dialled.

The guard is asked for every socket, with the address that the socket is for. What DNS said before, and what it will
say next, has no effect. aiohttp keeps a connection for the host it was opened for, so no other host is given it.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from floodmark.model.hosts import plain_name

from .guard import AddressRefused, Guard

Lookup = Callable[[str], Awaitable[Sequence[str]]]
"""All addresses of a name; OSError if there are none."""

asked_for: ContextVar[str] = ContextVar("asked_for")
"""The host of the URL that a socket is made for: aiohttp tells `socket_factory` the address alone."""


class RefusedSocketError(OSError):
    """The guard's answer on its way through aiohttp, which treats any other error as its own fault."""

    def __init__(self, refused: AddressRefused) -> None:
        super().__init__(str(refused))
        self.refused = refused


class Names(AbstractResolver):
    """Looks names up: first in `resolve` (HTTP_RESOLVE), then in DNS. Tells only addresses that the guard lets pass."""

    def __init__(self, guard: Guard, resolve: Mapping[str, Sequence[str]], lookup: Lookup) -> None:
        self._guard, self._resolve, self._lookup = guard, resolve, lookup

    async def addresses(self, host: str) -> list[str]:
        """Return the addresses to try, in order; raise `AddressRefused` if none is allowed, OSError if unknown."""
        name = plain_name(host)
        self._guard.check_host(name)
        found = self._resolve.get(name) or await self._lookup(host)
        lets = [address for address in found if self._guard.lets(name, address)]
        if not lets:
            for address in found:
                self._guard.check_address(name, address)
            raise OSError(f"{name} has no address")
        return lets

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """As aiohttp asks for it."""
        try:
            addresses = await self.addresses(host)
        except AddressRefused as refused:
            raise RefusedSocketError(refused) from None
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
            for address in addresses
        ]

    async def close(self) -> None:
        """Nothing is kept open."""


async def system_lookup(name: str) -> Sequence[str]:
    """What this machine says: its hosts file, then DNS."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(name, None, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    return list(dict.fromkeys(_numeric(info[4]) for info in found))


def _numeric(address: tuple[Any, ...]) -> str:
    # A link-local address is none without its interface; the guard refuses both.
    has_scope = len(address) == 4 and address[3]
    return f"{address[0]}%{address[3]}" if has_scope and "%" not in address[0] else str(address[0])


def guarded_connector(guard: Guard, names: Names) -> aiohttp.TCPConnector:
    """What aiohttp opens connections with."""

    def make(info: tuple[Any, ...]) -> socket.socket:
        family, kind, proto, _, address = info
        try:
            guard.check_address(asked_for.get(), address[0])
        except AddressRefused as refused:
            raise RefusedSocketError(refused) from None
        return socket.socket(family, kind, proto)

    return aiohttp.TCPConnector(resolver=names, socket_factory=make, ttl_dns_cache=60)
