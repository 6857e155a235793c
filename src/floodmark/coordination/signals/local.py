"""Signals within one process and, on SQLite, to the other processes of the machine.

Commits by other programs send no signal. Polling notices them, and signals that got lost.
"""

import asyncio
from contextlib import suppress

from floodmark.process.tasks import end_tasks
from floodmark.store.database import SqliteDatabase

from .mailboxes import Mailboxes
from .port import Bell, Bells, Topic

# A commit of another program, such as SQL typed by hand, is noticed within this time.
_POLL_SECONDS = 0.5


class LocalSignals:
    """Bells in memory. With a SQLite database, signals of other processes ring them too, and any other commit all."""

    def __init__(self, database: SqliteDatabase | None = None) -> None:
        self._bells, self._database = Bells(), database
        self._mailboxes = None if database is None else Mailboxes(database.path, self._receive)
        self._watcher: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start to listen, and to watch the database file."""
        if self._mailboxes is not None:
            self._mailboxes.open()
        if self._database is not None:
            self._watcher = asyncio.create_task(self._watch(self._database), name="signals")

    async def notify(self, topic: Topic) -> None:
        """Ring the bells of this process, and of the others on this machine."""
        self._bells.ring(topic)
        if self._mailboxes is not None:
            self._mailboxes.send(topic.value)

    def bell(self, topic: Topic) -> Bell:
        """Return a new bell that rings for `topic`."""
        return self._bells.add(topic)

    async def stop(self) -> None:
        """Stop listening and watching."""
        if self._mailboxes is not None:
            self._mailboxes.close()
        if self._watcher is not None:
            await end_tasks(self._watcher)

    def _receive(self, topic: str) -> None:
        with suppress(ValueError):  # a topic that only a newer version knows
            self._bells.ring(Topic(topic))

    async def _watch(self, database: SqliteDatabase) -> None:
        seen = await database.data_version()
        while True:
            await asyncio.sleep(_POLL_SECONDS)
            version = await database.data_version()
            if version != seen:
                seen = version
                self._bells.ring_all()
