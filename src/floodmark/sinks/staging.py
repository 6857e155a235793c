"""Files are written into a hidden folder next to their place, and moved there once all of them are complete.

`<parent>/.<name>.floodmark-<token>/files/`   complete files, at the path that they will have
`<parent>/.<name>.floodmark-<token>/tmp/`     temporary files

The folder is locked while its process lives. The next run removes folders whose process was killed.
"""

import glob
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from floodmark.errors import Unavailable
from floodmark.process.failpoints import failpoint
from floodmark.process.file_errors import explain_errors
from floodmark.process.inner_folders import sync_folder

from .atomic import make_folder

fcntl: Any
try:
    import fcntl
except ImportError:  # Windows: no locks
    fcntl = None

# Without locks, a folder this old belongs to no process.
_ABANDONED_SECONDS = 86_400.0


class Staging:
    """A hidden folder for the files of one export or backup."""

    def __init__(self, folder: Path, lock: int | None) -> None:
        self._folder, self._lock = folder, lock
        self._files, self.temporary = folder / "files", folder / "tmp"

    @classmethod
    def create(cls, parent: Path, name: str) -> "Staging":
        """Create a folder for files that will be in `parent`."""
        make_folder(parent)
        folder = parent / f"{_prefix(name)}{secrets.token_hex(4)}"
        with explain_errors(parent):
            for path in (folder, folder / "files", folder / "tmp"):
                path.mkdir(mode=0o700)
        return cls(folder, _try_lock(folder))

    @classmethod
    def reopen(cls, parent: Path, folder: str) -> "Staging | None":
        """Return the folder of a run that was interrupted, if it is still there."""
        path = parent / folder
        return cls(path, _try_lock(path)) if path.is_dir() else None

    @property
    def name(self) -> str:
        """Return the name of the folder in its parent."""
        return self._folder.name

    @contextmanager
    def open(self, path: str) -> Iterator[IO[bytes]]:
        """Open a new file, which is durable at the end of the block; `path` is its place in the parent."""
        place = self._files / path
        with explain_errors(self._folder.parent):
            place.parent.mkdir(parents=True, exist_ok=True)
            with place.open("xb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())

    def path_of(self, path: str) -> Path:
        """Return where a file is written by other means than `open`; `path` is its place in the parent."""
        return self._files / path

    def files(self) -> list[str]:
        """Return the paths of the files that have not been moved."""
        return sorted(str(path.relative_to(self._files)) for path in self._files.rglob("*") if path.is_file())

    def move_into_place(self) -> None:
        """Move the files to their places. A reader sees no file or a complete one; an old file is replaced."""
        parent = self._folder.parent
        with explain_errors(parent):
            for path in self.files():
                place = parent / path
                make_folder(place.parent)
                os.replace(self._files / path, place)
                sync_folder(place.parent)
                failpoint("export.moved")

    def remove(self) -> None:
        """Delete the folder, with everything that is still in it."""
        shutil.rmtree(self._folder, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def remove_abandoned(parent: Path, name: str) -> None:
    """Delete the folders of runs that were killed."""
    for found in parent.glob(f"{glob.escape(_prefix(name))}*"):
        if fcntl is None:
            with suppress(OSError):
                if time.time() - found.stat().st_mtime > _ABANDONED_SECONDS:
                    shutil.rmtree(found, ignore_errors=True)
        elif (lock := _try_lock(found)) is not None:
            shutil.rmtree(found, ignore_errors=True)
            os.close(lock)


@contextmanager
def lock_folder_for_export(folder: Path) -> Iterator[None]:
    """Lock a folder, so that two exports cannot continue in it at the same time."""
    make_folder(folder)
    lock = _try_lock(folder)
    if lock is None and fcntl is not None:
        raise Unavailable(
            f"another export is writing in {folder}", hint="wait until it has ended, or choose another folder"
        )
    try:
        yield
    finally:
        if lock is not None:
            os.close(lock)


def _prefix(name: str) -> str:
    return f".{name}.floodmark-"


def _try_lock(folder: Path) -> int | None:
    """Return the descriptor that holds the lock; None if another process has it."""
    if fcntl is None:
        return None
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        return None
    return handle
