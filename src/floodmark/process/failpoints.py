"""Named places between two steps of the protocol, where a test can kill, stop or fail the process.

    FLOODMARK_FAILPOINT="keep.before:kill@3"    at the third hit of `keep.before`, SIGKILL
    FLOODMARK_FAILPOINT="settle.before:raise"   at the first hit of `settle.before`, an error

Several are separated by commas. Without the variable at import, `failpoint` is an empty function. If it is set but
empty, tests can use `arm`.
"""

import os
import re
import signal
import threading
from collections import Counter
from collections.abc import Callable

from floodmark.errors import FloodmarkError, InvalidInput

VARIABLE = "FLOODMARK_FAILPOINT"

# In the order of an execution; then the maintenance of the leader.
POINTS = (
    "leader.acquired",
    "fire.committed",
    "fire.put",
    "queue.read",
    "lease.claimed",
    "keep.before",
    "keep.begun",
    "keep.written",
    "keep.after",
    "settle.before",
    "settle.committed",
    "settle.acked",
    "relay.published",
    "deliver.sent",
    "wake.committed",
    "rescue.committed",
    "requeue.read",
)
# Between a requested change and its entry in the audit log.
OPERATION_POINT = "operation.changed"
# Between sending a notification and recording that it was sent.
NOTIFY_POINT = "notify.sent"
# Between storing requested executions and putting them on the queue.
FORCE_POINT = "force.committed"
# Between two writes of a count for charts.
COUNT_POINT = "count.written"
# In the transaction that begins or extends the search index, and after it.
SEARCH_POINTS = ("search.begun", "search.removed", "search.written", "search.committed")
# In an export that continues: its files are complete, the intention to move them is stored, one or all are in place.
EXPORT_POINTS = ("export.staged", "export.recorded", "export.moved", "export.placed", "export.committed")
# In a backup: a part is copied, all is copied; in a restore: everything is prepared, the database is replaced.
BACKUP_POINTS = ("backup.copying", "backup.copied", "restore.prepared", "restore.replaced")
# Between evaluating watches and storing their matches, after that, between making a message and sending it, and
# between sending it and recording that it was sent.
WATCH_POINTS = ("watch.evaluated", "watch.stored", "watch.made", "watch.claimed", "watch.sent")
# In the archive of a crawl: a record is written, and all records of a batch are durable.
ARCHIVE_POINTS = ("archive.written", "archive.synced")
# A part of a file is written; the file is in its place, but not recorded.
MEDIA_POINTS = ("media.part", "media.placed")
# In the chain of proofs: links are made, written in their transaction, and committed.
PROOF_POINTS = ("proof.made", "proof.written", "proof.committed")
OTHER_POINTS = (
    OPERATION_POINT,
    NOTIFY_POINT,
    FORCE_POINT,
    COUNT_POINT,
    *SEARCH_POINTS,
    *EXPORT_POINTS,
    *BACKUP_POINTS,
    *WATCH_POINTS,
    *ARCHIVE_POINTS,
    *MEDIA_POINTS,
    *PROOF_POINTS,
)
_ARMED = re.compile(r"(?P<point>[a-z.]+):(?P<action>kill|stop|raise)(?:@(?P<hit>[1-9]\d*))?")


class FailpointError(FloodmarkError):
    """Raised at a fail-point on request of a test."""


def _kill(_: str) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _stop(_: str) -> None:
    # To this thread: a signal to the process may be handled by another thread.
    signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


def _raise(name: str) -> None:
    raise FailpointError(f"fail-point {name}")


_ACTIONS: dict[str, Callable[[str], None]] = {"kill": _kill, "stop": _stop, "raise": _raise}

_armed: dict[tuple[str, int], Callable[[str], None]] = {}
_hits: Counter[str] = Counter()


def arm(text: str) -> None:
    """Set the actions of fail-points and replace earlier ones. Counting starts again."""
    armed, known = {}, (*POINTS, *OTHER_POINTS)
    for word in filter(None, (part.strip() for part in text.split(","))):
        found = _ARMED.fullmatch(word)
        if found is None or found["point"] not in known:
            raise InvalidInput(
                f"{VARIABLE} has {word!r}, which is not a fail-point",
                hint=f"Write point:action@hit, with kill, stop or raise, at one of: {', '.join(known)}",
            )
        armed[found["point"], int(found["hit"] or 1)] = _ACTIONS[found["action"]]
    _armed.clear()
    _armed.update(armed)
    _hits.clear()


def _nothing(_name: str) -> None:
    """Do nothing: the fail-point of normal operation."""


def hit(name: str) -> None:
    """Run the action that is armed for a fail-point, in a process under test."""
    _hits[name] += 1
    action = _armed.get((name, _hits[name]))
    if action is not None:
        action(name)


failpoint: Callable[[str], None] = _nothing
if VARIABLE in os.environ:
    failpoint = hit
    arm(os.environ[VARIABLE])
