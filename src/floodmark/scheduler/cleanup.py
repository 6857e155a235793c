"""What nobody needs any more. Tables: `pages` of sites that no job crawls, `blobs` of old reports."""

from datetime import datetime, timedelta

from sqlalchemy import delete, exists, or_, select, tuple_

from floodmark.model.clock import Clock
from floodmark.sources.cookies.tables import blobs
from floodmark.sources.web.tables import pages
from floodmark.store.async_engine import AsyncConnection
from floodmark.store.database import Database
from floodmark.store.dialects import present_moment
from floodmark.store.rule_sql import JOB_STREAM
from floodmark.store.tables import watermarks

# Pages and pictures that are deleted at once.
_AT_ONCE = 500


class Leftovers:
    """Forgets them, a little at a time. Items stay."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database, self._clock = database, clock

    async def step(self, *, pages: timedelta, blobs: timedelta) -> timedelta | None:
        """Forget one portion; ask to go on soon while there is more."""
        gone = await self.forget(pages=pages, blobs=blobs, limit=_AT_ONCE)
        return timedelta(seconds=1) if gone >= _AT_ONCE else None

    async def forget(self, *, pages: timedelta, blobs: timedelta, limit: int) -> int:
        """Forget pages of streams that have had no job and no news for so long, and blobs kept before; how many."""
        async with self._database.writing() as connection:
            now = await present_moment(self._database, self._clock, connection)
            return await _pages(connection, now - pages, limit) + await _blobs(connection, now - blobs, limit)


async def _pages(connection: AsyncConnection, before: datetime, limit: int) -> int:
    cell = watermarks.c
    # A job of before there were streams has the one that it would be given.
    wanted = select(JOB_STREAM)
    left = select(cell.stream).where(
        exists().where(pages.c.stream == cell.stream),
        cell.stream.not_in(wanted),
        or_(cell.moved_at.is_(None), cell.moved_at < before),
    )
    stream = (await connection.execute(left.limit(1))).scalar()
    if stream is None:
        return 0
    some = select(pages.c.stream, pages.c.url).where(pages.c.stream == stream).limit(limit)
    gone = await connection.execute(delete(pages).where(tuple_(pages.c.stream, pages.c.url).in_(some)))
    return int(gone.rowcount)


async def _blobs(connection: AsyncConnection, before: datetime, limit: int) -> int:
    # One that is in a newer report too was kept again with that.
    some = select(blobs.c.sha256).where(blobs.c.kept_at < before).limit(limit)
    # Asked twice: PostgreSQL may have waited for one that was kept again just then, and asks only outside anew.
    gone = await connection.execute(delete(blobs).where(blobs.c.sha256.in_(some), blobs.c.kept_at < before))
    return int(gone.rowcount)
