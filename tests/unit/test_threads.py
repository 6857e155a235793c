"""Threads for blocking functions: bounded, and no reason for a process to stay."""

import subprocess
import sys
import threading
import time

import pytest

from floodmark.process.threads import DaemonThreads


@pytest.mark.spec("E7", "G6")
def test_no_more_run_at_once_than_there_are_threads() -> None:
    threads, running, most, lock = DaemonThreads(3), 0, 0, threading.Lock()
    gate = threading.Barrier(3)

    def work() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        gate.wait(120)
        with lock:
            running -= 1

    for future in [threads.submit(work) for _ in range(9)]:
        future.result(120)
    assert most == 3


def test_what_a_function_raises_reaches_whoever_waits() -> None:
    def broken() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        DaemonThreads(1).submit(broken).result(120)


@pytest.mark.spec("G7")
def test_a_function_that_blocks_does_not_keep_the_process() -> None:
    script = (
        "import time\n"
        "from floodmark.process.threads import DaemonThreads\n"
        "DaemonThreads(1).submit(time.sleep, 60)\n"
        "time.sleep(0.2)\n"
    )
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", script], check=True, timeout=50)
    assert time.monotonic() - began < 40
