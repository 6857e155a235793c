"""The folder with the files of posts.

    <folder>/media/ab/<sha256>            the content, under its hash; each content once
    <folder>/media/partial/<media id>     the beginning of a file that is being downloaded; a process locks it

A file appears under its hash only when all of it is on the disk.
"""

import hashlib
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from floodmark.model.media import content_path
from floodmark.process.failpoints import failpoint
from floodmark.process.inner_folders import make_inner_folder, open_inner_file, sync_folder

fcntl: Any
try:
    import fcntl
except ImportError:  # Windows: only the claim in the database
    fcntl = None

_CHUNK = 1024 * 1024
# A file that was placed this recently is not deleted: its row may not be written yet.
_YOUNG_SECONDS = 3600.0


class PartialFile:
    """The beginning of one file. Used by one process at a time; all methods block."""

    def __init__(self, folder: Path, media_id: str, part: int) -> None:
        self._folder, self._path = folder, _partial_path(folder, media_id)
        make_inner_folder(folder, self._path.parent)
        self._file = open_inner_file(self._path, "a+b")
        if fcntl is not None:
            # Freed by the kernel when the process ends. `BlockingIOError` if another process writes to the file.
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                self._file.close()
                raise
        self._hash = hashlib.sha256()
        self.size = self._resume(part)

    def _resume(self, part: int) -> int:
        """Cut a part that was not written completely, and hash what is there."""
        size = self._file.seek(0, os.SEEK_END) // part * part
        self._file.truncate(size)
        self._file.seek(0)
        while chunk := self._file.read(_CHUNK):
            self._hash.update(chunk)
        return size

    def append(self, content: bytes) -> None:
        """Append the next part."""
        self._file.write(content)
        self._file.flush()
        self._hash.update(content)
        self.size += len(content)
        failpoint("media.part")

    def place(self) -> str:
        """Move the complete file to its place, and return its hash."""
        os.fsync(self._file.fileno())
        digest = self._hash.hexdigest()
        target = path_of(self._folder, digest)
        make_inner_folder(self._folder, target.parent)
        # Also if there is one with this content: its new date protects it from being deleted now.
        os.utime(self._path)
        self._path.replace(target)
        sync_folder(target.parent)
        failpoint("media.placed")
        return digest

    def place_and_close(self) -> str:
        """Move the complete file to its place and close it, and return its hash."""
        try:
            return self.place()
        finally:
            self.close()

    def discard(self) -> None:
        """Delete what was downloaded: it does not fit."""
        with suppress(FileNotFoundError):
            self._path.unlink()

    def close(self) -> None:
        """Leave the file as it is, for the next try."""
        self._file.close()


def path_of(folder: Path, sha256: str) -> Path:
    """Return the path of a content."""
    return folder / content_path(sha256)


def read_part(folder: Path, sha256: str, offset: int, length: int) -> bytes:
    """Return some bytes of a content; OSError if it is not there."""
    with path_of(folder, sha256).open("rb") as file:
        file.seek(offset)
        return file.read(length)


def _partial_path(folder: Path, media_id: str) -> Path:
    """Return the path of the beginning of a file."""
    return folder / "media" / "partial" / media_id.replace(":", "-")


def delete_content(folder: Path, hashes: list[str]) -> list[str]:
    """Delete contents, and return the hashes of those that are gone; younger ones stay for now."""
    gone = []
    for digest in hashes:
        path = path_of(folder, digest)
        try:
            if time.time() - path.stat().st_mtime < _YOUNG_SECONDS:
                continue
            path.unlink()
        except FileNotFoundError:
            pass
        gone.append(digest)
    return gone
