"""The digests of payloads that the WARC files of a stream have, in a SQLite file beside them.

It is only a shortcut: without an entry, a payload is stored again.
"""

import sqlite3
from pathlib import Path

from msgspec import Struct

_TABLE = (
    "CREATE TABLE IF NOT EXISTS payloads (digest TEXT PRIMARY KEY, url TEXT NOT NULL, date TEXT NOT NULL) WITHOUT ROWID"
)


class Capture(Struct, frozen=True, kw_only=True):
    """The first capture of a payload."""

    digest: str
    url: str
    date: str


class Payloads:
    """Finds captures by the digest of their payload."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection = self._open()
        # Not yet durable: their records may still be lost.
        self._new: dict[str, Capture] = {}

    def find(self, digest: str) -> Capture | None:
        """Return the first capture of a payload."""
        if digest in self._new:
            return self._new[digest]
        row = self._connection.execute("SELECT url, date FROM payloads WHERE digest = ?", (digest,)).fetchone()
        return None if row is None else Capture(digest=digest, url=row[0], date=row[1])

    def add(self, capture: Capture) -> None:
        """Remember a capture until `commit`."""
        self._new[capture.digest] = capture

    def commit(self) -> None:
        """Store the captures whose records are durable."""
        if self._new:
            rows = [(capture.digest, capture.url, capture.date) for capture in self._new.values()]
            with self._connection:
                self._connection.executemany("INSERT OR IGNORE INTO payloads VALUES (?, ?, ?)", rows)
            self._new = {}

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def _open(self) -> sqlite3.Connection:
        try:
            return self._connect()
        except sqlite3.DatabaseError:
            # A damaged file costs only space: payloads are stored again.
            self._path.unlink(missing_ok=True)
            return self._connect()

    def _connect(self) -> sqlite3.Connection:
        # Each call comes from some thread of a pool, one at a time.
        connection = sqlite3.connect(self._path, timeout=30, check_same_thread=False)
        connection.execute(_TABLE)
        return connection
