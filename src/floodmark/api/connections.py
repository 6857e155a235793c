"""Connections to our HTTP servers: how many there may be, and how long one may keep us waiting.

A connection that sends no request, sends one too slowly, or does not read its answer is closed. When there are too
many, the one that has been silent for longest makes room for the next. The bound is a part of the descriptors that the
process may open, so that the work always finds some.
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
# A connection without a request: new, or kept open after an answer. Then for its body, and for reading the answer.
HEAD_SECONDS, BODY_SECONDS, READING_SECONDS = 10.0, 30.0, 30.0
# So many may arrive at once before we get to count them.
MOST_AT_ONCE = 64
_SWEEP_SECONDS = 1.0
# More is never needed, and some systems allow a billion.
_MOST_DESCRIPTORS = 65_536

Phase = Literal["silent", "sending", "reading", "answered"]
_PATIENCE: dict[Phase, float] = {"silent": HEAD_SECONDS, "sending": BODY_SECONDS, "reading": READING_SECONDS}


def raise_descriptor_limit() -> int:
    """Allow this process as many descriptors as the system grants it; return how many that are."""
    if resource is None:
        return _MOST_DESCRIPTORS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _MOST_DESCRIPTORS)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return _MOST_DESCRIPTORS if soft == resource.RLIM_INFINITY else int(soft)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError):
        # macOS grants less than it says.
        return int(soft)
    return wanted


def most_connections(descriptors: int) -> int:
    """A quarter of the descriptors, at most 512: the rest is for databases, sources and files."""
    return max(8, min(MOST_CONNECTIONS, descriptors // 4))


class Connections:
    """Those of one server. `sweep` is called every second while it runs."""

    def __init__(self, most: int) -> None:
        self._most = most
        # In the order in which they came.
        self._open: dict[Connection, None] = {}

    def add(self, connection: "Connection") -> None:
        """Count one more; close the longest silent one if there are too many, or this one if all are busy."""
        self._open[connection] = None
        if len(self._open) > self._most:
            silent = (one for one in self._open if one.phase == "silent")
            min(silent, key=lambda one: one.since).abort()

    def remove(self, connection: "Connection") -> None:
        """Count one less."""
        self._open.pop(connection, None)

    def sweep(self) -> None:
        """Close those that have kept us waiting for too long."""
        now = time.monotonic()
        for connection in list(self._open):
            connection.look(now)

    async def run(self) -> None:
        """Sweep until cancelled."""
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            self.sweep()


class Connection(H11Protocol):
    """One connection, which knows what it waits for and since when."""

    counted: Connections

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.since = time.monotonic()
        self._seen: tuple[Phase, Any] = ("silent", None)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as in uvicorn
        """Begin to count."""
        super().connection_made(transport)
        self.counted.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Cease to count."""
        self.counted.remove(self)
        super().connection_lost(exc)

    @property
    def phase(self) -> Phase:
        """What this connection is doing."""
        # Uvicorn declares them without the None that they are at first.
        flow: Any = self.flow
        cycle: Any = self.cycle
        if flow is not None and flow.write_paused:
            return "reading"
        if cycle is None or cycle.response_complete:
            return "silent"
        return "sending" if cycle.more_body else "answered"

    def look(self, now: float) -> None:
        """Close the connection if it has been in the same phase for too long. Single bytes are no progress."""
        phase = self.phase
        if phase != self._seen[0] or self.cycle is not self._seen[1]:
            self._seen, self.since = (phase, self.cycle), now
        elif now - self.since > _PATIENCE.get(phase, float("inf")):
            self.abort()

    def abort(self) -> None:
        """Close it at once."""
        self.counted.remove(self)
        self.transport.abort()


def protocol_of(connections: Connections) -> type[Connection]:
    """The protocol of a server whose connections are counted there."""
    return type("CountedConnection", (Connection,), {"counted": connections})
