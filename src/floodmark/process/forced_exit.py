"""Forced exit: a stopping process ends after its grace, even if something hangs."""

import os
import sys
import threading
from datetime import timedelta

MARGIN = timedelta(seconds=5)
"""Time after SHUTDOWN_GRACE to release executions and close connections."""


class Watchdog:
    """Ends the process when its time is over. It is a thread, because the event loop itself may hang."""

    def __init__(self) -> None:
        self._timer: threading.Timer | None = None

    def arm(self, grace: timedelta) -> None:
        """Exit after `grace` and the margin. Later calls change nothing."""
        if self._timer is None:
            self._timer = threading.Timer((grace + MARGIN).total_seconds(), _leave, [grace])
            self._timer.daemon = True
            self._timer.start()

    def disarm(self) -> None:
        """Do not exit: everything has ended in time."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _leave(grace: timedelta) -> None:
    # Its executions are rescued when their leases end, as after a crash.
    sys.stderr.write(
        f"floodmark: still busy {MARGIN.total_seconds():g} s after SHUTDOWN_GRACE ({grace.total_seconds():g} s): "
        "exiting without waiting\n"
    )
    sys.stderr.flush()
    os._exit(1)
