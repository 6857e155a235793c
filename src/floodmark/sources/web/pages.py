"""What crawls know of sites. Table: `pages`; written with the batches of the crawl, only read here."""

from collections.abc import Sequence

from msgspec import Struct
from sqlalchemy import func, select

from floodmark.model.batch import SitePage
from floodmark.store.database import Database

from .tables import pages

_CELL = pages.c
_SELECT = select(*(_CELL[name] for name in SitePage.__struct_fields__))


class Extent(Struct, frozen=True):
    """How much is known of a site."""

    known: int
    """Addresses."""
    visited: int
    """Those of them that were ever visited."""
    newest: int
    """The last crawl that visited any; 0: none did."""


class Pages:
    """Reads the frontier of a crawl, and what is known of single pages."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def waiting(self, stream: str, crawl: int, *, limit: int, visited: bool = False) -> list[SitePage]:
        """Pages that this crawl has not visited: those never visited first, then those not visited for longest.

        With `visited` only pages that an earlier crawl has visited.
        """
        query = (
            _SELECT.where(_CELL.stream == stream, _CELL.crawl < crawl, _CELL.crawl >= int(visited))
            .order_by(_CELL.crawl, _CELL.depth, _CELL.place)
            .limit(limit)
        )
        async with self._database.reading() as connection:
            return [SitePage(*row) for row in await connection.execute(query)]

    async def known(self, stream: str, urls: Sequence[str]) -> dict[str, SitePage]:
        """What is known of these addresses."""
        query = _SELECT.where(_CELL.stream == stream, _CELL.url.in_(urls))
        async with self._database.reading() as connection:
            return {row.url: SitePage(*row) for row in await connection.execute(query)}

    async def alike(self, stream: str, hashes: Sequence[str]) -> dict[str, str]:
        """For each of these contents, the address that was found first with it."""
        query = (
            select(_CELL.content_hash, _CELL.url)
            .where(_CELL.stream == stream, _CELL.content_hash.in_(hashes))
            .order_by(_CELL.depth.desc(), _CELL.place.desc())
        )
        async with self._database.reading() as connection:
            return {row.content_hash: row.url for row in await connection.execute(query)}

    async def count(self, stream: str) -> int:
        """How many addresses are known."""
        query = select(func.count()).select_from(pages).where(_CELL.stream == stream)
        async with self._database.reading() as connection:
            return int((await connection.execute(query)).scalar_one())

    async def extent(self, stream: str) -> Extent:
        """How much is known."""
        query = select(
            func.count(), func.count().filter(_CELL.crawl > 0), func.coalesce(func.max(_CELL.crawl), 0)
        ).where(_CELL.stream == stream)
        async with self._database.reading() as connection:
            return Extent(*(await connection.execute(query)).one())
