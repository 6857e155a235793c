"""Signals within one process and, on SQLite, polling for commits of other processes."""

import asyncio

from floodmark.process.tasks import end_tasks
from floodmark.store.database import SqliteDatabase

from .port import Bell, Bells, Topic

# A commit of another process, such as SQL typed by hand, is noticed within this time.
_POLL_SECONDS = 0.5


class LocalSignals:
    """Bells in memory. With a SQLite database, a commit by another process rings all of them."""

    def __init__(self, database: SqliteDatabase | None = None) -> None:
        self._bells, self._database = Bells(), database
        self._watcher: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start to watch the database file."""
        if self._database is not None:
            self._watcher = asyncio.create_task(self._watch(self._database), name="signals")

    async def notify(self, topic: Topic) -> None:
        """Ring the bells of this process."""
        self._bells.ring(topic)

    def bell(self, topic: Topic) -> Bell:
        """Return a new bell that rings for `topic`."""
        return self._bells.add(topic)

    async def stop(self) -> None:
        """Stop watching."""
        if self._watcher is not None:
            await end_tasks(self._watcher)

    async def _watch(self, database: SqliteDatabase) -> None:
        seen = await database.data_version()
        while True:
            await asyncio.sleep(_POLL_SECONDS)
            version = await database.data_version()
            if version != seen:
                seen = version
                self._bells.ring_all()
