"""Limits on the connections to our HTTP servers: their number, and how long they may be idle.

A connection that sends no request, sends it too slowly, or does not read its response is closed. When there are too
many, the longest idle one is closed. The limit is a share of the file descriptors of the process, so that enough remain
for its work.
"""

import asyncio
import time
from importlib import import_module
from typing import Any, Literal

from uvicorn.protocols.http.h11_impl import H11Protocol

resource: Any
try:
    resource = import_module("resource")
except ImportError:  # Windows, where sockets do not count as files
    resource = None

MOST_CONNECTIONS = 512
# The time without a request (new, or kept open after a response), for its body, and for reading the response.
HEAD_SECONDS, BODY_SECONDS, READING_SECONDS = 10.0, 30.0, 30.0
# New connections that may wait to be accepted.
MOST_AT_ONCE = 64
_SWEEP_SECONDS = 1.0
# Enough; some systems allow a billion.
_MOST_DESCRIPTORS = 65_536

Phase = Literal["silent", "sending", "reading", "answered"]
_PATIENCE: dict[Phase, float] = {"silent": HEAD_SECONDS, "sending": BODY_SECONDS, "reading": READING_SECONDS}


def raise_descriptor_limit() -> int:
    """Raise the limit of file descriptors as far as the system allows; return the new limit."""
    if resource is None:
        return _MOST_DESCRIPTORS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _MOST_DESCRIPTORS)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return _MOST_DESCRIPTORS if soft == resource.RLIM_INFINITY else int(soft)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError):
        # macOS allows less than it reports.
        return int(soft)
    return wanted


def most_connections(descriptors: int) -> int:
    """Return a quarter of the descriptors, at most 512: the rest is for databases, sources and files."""
    return max(8, min(MOST_CONNECTIONS, descriptors // 4))


class Connections:
    """The open connections of one server; `run` sweeps them every second."""

    def __init__(self, most: int) -> None:
        self._most = most
        # In the order of their arrival.
        self._open: dict[Connection, None] = {}

    def add(self, connection: "Connection") -> None:
        """Add a connection; if there are too many, close the longest idle one, or this one if all are busy."""
        self._open[connection] = None
        if len(self._open) > self._most:
            silent = (one for one in self._open if one.phase == "silent")
            min(silent, key=lambda one: one.since).abort()

    def remove(self, connection: "Connection") -> None:
        """Remove a closed connection."""
        self._open.pop(connection, None)

    def sweep(self) -> None:
        """Close connections that were idle for too long."""
        now = time.monotonic()
        for connection in list(self._open):
            connection.check(now)

    async def run(self) -> None:
        """Sweep until cancelled."""
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            self.sweep()


class Connection(H11Protocol):
    """A connection that knows its phase, and since when it is in it."""

    counted: Connections

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.since = time.monotonic()
        self._seen: tuple[Phase, Any] = ("silent", None)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as in uvicorn
        """Add the connection."""
        super().connection_made(transport)
        self.counted.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the connection."""
        self.counted.remove(self)
        super().connection_lost(exc)

    @property
    def phase(self) -> Phase:
        """What the connection is waiting for."""
        # Uvicorn's annotations leave out that these are None at first.
        flow: Any = self.flow
        cycle: Any = self.cycle
        if flow is not None and flow.write_paused:
            return "reading"
        if cycle is None or cycle.response_complete:
            return "silent"
        return "sending" if cycle.more_body else "answered"

    def check(self, now: float) -> None:
        """Close the connection if it was in one phase for too long. Single bytes are no progress."""
        phase = self.phase
        if phase != self._seen[0] or self.cycle is not self._seen[1]:
            self._seen, self.since = (phase, self.cycle), now
        elif now - self.since > _PATIENCE.get(phase, float("inf")):
            self.abort()

    def abort(self) -> None:
        """Close the connection at once."""
        self.counted.remove(self)
        self.transport.abort()


def protocol_of(connections: Connections) -> type[Connection]:
    """Return the protocol of a server that adds its connections to these."""
    return type("CountedConnection", (Connection,), {"counted": connections})
