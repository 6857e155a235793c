"""Reads pictures and documents of items. Table: `blobs`; the sink writes it with the batch of the item."""

from collections.abc import Sequence

from sqlalchemy import select

from floodmark.model.batch import Blob
from floodmark.store.database import Database

from .tables import blobs


class Blobs:
    """Finds blobs by the digest of their content."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def read(self, digests: Sequence[str]) -> dict[str, Blob]:
        """Return the stored ones of these blobs by SHA-256."""
        query = select(blobs.c.sha256, blobs.c.media_type, blobs.c.content).where(blobs.c.sha256.in_(digests))
        async with self._database.reading() as connection:
            return {
                row.sha256: Blob(row.sha256, row.media_type, row.content) for row in await connection.execute(query)
            }
