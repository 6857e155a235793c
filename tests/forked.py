"""`floodmark` commands in processes that are forked instead of started anew.

Importing Floodmark takes a second of CPU, and the suite starts it dozens of times. So one process imports it once and
forks: each child is a process of its own, in its own folder and environment, that can be sent any signal. How a command
starts from nothing is tested with `CommandLine.real` and `CommandLine.start`.
"""

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path

from chaos.process import IMPORTED_LATER


class ForkedCommand:
    """A command that runs, with the methods of `subprocess.Popen` that tests use."""

    def __init__(self, command: Sequence[str], folder: Path, environ: Mapping[str, str], log: Path) -> None:
        self._command = ("floodmark", *command)
        self._process: ForkServerProcess = fork_context().Process(
            target=_become, args=(self._command, folder, dict(environ), log)
        )
        self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        return self._process.exitcode

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired(self._command, timeout or 0)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.returncode is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


@cache
def fork_context() -> ForkServerContext:
    """Return how to make processes from one that has imported everything."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["floodmark.cli", "floodmark.demo.demo", *IMPORTED_LATER])
    return context


def _become(command: Sequence[str], folder: Path, environ: Mapping[str, str], log: Path) -> None:
    """Do what `python -m floodmark` does; its result is our exit code."""
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environ)
    target = os.open(log, os.O_WRONLY | os.O_APPEND)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(target, stream.fileno())
        stream.reconfigure(line_buffering=True, write_through=True)  # type: ignore[union-attr]
    sys.path.insert(0, "")
    sys.argv = list(command)
    from floodmark.cli import main

    main()
