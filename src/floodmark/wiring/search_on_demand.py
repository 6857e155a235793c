"""The search index of a process, opened at its first use: few commands search."""
# ruff: noqa: PLC0415 - imports are inside the methods, for the same reason

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from floodmark.model.clock import Clock
from floodmark.observability.events import Events
from floodmark.store.database import Database, PostgresDatabase, SqliteDatabase

if TYPE_CHECKING:
    from floodmark.search.indexer import Indexer
    from floodmark.search.postgres import PostgresSearchIndex
    from floodmark.search.sqlite import SqliteSearchIndex
    from floodmark.search.stored_items import StoredItems
    from floodmark.search.stream_choice import RecentChoices


def index_path(database: Path) -> Path:
    """Return the file of the index of a SQLite database."""
    return database.with_name(f"{database.stem}-search{database.suffix}")


class SearchOnDemand:
    """The index, and what is read for it from the database."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database, self._clock = database, clock

    @cached_property
    def items(self) -> "StoredItems":
        """Reads items and events."""
        from floodmark.search.stored_items import StoredItems

        return StoredItems(self._database, self._clock)

    @cached_property
    def index(self) -> "PostgresSearchIndex | SqliteSearchIndex":
        """The index: on PostgreSQL in the database, on SQLite in a file beside it."""
        if isinstance(self._database, PostgresDatabase):
            from floodmark.search.postgres import PostgresSearchIndex

            return PostgresSearchIndex(self._database)
        from floodmark.search.sqlite import SqliteSearchIndex

        assert isinstance(self._database, SqliteDatabase)
        return SqliteSearchIndex(index_path(self._database.path), self.items.earlier)

    @cached_property
    def choices(self) -> "RecentChoices":
        """The last choices of many streams."""
        from floodmark.search.stream_choice import RecentChoices

        return RecentChoices()

    def indexer(self, events: Events, *, rests: bool = True) -> "Indexer":
        """Return what builds the index. `rests`: it leaves time to other work of the process."""
        from floodmark.search.indexer import Indexer

        return Indexer(self.index, self.items, events, rests=rests)

    async def close(self) -> None:
        """Close the index."""
        if "index" in self.__dict__:
            await self.index.close()
