"""The locks that this process holds until it ends, for others to check."""

import hashlib
from typing import Protocol

from .lock_files import FileLock


class SessionLock(Protocol):
    """A lock that belongs to a database connection."""

    @property
    def lock_key(self) -> int | None:
        """Return the key of the lock while it is held, otherwise None."""
        ...


class ProcessLock:
    """The locks of this process: a file for its own machine, a session lock of PostgreSQL for all others."""

    def __init__(self, file: FileLock, session: SessionLock | None = None) -> None:
        self._file, self._session = file, session

    def take(self) -> None:
        """Lock the file. The session lock lives with its connection."""
        self._file.take()

    @property
    def file(self) -> str | None:
        """Return the identity of the locked file."""
        return self._file.identity

    @property
    def key(self) -> int | None:
        """Return the key of the session lock while it is held."""
        return None if self._session is None else self._session.lock_key

    def release(self) -> None:
        """Release the file."""
        self._file.release()


def key_of(name: str) -> int:
    """Return the key of a process's session lock. Names are random, so two processes never share a key."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8]) >> 1
