"""Signals through PostgreSQL's LISTEN/NOTIFY, channel `floodmark`, the topic as payload.

One connection of its own listens; a lost one is made again, and everything rings, as something may have been missed.
"""

import asyncio
from contextlib import suppress
from typing import Any

import asyncpg
from sqlalchemy import make_url

from floodmark.store.database import PostgresDatabase
from floodmark.telemetry.events import Events, StepFailed

from .port import Bell, Bells, Topic

_CHANNEL = "floodmark"
_RECONNECT_SECONDS = 1.0


class PostgresSignals:
    """Reaches every process on the same database, SQL typed by hand included."""

    def __init__(self, database: PostgresDatabase, events: Events) -> None:
        self._database, self._events, self._bells = database, events, Bells()
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
            try:
                await self._listen_until_lost()
            except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
                self._events.emit(StepFailed(step="signals", error=str(error) or type(error).__name__))
            # Whoever starts us need not wait for a server that is away.
            self._tried.set()
            await asyncio.sleep(_RECONNECT_SECONDS)

    async def _listen_until_lost(self) -> None:
        url = make_url(str(self._database.engine.url.render_as_string(hide_password=False)))
        connection = await asyncpg.connect(
            url.set(drivername="postgresql").render_as_string(hide_password=False), timeout=5
        )
        lost = asyncio.Event()
        try:
            connection.add_termination_listener(lambda *_: lost.set())
            await connection.add_listener(_CHANNEL, self._heard)
            self._bells.ring_all()
            self._tried.set()
            await lost.wait()
        finally:
            connection.terminate()

    def _heard(self, _connection: object, _pid: int, _channel: str, payload: object) -> None:
        with suppress(ValueError):  # a topic of a newer version is none of our business
            self._bells.ring(Topic(str(payload)))
