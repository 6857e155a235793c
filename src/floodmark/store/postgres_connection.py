"""Connections to PostgreSQL that cannot hang for longer than one step may take.

A connection can die without being closed: a firewall drops it, a host fails, the server is stopped. The client would
then wait for ever, and the server would keep the locks of the open transaction. Three limits prevent that, all derived
from the time that one step may take:

    client      a step that takes longer ends its connection (`PostgresConnector.give_up_on`)
    server      `statement_timeout`, `lock_timeout` and `idle_in_transaction_session_timeout` are a little shorter
    sockets     keepalives detect a dead peer of an idle connection, the user time-out one that acknowledges nothing
"""

import asyncio
import socket
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from sqlalchemy import URL

from floodmark.process.lazy import LazyModule

if TYPE_CHECKING:
    import asyncpg
else:
    # Only PostgreSQL needs it.
    asyncpg = LazyModule("asyncpg")

# Generic only in its stubs.
Connection: TypeAlias = "asyncpg.Connection[Any]"

# The default time that one step may take: see `Settings.step_timeout`.
USUAL_STEP = timedelta(seconds=5)
# For work that a person starts, such as a migration.
LONG_WORK = timedelta(minutes=30)
_KEEPALIVE_PROBES = 3
# Shorter than the time-out of the client, so that the server's error still arrives.
_STATEMENT_SHARE, _LOCK_SHARE, _IDLE_SHARE = 0.9, 0.8, 0.6
_CLOSE_SECONDS = 1.0
# A timer that fires this late shows that the process itself was stalled. It then gets a moment to read its sockets.
_STALLED_SECONDS, _READING_SECONDS = 0.1, 0.25


class Deadline:
    """Calls `act` after some seconds, unless it is cancelled before.

    A process that was stalled itself, for example on a busy machine, first reads what has arrived meanwhile: the answer
    may be there.
    """

    def __init__(self, seconds: float, act: Callable[[], None]) -> None:
        self._loop, self._act = asyncio.get_running_loop(), act
        self._due = self._loop.time() + seconds
        self._timer = self._loop.call_later(seconds, self._fire)

    def cancel(self) -> None:
        """Do not call `act` any more."""
        self._timer.cancel()

    def _fire(self) -> None:
        if self._loop.time() - self._due < _STALLED_SECONDS:
            self._act()
        else:
            self._timer = self._loop.call_later(_READING_SECONDS, self._act)


class PostgresConnector:
    """Opens the connections of one process, and knows which of them are idle."""

    def __init__(self, url: URL, *, step: timedelta) -> None:
        self._dsn = url.set(drivername="postgresql").render_as_string(hide_password=False)
        self.step = step
        self.idle: set[Connection] = set()
        """Kept by the pools. Once one connection has died, all idle ones are dropped."""
        self._open: set[Connection] = set()

    async def connect(
        self, settings: Mapping[str, str] | None = None, *, work: timedelta | None = None, each: bool = True
    ) -> Connection:
        """Open a connection for steps, or for `work` that may take longer.

        `each`: the time limit applies to every statement. Without it the caller limits the time.
        """
        from .postgres_types import TypeCachingConnection  # noqa: PLC0415 - imports asyncpg, which SQLite does not need

        limit = (work or self.step).total_seconds()
        connection: Connection = await asyncpg.connect(
            self._dsn,
            connection_class=TypeCachingConnection,
            timeout=self.step.total_seconds(),
            command_timeout=limit if each else None,
            server_settings=_server_settings(limit, self.step.total_seconds()) | dict(settings or {}),
        )
        _watch_socket(connection, self.step.total_seconds())
        self._open.add(connection)
        connection.add_termination_listener(self._forget)
        return connection

    def give_up_on(self, connection: Connection) -> None:
        """End a connection that has not answered in time, and all idle ones, which are probably dead too."""
        connection.terminate()
        for other in tuple(self.idle):
            other.terminate()
        self.idle.clear()

    async def ping(self, connection: Connection, within: timedelta | None = None) -> None:
        """Raise unless the server answers in time, by default within half the time of a step."""
        seconds = (within or self.step / 2).total_seconds()
        timer = Deadline(seconds, partial(self.give_up_on, connection))
        try:
            await connection.execute("SELECT 1")
        finally:
            timer.cancel()

    async def close(self) -> None:
        """Close all connections at once; terminate those that do not answer."""
        await asyncio.gather(*(_close(connection) for connection in tuple(self._open)))
        self.idle.clear()

    def _forget(self, connection: Any) -> None:
        self._open.discard(connection)
        self.idle.discard(connection)


async def _close(connection: Connection) -> None:
    try:
        await connection.close(timeout=_CLOSE_SECONDS)
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
        connection.terminate()


def _server_settings(limit: float, step: float) -> dict[str, str]:
    return {
        "application_name": "floodmark",
        "statement_timeout": f"{int(limit * _STATEMENT_SHARE * 1000)}ms",
        "lock_timeout": f"{int(limit * _LOCK_SHARE * 1000)}ms",
        # A stalled or partitioned process must not hold row locks for longer than others wait.
        "idle_in_transaction_session_timeout": f"{int(limit * _IDLE_SHARE * 1000)}ms",
        # Ignored on Unix sockets, and by servers whose system does not support them.
        "tcp_keepalives_idle": str(_idle_seconds(step)),
        "tcp_keepalives_interval": "1",
        "tcp_keepalives_count": str(_KEEPALIVE_PROBES),
        "tcp_user_timeout": f"{int(step * 1000)}ms",
        # Our statements are short: compiling them costs more than it saves.
        "jit": "off",
        # With the usual cost of a page of an index, a table that was analysed while it was empty is read as a whole for
        # each key: its index seems to cost more than its rows. On the disks of today a page costs the same anywhere.
        "random_page_cost": "1.1",
    }


def keepalive_options(step: timedelta) -> dict[int, int]:
    """Return options of a TCP socket that close it when its peer is silent for about the time of a step."""
    seconds = step.total_seconds()
    wanted = {
        # macOS has another name for this option.
        "TCP_KEEPIDLE" if hasattr(socket, "TCP_KEEPIDLE") else "TCP_KEEPALIVE": _idle_seconds(seconds),
        "TCP_KEEPINTVL": 1,
        "TCP_KEEPCNT": _KEEPALIVE_PROBES,
        "TCP_USER_TIMEOUT": int(seconds * 1000),
    }
    return {getattr(socket, name): value for name, value in wanted.items() if hasattr(socket, name)}


def _idle_seconds(step: float) -> int:
    return max(1, int(step) - _KEEPALIVE_PROBES)


def socket_of(connection: Connection) -> Any:
    """Return the socket of a connection, or None: the driver has no public access to it."""
    transport = getattr(connection, "_transport", None)
    return None if transport is None else transport.get_extra_info("socket")


def _watch_socket(connection: Connection, step: float) -> None:
    found = socket_of(connection)
    if found is None or found.family not in {socket.AF_INET, socket.AF_INET6}:
        return
    found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in keepalive_options(timedelta(seconds=step)).items():
        found.setsockopt(socket.IPPROTO_TCP, option, value)
