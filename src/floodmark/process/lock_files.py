"""A lock file for each process. The kernel frees the lock when the process ends, however it ends.

`<folder>/<process name>.lock`   created and locked (`flock`) when a role starts; removed when the process ends, or by
                                 the process that noticed its death

A file counts only on the machine (the boot) where it was locked, so a folder on a network file system cannot make a
process of another machine look dead. `fcntl.lockf` would not do: closing any other descriptor of the file frees it.
"""

import os
import platform
import stat
import tempfile
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from . import forks

fcntl: Any
try:
    import fcntl
except ImportError:  # Windows: only leases
    fcntl = None

# The file of a process that died before it was listed in the database stays until it is this old.
_ORPHAN_SECONDS = 86_400.0
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@cache
def machine() -> str:
    """Return the machine and its current boot. Containers on one machine share it, as they share the kernel's locks."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return platform.node().replace(" ", "-")


def runtime_folder() -> Path | None:
    """Return a folder of this user for lock files, or None if there is none that others cannot write to."""
    if fcntl is None:
        return None
    folder = Path(tempfile.gettempdir()) / f"floodmark-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError:
        return None
    is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
    return folder if is_ours else None


class FileLock:
    """The lock of this process. `identity` is what another process needs to test it, None without a lock."""

    def __init__(self, folder: Path | None, name: str) -> None:
        self._path = None if folder is None else folder.absolute() / f"{name}.lock"
        self._descriptor: int | None = None
        self.identity: str | None = None

    def take(self) -> None:
        """Lock the file. It has no effect where locks do not work: there only leases show a death."""
        if self._path is None or fcntl is None or self._descriptor is not None:
            return
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _remove_orphans(self._path.parent)
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.release()
            return
        identity = f"{machine()} {self._path}"
        if is_free(identity) is not False:
            # Some file systems accept a lock and do not keep it.
            self.release()
            return
        self.identity = identity
        forks.hold(self._descriptor)

    def release(self) -> None:
        """Release the lock and remove the file."""
        self.identity = None
        if self._descriptor is not None and self._path is not None:
            self._path.unlink(missing_ok=True)
            forks.let_go(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = None


def is_free(identity: str) -> bool | None:
    """Return whether the process that held this lock has ended; None if this process cannot see it."""
    where, _, path = identity.partition(" ")
    if where != machine() or fcntl is None:
        return None
    try:
        descriptor = os.open(path, os.O_RDWR)
    except OSError:
        return None
    try:
        # Shared: two processes that check at the same time must not take each other for the owner.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return True


def remove(identity: str) -> None:
    """Remove the file of a process that has ended."""
    with suppress(OSError):
        Path(identity.partition(" ")[2]).unlink()


def _remove_orphans(folder: Path) -> None:
    long_ago = time.time() - _ORPHAN_SECONDS
    for path in folder.glob("*.lock"):
        with suppress(OSError):
            if path.stat().st_mtime < long_ago and is_free(f"{machine()} {path}"):
                path.unlink()
