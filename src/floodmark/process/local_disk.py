"""The file system of a path: SQLite needs locks and shared memory, which network file systems do not have."""

import os
import re
from pathlib import Path

from floodmark.errors import Unavailable

MOUNTS = Path("/proc/self/mountinfo")
"""The mounted file systems on Linux. On other systems no folder is refused."""

_NETWORK_TYPES = re.compile(
    r"nfs\d?|cifs|smb\d?|smbfs|afs|ceph|lustre|gpfs|beegfs|ocfs2|ncpfs"
    r"|fuse\.(sshfs|s3fs|goofys|rclone|glusterfs|gcsfuse|cephfs|ceph|mount-s3|juicefs)"
)
_OCTAL = re.compile(r"\\([0-7]{3})")


def require_local(folder: Path) -> None:
    """Raise `Unavailable` if a folder is on a network file system."""
    kind = _file_system(Path(os.path.realpath(folder)))
    if kind is not None and _NETWORK_TYPES.fullmatch(kind):
        raise Unavailable(
            f"the folder {folder.absolute()} is on a network file system ({kind}), where SQLite cannot keep its data"
            " safe",
            hint="use a folder on a local disk: DATABASE_URL=sqlite:////path/to/floodmark.db; or PostgreSQL:"
            " DATABASE_URL=postgresql://user@host/floodmark",
        )


def _file_system(folder: Path) -> str | None:
    """Return the type of the file system of a folder; None if it is not known."""
    try:
        lines = MOUNTS.read_text(errors="replace").splitlines()
    except OSError:
        return None
    found: tuple[int, str] | None = None
    for line in lines:
        before, _, after = line.partition(" - ")
        # The fifth field is the mount point; after the dash comes the type.
        point = Path(_OCTAL.sub(lambda code: chr(int(code[1], 8)), before.split(" ")[4]))
        if folder.is_relative_to(point) and (found is None or len(point.parts) >= found[0]):
            found = len(point.parts), after.split(" ")[0]
    return found and found[1]
