"""What this process holds for as long as it lives, for others to look at."""

import hashlib
from typing import Protocol

from .lock_files import FileLock


class SessionLock(Protocol):
    """A lock that belongs to a connection to the database."""

    @property
    def lock_key(self) -> int | None:
        """The key under which it is held right now, None while it is not."""
        ...


class ProcessLock:
    """The locks of this process: a file for its own machine, a session lock of PostgreSQL for all others."""

    def __init__(self, file: FileLock, session: SessionLock | None = None) -> None:
        self._file, self._session = file, session

    def take(self) -> None:
        """Lock the file. The session lock comes and goes with its connection."""
        self._file.take()

    @property
    def file(self) -> str | None:
        """The identity of the locked file."""
        return self._file.identity

    @property
    def key(self) -> int | None:
        """The key of the session lock, while it is held."""
        return None if self._session is None else self._session.lock_key

    def release(self) -> None:
        """Give the file back."""
        self._file.release()


def key_of(name: str) -> int:
    """The key of a process's session lock. Names are random, so two processes never share one."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8]) >> 1
