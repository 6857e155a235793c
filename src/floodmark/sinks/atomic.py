"""Files that are there whole or not at all, whatever is killed in between."""

import asyncio
import filecmp
import os
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from floodmark.errors import Unavailable

fcntl: Any
try:
    import fcntl
except ImportError:  # Windows: no lock
    fcntl = None

_TEMPORARY = ".tmp"
# How long to wait for another writer in the same folder, and how often to look.
_PATIENCE_SECONDS, _LOOK_SECONDS = 30.0, 0.05


@asynccontextmanager
async def alone_in(folder: Path) -> AsyncIterator[None]:
    """The only one of us to write into a folder, which is made if need be.

    What another wrote half and left behind when it was killed is swept away: it cannot be at work, we are alone.
    """
    await asyncio.to_thread(_make, folder)
    async with _locked(folder):
        await asyncio.to_thread(_sweep, folder)
        yield


class Replacement:
    """The new content of a file. The old one stays in its place until `commit`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._new = path.with_name(f".{path.name}.{secrets.token_hex(4)}{_TEMPORARY}")
        with _told(path.parent):
            self._file: IO[bytes] = self._new.open("xb")

    def write(self, content: bytes) -> None:
        """Add to it."""
        with _told(self._path.parent):
            self._file.write(content)

    def commit(self) -> bool:
        """Put it in the place of the old one, durably. False if that says the same already: then it stays."""
        with _told(self._path.parent), self._file:
            self._file.flush()
            if self._path.exists() and filecmp.cmp(self._new, self._path, shallow=False):
                return False
            os.fsync(self._file.fileno())
            os.replace(self._new, self._path)
            _sync(self._path.parent)
        return True

    def discard(self) -> None:
        """Forget what was not committed."""
        with suppress(OSError):
            # On a full disk closing fails once more, because of what is still in the buffer.
            self._file.close()
        self._new.unlink(missing_ok=True)


@asynccontextmanager
async def _locked(folder: Path) -> AsyncIterator[None]:
    """A lock on the folder itself, so that no file of ours has to lie among the others. It ends with the process."""
    if fcntl is None:
        yield
        return
    with _told(folder):
        handle = os.open(folder, os.O_RDONLY)
    try:
        deadline = asyncio.get_running_loop().time() + _PATIENCE_SECONDS
        while not _is_taken(handle):
            if asyncio.get_running_loop().time() > deadline:
                raise Unavailable(
                    f"another process has been writing in {folder} for {_PATIENCE_SECONDS:g} s",
                    hint="wait until it has ended, or choose another folder",
                )
            await asyncio.sleep(_LOOK_SECONDS)
        yield
    finally:
        os.close(handle)


def _is_taken(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _make(folder: Path) -> None:
    with _told(folder):
        missing = [path for path in (folder, *folder.parents) if not path.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        for path in missing:
            _sync(path.parent)


def _sweep(folder: Path) -> None:
    with _told(folder):
        for left in folder.glob(f".*{_TEMPORARY}"):
            left.unlink(missing_ok=True)


def _sync(folder: Path) -> None:
    """A new name is durable once the folder that holds it is."""
    if os.name != "posix":
        # Elsewhere a folder cannot be opened.
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def _told(folder: Path) -> Iterator[None]:
    """What the system says of a folder, as something a person can act on."""
    try:
        yield
    except OSError as error:
        raise Unavailable(
            f"{folder} cannot be written to: {error.strerror or error}",
            hint="choose another folder, make room, or change who may write there",
        ) from error
