"""Resolves host names and opens sockets for aiohttp.

The guard checks the address of every socket when it is created, so a DNS answer that changes later has no effect.
aiohttp reuses a connection only for the host it was opened for.
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
"""Returns all addresses of a name; OSError if there are none."""

requested_host: ContextVar[str] = ContextVar("requested_host")
"""The host of the URL that a socket is created for: aiohttp passes only the address to `socket_factory`."""


class RefusedSocketError(OSError):
    """Carries the guard's refusal through aiohttp, which handles an OSError as a failed connection."""

    def __init__(self, refused: AddressRefused) -> None:
        super().__init__(str(refused))
        self.refused = refused


class Names(AbstractResolver):
    """Resolves names: first in `resolve` (HTTP_RESOLVE), then in DNS. Returns only addresses that the guard allows."""

    def __init__(self, guard: Guard, resolve: Mapping[str, Sequence[str]], lookup: Lookup) -> None:
        self._guard, self._resolve, self._lookup = guard, resolve, lookup

    async def addresses(self, host: str) -> list[str]:
        """Return the addresses to try, in order; raise `AddressRefused` if none is allowed, OSError if unknown."""
        name = plain_name(host)
        self._guard.check_host(name)
        found = self._resolve.get(name) or await self._lookup(host)
        allowed = [address for address in found if self._guard.allows(name, address)]
        if not allowed:
            for address in found:
                self._guard.check_address(name, address)
            raise OSError(f"{name} has no address")
        return allowed

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Return the addresses in the form that aiohttp expects."""
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
        """Do nothing: a resolver has nothing to close."""


async def system_lookup(name: str) -> Sequence[str]:
    """Return the addresses that this machine resolves a name to: from its hosts file, then DNS."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(name, None, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    return list(dict.fromkeys(_numeric(info[4]) for info in found))


def _numeric(address: tuple[Any, ...]) -> str:
    # A link-local address is incomplete without its interface; the guard refuses both.
    has_scope = len(address) == 4 and address[3]
    return f"{address[0]}%{address[3]}" if has_scope and "%" not in address[0] else str(address[0])


def make_connector(guard: Guard, names: Names) -> aiohttp.TCPConnector:
    """Return a connector that opens sockets only to addresses that the guard allows."""

    def make_socket(info: tuple[Any, ...]) -> socket.socket:
        family, kind, proto, _, address = info
        try:
            guard.check_address(requested_host.get(), address[0])
        except AddressRefused as refused:
            raise RefusedSocketError(refused) from None
        return socket.socket(family, kind, proto)

    return aiohttp.TCPConnector(resolver=names, socket_factory=make_socket, ttl_dns_cache=60)
