"""Signals through PostgreSQL's LISTEN/NOTIFY: the channel is `floodmark`, the payload is the topic.

A dedicated connection listens. NOTIFY does not store messages, so all bells ring after every reconnect.
The same connection holds the session lock of this process (`process/process_lock.py`), which PostgreSQL releases when
the process dies.
"""

import asyncio
from contextlib import suppress
from typing import Any

import asyncpg

from floodmark.observability.events import Events
from floodmark.process import forks
from floodmark.store.database import PostgresDatabase
from floodmark.store.postgres_connection import Connection, socket_of

from .listening import ListeningSignals
from .port import Topic

_CHANNEL = "floodmark"
# After a reconnect the lost session may hold our lock for a while.
_LOCK_AGAIN_SECONDS = 1.0


class PostgresSignals(ListeningSignals):
    """Signals to every process on the same database, also those that a person sends with SQL."""

    _lost_errors = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError)

    def __init__(self, database: PostgresDatabase, events: Events, *, lock_key: int | None = None) -> None:
        super().__init__(events)
        self._database, self._wanted_key = database, lock_key
        self.lock_key: int | None = None

    async def notify(self, topic: Topic) -> None:
        """Notify every process; this one directly."""
        self._bells.ring(topic)

        async def work(connection: Any) -> None:
            await connection.execute("SELECT pg_notify($1, $2)", _CHANNEL, topic.value)

        await self._database.hot("notify", work)

    async def _listen_until_lost(self) -> None:
        connector = self._database.connector
        connection = await connector.connect()
        lost, opened = asyncio.Event(), socket_of(connection)
        descriptor = -1 if opened is None else int(opened.fileno())
        forks.hold(descriptor)
        try:
            connection.add_termination_listener(lambda *_: lost.set())
            # Before anything else: other processes take us for dead when our lock has been missing for a while.
            await self._lock(connection)
            await connection.add_listener(_CHANNEL, lambda *message: self._receive(str(message[-1])))
            self._mark_connected()
            while not lost.is_set():
                has_all = self._wanted_key is None or self.lock_key is not None
                with suppress(TimeoutError):
                    pause = connector.step.total_seconds() if has_all else _LOCK_AGAIN_SECONDS
                    async with asyncio.timeout(pause):
                        await lost.wait()
                    return
                if has_all:
                    # A connection can fall silent without being closed; only a query shows it.
                    await connector.ping(connection, connector.step)
                else:
                    await self._lock(connection)
        finally:
            self.lock_key = None
            forks.let_go(descriptor)
            connection.terminate()

    async def _lock(self, connection: Connection) -> None:
        """Take the lock of this process, unless a connection pooler shares the session with others."""
        if self._wanted_key is None or connection.is_closed():
            return
        pid = await connection.fetchval("SELECT pg_backend_pid()")
        if pid != connection.get_server_pid():
            self._wanted_key = None
        elif await connection.fetchval("SELECT pg_try_advisory_lock($1)", self._wanted_key):
            self.lock_key = self._wanted_key
