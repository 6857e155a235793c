"""Atomic file writes: after a crash a file has its old content or its new content, nothing in between."""

import asyncio
import filecmp
import os
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import IO, Any

from floodmark.errors import Unavailable
from floodmark.process.file_errors import explain_errors
from floodmark.process.inner_folders import make_inner_folder, sync_folder

fcntl: Any
try:
    import fcntl
except ImportError:  # Windows: no lock
    fcntl = None

_TEMPORARY = ".tmp"
# How long to wait for another writer in the same folder, and how often to try.
_PATIENCE_SECONDS, _RETRY_SECONDS = 30.0, 0.05


@asynccontextmanager
async def lock_folder(root: Path, folder: Path) -> AsyncIterator[None]:
    """Create a folder in `root` if it is missing, without following links, and lock it for one writer.

    Temporary files in it are deleted: their writer was killed, because nobody else holds the lock.
    """
    await asyncio.to_thread(_make_inner, root, folder)
    async with _lock(folder):
        await asyncio.to_thread(_sweep, folder)
        yield


class Replacement:
    """The new content of a file. The old content stays until `commit`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._new = path.with_name(f".{path.name}.{secrets.token_hex(4)}{_TEMPORARY}")
        with explain_errors(path.parent):
            self._file: IO[bytes] = self._new.open("xb")

    def write(self, content: bytes) -> None:
        """Append to the new content."""
        with explain_errors(self._path.parent):
            self._file.write(content)

    def commit(self) -> bool:
        """Replace the old content durably. Return False, and leave the file alone, if both are the same."""
        with explain_errors(self._path.parent), self._file:
            self._file.flush()
            if (
                self._path.is_file()
                and not self._path.is_symlink()
                and filecmp.cmp(self._new, self._path, shallow=False)
            ):
                return False
            os.fsync(self._file.fileno())
            os.replace(self._new, self._path)
            sync_folder(self._path.parent)
        return True

    def discard(self) -> None:
        """Delete the new content if it was not committed."""
        with suppress(OSError):
            # On a full disk closing fails again, because it writes the rest of the buffer.
            self._file.close()
        self._new.unlink(missing_ok=True)


@asynccontextmanager
async def _lock(folder: Path) -> AsyncIterator[None]:
    """Lock the folder itself, so that no lock file lies among the others. The lock ends with the process."""
    if fcntl is None:
        yield
        return
    with explain_errors(folder):
        handle = os.open(folder, os.O_RDONLY)
    try:
        deadline = asyncio.get_running_loop().time() + _PATIENCE_SECONDS
        while not _try_lock(handle):
            if asyncio.get_running_loop().time() > deadline:
                raise Unavailable(
                    f"another process has been writing in {folder} for {_PATIENCE_SECONDS:g} s",
                    hint="wait until it has ended, or choose another folder",
                )
            await asyncio.sleep(_RETRY_SECONDS)
        yield
    finally:
        os.close(handle)


def _try_lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _make_inner(root: Path, folder: Path) -> None:
    with explain_errors(folder):
        make_inner_folder(root, folder)


def make_folder(folder: Path) -> None:
    """Create a folder durably, with its parents."""
    with explain_errors(folder):
        missing = [path for path in (folder, *folder.parents) if not path.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        for path in missing:
            sync_folder(path.parent)


def _sweep(folder: Path) -> None:
    with explain_errors(folder):
        for left in folder.glob(f".*{_TEMPORARY}"):
            left.unlink(missing_ok=True)
