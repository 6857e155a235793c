"""Folders below a root, created and checked without following symbolic links.

A link inside the root could lead a writer to any file of the system. The root itself may be a link: its operator has
chosen it.
"""

import errno
import os
from pathlib import Path
from typing import IO

from floodmark.errors import Unavailable

_HAS_DESCRIPTORS = os.open in os.supports_dir_fd and os.mkdir in os.supports_dir_fd and hasattr(os, "O_NOFOLLOW")
_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)


def make_inner_folder(root: Path, folder: Path) -> None:
    """Create a folder below `root` durably, with its parents; `Unavailable` if one of them is a symbolic link."""
    parts = folder.relative_to(root).parts
    if ".." in parts:
        raise ValueError(f"{folder} is not below {root}")
    _make_root(root)
    if not _HAS_DESCRIPTORS:
        _make_by_path(root, parts)
        return
    handle = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for depth, part in enumerate(parts, 1):
            try:
                inner = _open_or_make(handle, part)
            except OSError as error:
                if error.errno in {errno.ELOOP, errno.ENOTDIR, errno.EMLINK}:
                    raise _refuse_link(root.joinpath(*parts[:depth])) from error
                raise
            os.close(handle)
            handle = inner
    finally:
        os.close(handle)


def open_inner_file(path: Path, mode: str, *, buffering: int = -1) -> IO[bytes]:
    """Open a file as `open` does; `Unavailable` if it is a symbolic link."""

    def opener(name: str, flags: int) -> int:
        return os.open(name, flags | _NO_FOLLOW, 0o666)

    if not _NO_FOLLOW and path.is_symlink():
        raise _refuse_link(path)
    try:
        file: IO[bytes] = open(path, mode, buffering=buffering, opener=opener)  # noqa: SIM115 - closed by the caller
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.EMLINK}:
            raise _refuse_link(path) from error
        raise
    return file


def refuse_link(path: Path) -> None:
    """Raise `Unavailable` if a path is a symbolic link."""
    if path.is_symlink():
        raise _refuse_link(path)


def _make_root(root: Path) -> None:
    missing = [path for path in (root, *root.parents) if not path.exists()]
    if missing:
        root.mkdir(parents=True, exist_ok=True)
    for path in missing:
        sync_folder(path.parent)


def _open_or_make(parent: int, name: str) -> int:
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
    try:
        return os.open(name, flags, dir_fd=parent)
    except FileNotFoundError:
        try:
            os.mkdir(name, dir_fd=parent)
        except FileExistsError:
            pass  # Another process has created it meanwhile, or it is a link to nothing: opening it tells.
        else:
            os.fsync(parent)
    return os.open(name, flags, dir_fd=parent)


def _make_by_path(root: Path, parts: tuple[str, ...]) -> None:
    """Create the folders where the system has no descriptors of folders."""
    folder = root
    for part in parts:
        folder /= part
        refuse_link(folder)
        folder.mkdir(exist_ok=True)


def sync_folder(folder: Path) -> None:
    """Write a folder to the disk: only then a new name in it is durable."""
    if os.name != "posix":
        # Other systems cannot open a folder.
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _refuse_link(path: Path) -> Unavailable:
    return Unavailable(
        f"{path} is a symbolic link or not a folder: files are not written through it",
        hint="remove it; to store files on another disk, mount that disk there, or make the root folder the link",
    )
