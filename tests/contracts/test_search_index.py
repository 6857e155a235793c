"""The search index contract on SQLite and PostgreSQL."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from floodmark.search.port import SearchIndex
from floodmark.search.postgres import PostgresSearchIndex
from floodmark.search.sqlite import SqliteSearchIndex
from floodmark.store.database import PostgresDatabase
from floodmark.testing.contracts.search_index import ReadEarlier, SearchIndexContract
from floodmark.testing.factories import Opened

pytest_plugins = ("backends",)
pytestmark = pytest.mark.spec("B5", "G8")


class TestSqliteSearchIndex(SearchIndexContract):
    @pytest.fixture
    async def index(self, tmp_path: Path, earlier: ReadEarlier) -> AsyncIterator[SearchIndex]:
        index = SqliteSearchIndex(tmp_path / "search.db", earlier)
        yield index
        await index.close()

    @pytest.fixture
    async def elsewhere(self, tmp_path: Path, earlier: ReadEarlier) -> AsyncIterator[SearchIndex]:
        index = SqliteSearchIndex(tmp_path / "search.db", earlier)
        yield index
        await index.close()


class TestPostgresSearchIndex(SearchIndexContract):
    @pytest.fixture
    async def index(self, postgres_only: Opened) -> AsyncIterator[SearchIndex]:
        async with postgres_only() as resources:
            assert isinstance(resources.database, PostgresDatabase)
            yield PostgresSearchIndex(resources.database)

    @pytest.fixture
    async def elsewhere(self, postgres_only: Opened) -> AsyncIterator[SearchIndex]:
        async with postgres_only() as resources:
            assert isinstance(resources.database, PostgresDatabase)
            yield PostgresSearchIndex(resources.database)


class TestPostgresSearchIndexOfManyDocuments(TestPostgresSearchIndex):
    """The first documents are found by their ids, all others by their tokens."""

    @pytest.fixture
    async def index(self, postgres_only: Opened) -> AsyncIterator[SearchIndex]:
        async with postgres_only() as resources:
            assert isinstance(resources.database, PostgresDatabase)
            yield PostgresSearchIndex(resources.database, read_first=2)
