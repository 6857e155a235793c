"""Reads the known pages of sites. Table: `pages`; the sink writes it with the batches of a crawl."""

from collections.abc import Sequence

from msgspec import Struct
from sqlalchemy import func, select

from floodmark.model.batch import SitePage
from floodmark.store.database import Database

from .tables import pages

_CELL = pages.c
_SELECT = select(*(_CELL[name] for name in SitePage.__struct_fields__))


class Extent(Struct, frozen=True):
    """Counts of a site's pages."""

    known: int
    visited: int
    """Pages visited at least once."""
    newest: int
    """The last crawl that visited a page; 0 if none did."""


class Pages:
    """Reads the frontier of a crawl and single pages."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def read_frontier(self, stream: str, crawl: int, *, limit: int, visited: bool = False) -> list[SitePage]:
        """Return pages that this crawl has not visited: never visited ones first, then those visited longest ago.

        With `visited` only pages that an earlier crawl has visited.
        """
        query = (
            _SELECT.where(_CELL.stream == stream, _CELL.crawl < crawl, _CELL.crawl >= int(visited))
            .order_by(_CELL.crawl, _CELL.depth, _CELL.place)
            .limit(limit)
        )
        async with self._database.reading() as connection:
            return [SitePage(*row) for row in await connection.execute(query)]

    async def find(self, stream: str, urls: Sequence[str]) -> dict[str, SitePage]:
        """Return the known ones of these pages by URL."""
        query = _SELECT.where(_CELL.stream == stream, _CELL.url.in_(urls))
        async with self._database.reading() as connection:
            return {row.url: SitePage(*row) for row in await connection.execute(query)}

    async def find_refused(self, stream: str, *, limit: int) -> list[str]:
        """Return the URLs of pages whose last answer was a refusal or a fault, found first ones first."""
        is_refused = (_CELL.status >= 400) & _CELL.status.not_in((404, 410))
        query = select(_CELL.url).where(_CELL.stream == stream, is_refused).order_by(_CELL.depth, _CELL.place)
        async with self._database.reading() as connection:
            return list((await connection.execute(query.limit(limit))).scalars())

    async def find_by_content(self, stream: str, hashes: Sequence[str]) -> dict[str, str]:
        """Return the URL that was found first for each of these content hashes."""
        query = (
            select(_CELL.content_hash, _CELL.url)
            .where(_CELL.stream == stream, _CELL.content_hash.in_(hashes))
            .order_by(_CELL.depth.desc(), _CELL.place.desc())
        )
        async with self._database.reading() as connection:
            return {row.content_hash: row.url for row in await connection.execute(query)}

    async def count(self, stream: str) -> Extent:
        """Count the pages of a site."""
        query = select(
            func.count(), func.count().filter(_CELL.crawl > 0), func.coalesce(func.max(_CELL.crawl), 0)
        ).where(_CELL.stream == stream)
        async with self._database.reading() as connection:
            return Extent(*(await connection.execute(query)).one())
