"""Signals through PostgreSQL's LISTEN/NOTIFY, channel `floodmark`, the topic as payload.

One connection of its own listens; a lost one is made again, and everything rings, as something may have been missed.
The same connection holds the session lock of this process (`process/process_lock.py`); PostgreSQL frees it when the
process dies.
"""

import asyncio
import time
from contextlib import suppress
from typing import Any

import asyncpg

from floodmark.observability.events import Events, StepFailed
from floodmark.process import forks
from floodmark.store.database import PostgresDatabase

from .port import Bell, Bells, Topic

_CHANNEL = "floodmark"
_RECONNECT_SECONDS = 1.0
# A lost session may hold our lock for a while after we are back.
_LOCK_AGAIN_SECONDS = 1.0


class PostgresSignals:
    """Reaches every process on the same database, SQL typed by hand included."""

    def __init__(self, database: PostgresDatabase, events: Events, *, lock_key: int | None = None) -> None:
        self._database, self._events, self._bells = database, events, Bells()
        self._wanted_key = lock_key
        self.lock_key: int | None = None
        self._listener: asyncio.Task[None] | None = None
        self._tried = asyncio.Event()

    async def start(self) -> None:
        """Begin to listen; returns once we do."""
        self._listener = asyncio.create_task(self._listen(), name="signals")
        with suppress(TimeoutError):
            await asyncio.wait_for(self._tried.wait(), 5)

    async def notify(self, topic: Topic) -> None:
        """Tell every process, this one without the detour."""
        self._bells.ring(topic)

        async def work(connection: Any) -> None:
            await connection.execute("SELECT pg_notify($1, $2)", _CHANNEL, topic.value)

        await self._database.hot("notify", work)

    def bell(self, topic: Topic) -> Bell:
        """Something to wait on."""
        return self._bells.add(topic)

    async def stop(self) -> None:
        """Cease to listen."""
        if self._listener is not None:
            self._listener.cancel()
            with suppress(asyncio.CancelledError):
                await self._listener

    async def _listen(self) -> None:
        while True:
            began = time.monotonic()
            try:
                await self._listen_until_lost()
            except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
                self._events.emit(StepFailed(step="signals", error=str(error) or type(error).__name__))
            # Whoever starts us need not wait for a server that is away.
            self._tried.set()
            # At once after a connection that was good for a while: our lock went with it.
            await asyncio.sleep(max(0.0, began + _RECONNECT_SECONDS - time.monotonic()))

    async def _listen_until_lost(self) -> None:
        connector = self._database.connector
        connection = await connector.connect()
        lost, descriptor = asyncio.Event(), _descriptor(connection)
        forks.hold(descriptor)
        try:
            connection.add_termination_listener(lambda *_: lost.set())
            # First of all: others take us for dead when our lock has been missing for a while.
            await self._lock(connection)
            await connection.add_listener(_CHANNEL, self._heard)
            self._bells.ring_all()
            self._tried.set()
            while not lost.is_set():
                has_all = self._wanted_key is None or self.lock_key is not None
                with suppress(TimeoutError):
                    pause = connector.step.total_seconds() if has_all else _LOCK_AGAIN_SECONDS
                    await asyncio.wait_for(lost.wait(), pause)
                    return
                if has_all:
                    # A silent connection brings no signal: only by asking do we notice.
                    await connector.ping(connection, connector.step)
                else:
                    await self._lock(connection)
        finally:
            self.lock_key = None
            forks.let_go(descriptor)
            connection.terminate()

    async def _lock(self, connection: "asyncpg.Connection[Any]") -> None:
        """Take the lock of this process. Behind a pooler there is none: the session is not ours alone."""
        if self._wanted_key is None or connection.is_closed():
            return
        pid = await connection.fetchval("SELECT pg_backend_pid()")
        if pid != connection.get_server_pid():
            self._wanted_key = None
        elif await connection.fetchval("SELECT pg_try_advisory_lock($1)", self._wanted_key):
            self.lock_key = self._wanted_key

    def _heard(self, _connection: object, _pid: int, _channel: str, payload: object) -> None:
        with suppress(ValueError):  # a topic of a newer version is none of our business
            self._bells.ring(Topic(str(payload)))


def _descriptor(connection: "asyncpg.Connection[Any]") -> int:
    """The number of its socket, which asyncpg does not tell; -1 if it cannot be found out."""
    transport = getattr(connection, "_transport", None)
    opened = None if transport is None else transport.get_extra_info("socket")
    return -1 if opened is None else int(opened.fileno())
