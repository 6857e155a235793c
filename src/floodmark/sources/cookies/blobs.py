"""Pictures and documents that belong to items. Table: `blobs`; written with the batch of their item, only read here."""

from collections.abc import Sequence

from sqlalchemy import select

from floodmark.model.batch import Blob
from floodmark.store.database import Database

from .tables import blobs


class Blobs:
    """Finds blobs by what they hold."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def read(self, digests: Sequence[str]) -> dict[str, Blob]:
        """Those of them that are stored, by their SHA-256."""
        query = select(blobs.c.sha256, blobs.c.media_type, blobs.c.content).where(blobs.c.sha256.in_(digests))
        async with self._database.reading() as connection:
            return {
                row.sha256: Blob(row.sha256, row.media_type, row.content) for row in await connection.execute(query)
            }
