"""Files of the archive: names, durable writes, and files that a killed process has left."""

import hashlib
import os
import tempfile
import time
import zlib
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO, Any

from floodmark.process.file_errors import explain_errors
from floodmark.process.inner_folders import make_inner_folder, open_inner_file, sync_folder

fcntl: Any
try:
    import fcntl
except ImportError:  # Windows: no lock
    fcntl = None

OPEN = ".open"
"""The suffix of a file that is being written."""
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyz0123456789_-.")
_CHUNK = 1024 * 1024
explain_archive_errors = partial(
    explain_errors, hint="free disk space, change the permissions, or set another ARTIFACTS_DIR"
)
_TEMPORARY, _ORPHAN_SECONDS = ".tmp", 86_400.0


def folder_name(stream: str) -> str:
    """Return a readable and unique folder name for a stream, valid on any file system."""
    plain = "".join(letter if letter in _PLAIN else "-" for letter in stream.lower())[:80].strip("-.")
    return f"{plain}-{hashlib.blake2b(stream.encode(errors='replace'), digest_size=6).hexdigest()}"


def write_once(root: Path, path: Path, content: bytes) -> bool:
    """Write a file below `root` durably under its final name, or return False if it exists.

    Readers find a complete file or none. A symbolic link with its name is replaced.
    """
    if path.exists() and not path.is_symlink():
        return False
    with explain_archive_errors(path.parent):
        make_inner_folder(root, path.parent)
        # In a folder of their own: files that a killed process has left are found there among few others.
        temporary = path.parent.parent / _TEMPORARY
        make_inner_folder(root, temporary)
        _sweep(temporary)
        handle, name = tempfile.mkstemp(dir=temporary)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            Path(name).chmod(0o644)
            os.replace(name, path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        sync_folder(path.parent)
    return True


def _sweep(folder: Path) -> None:
    before = time.time() - _ORPHAN_SECONDS
    for path in folder.iterdir():
        with suppress(FileNotFoundError):
            if path.stat().st_mtime < before:
                path.unlink()


def lock_file(file: IO[bytes]) -> bool:
    """Lock an open file until it is closed or the process ends; return False if another process has locked it."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def finish_left_files(folder: Path) -> list[Path]:
    """Give files that a killed process has left their final names, without an incomplete record at the end.

    A file that is still being written is locked, and is left alone.
    """
    finished = []
    for path in sorted(folder.glob(f"*{OPEN}")):
        with suppress(FileNotFoundError), open_inner_file(path, "r+b") as file:
            if not lock_file(file):
                continue
            end = complete_length(file)
            if not end:
                path.unlink()
                continue
            file.truncate(end)
            os.fsync(file.fileno())
            finished.append(path.rename(path.with_name(path.name.removesuffix(OPEN))))
    if finished:
        sync_folder(folder)
    return finished


def complete_length(file: IO[bytes]) -> int:
    """Return the length of the complete gzip members at the start of a file."""
    end = start = 0
    member = zlib.decompressobj(wbits=31)
    file.seek(0)
    while chunk := file.read(_CHUNK):
        start += len(chunk)
        while chunk:
            try:
                member.decompress(chunk, _CHUNK)
                while member.unconsumed_tail and not member.eof:
                    member.decompress(member.unconsumed_tail, _CHUNK)
            except zlib.error:
                return end
            if not member.eof:
                break
            chunk = member.unused_data
            end = start - len(chunk)
            member = zlib.decompressobj(wbits=31)
    return end
