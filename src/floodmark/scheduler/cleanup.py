"""Deletes data that is no longer used.

Tables: `pages` and `page_matches` of sites that no job crawls, `blobs` of old reports, `account_logins` that nobody
has completed.
"""

from datetime import datetime, timedelta

from sqlalchemy import delete, exists, or_, select, tuple_

from floodmark.repositories.repository import Repository
from floodmark.sources.cookies.tables import blobs
from floodmark.sources.telegram.tables import account_logins
from floodmark.sources.web.tables import page_matches, pages
from floodmark.store.async_engine import AsyncConnection
from floodmark.store.dialects import present_moment
from floodmark.store.rule_sql import JOB_STREAM
from floodmark.store.tables import watermarks

_AT_ONCE = 500


class Cleanup(Repository):
    """Deletes unused pages and blobs in small portions, and expired logins. Items stay."""

    async def step(self, *, pages: timedelta, blobs: timedelta) -> timedelta | None:
        """Delete one portion; returns a short pause while there may be more."""
        deleted = await self.delete_unused(pages=pages, blobs=blobs, limit=_AT_ONCE)
        return timedelta(seconds=1) if deleted >= _AT_ONCE else None

    async def delete_unused(self, *, pages: timedelta, blobs: timedelta, limit: int) -> int:
        """Delete pages of streams without a job and without changes for `pages`, and blobs not kept for `blobs`.

        Returns how many rows were deleted.
        """
        async with self._database.writing() as connection:
            now = await present_moment(self._database, self._clock, connection)
            await connection.execute(delete(account_logins).where(account_logins.c.expires_at < now))
            return await _delete_pages(connection, now - pages, limit) + await _delete_blobs(
                connection, now - blobs, limit
            )


async def _delete_pages(connection: AsyncConnection, before: datetime, limit: int) -> int:
    cell = watermarks.c
    unused = select(cell.stream).where(
        exists().where(pages.c.stream == cell.stream),
        cell.stream.not_in(select(JOB_STREAM)),
        or_(cell.moved_at.is_(None), cell.moved_at < before),
    )
    stream = (await connection.execute(unused.limit(1))).scalar()
    if stream is None:
        return 0
    some = select(pages.c.stream, pages.c.url).where(pages.c.stream == stream).limit(limit)
    matches = tuple_(page_matches.c.stream, page_matches.c.url)
    await connection.execute(delete(page_matches).where(matches.in_(some)))
    deleted = await connection.execute(delete(pages).where(tuple_(pages.c.stream, pages.c.url).in_(some)))
    return int(deleted.rowcount)


async def _delete_blobs(connection: AsyncConnection, before: datetime, limit: int) -> int:
    # A newer report with the same blob has updated its `kept_at`.
    some = select(blobs.c.sha256).where(blobs.c.kept_at < before).limit(limit)
    # Checked twice: after waiting for a row lock, PostgreSQL evaluates only the outer condition again.
    deleted = await connection.execute(delete(blobs).where(blobs.c.sha256.in_(some), blobs.c.kept_at < before))
    return int(deleted.rowcount)
