"""The fastest available event loop, and the signals that end a process."""

import asyncio
import gc
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

_ENDING = (signal.SIGTERM, signal.SIGINT)

# New objects between two garbage collections: few enough that jobs that are due need not wait for long.
_NEW_OBJECTS = 5_000
_STARTED_SECONDS = 10.0
_SWITCH_SECONDS = 0.0001


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run to the end: on uvloop if it is installed, otherwise on asyncio's own loop."""
    # Imported objects live until the end: the garbage collector need not examine them.
    gc.freeze()
    # A page of posts has thousands of objects without a cycle: a collection after each 700 new objects, the default,
    # would take a tenth of the time and find nothing.
    gc.set_threshold(_NEW_OBJECTS)
    # The thread that writes to SQLite needs the interpreter after every row. With the default of 5 ms a busy event
    # loop, or a thread that renders a page, would delay it by that each time.
    sys.setswitchinterval(_SWITCH_SECONDS)
    try:
        from uvloop import new_event_loop  # noqa: PLC0415 - not on every platform
    except ImportError:
        asyncio.run(_run(work))
        return
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(_run(work))


async def _run(work: Coroutine[Any, Any, None]) -> None:
    # What a process creates while it starts also lives until the end. A collection of all of it would take 0.4 s.
    asyncio.get_running_loop().call_later(_STARTED_SECONDS, gc.freeze)
    await work


@contextmanager
def stopped_by_signals(
    stop: asyncio.Event, seconds: float | None = None, *, second: int = 1, stopping: Callable[[], object] | None = None
) -> Iterator[None]:
    """Set `stop` on SIGTERM, on Ctrl-C, or after this many seconds, within the block.

    A second signal ends the process at once with exit code `second`, which is safe. `stopping` is called before `stop`
    is set.
    """

    def begin() -> None:
        if stopping is not None:
            stopping()
        stop.set()

    def end() -> None:
        if stop.is_set():
            os._exit(second)
        begin()

    timer = None if seconds is None else asyncio.get_running_loop().call_later(seconds, begin)
    try:
        with ended_by_signals(end):
            yield
    finally:
        if timer is not None:
            timer.cancel()


@contextmanager
def ended_by_signals(callback: Callable[[], object]) -> Iterator[None]:
    """Call `callback` in the running loop on SIGTERM and on Ctrl-C, within the block."""
    loop = asyncio.get_running_loop()
    if threading.current_thread() is not threading.main_thread():
        # Python handles signals on the main thread only: they belong to the program that runs this on another one.
        yield
        return
    try:
        for number in _ENDING:
            loop.add_signal_handler(number, callback)
    except NotImplementedError:
        # Event loops on Windows have no signal handlers; the interpreter has.
        before = {number: signal.signal(number, _handler(loop, callback)) for number in _ENDING}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        return
    try:
        yield
    finally:
        for number in _ENDING:
            loop.remove_signal_handler(number)


def _handler(loop: asyncio.AbstractEventLoop, callback: Callable[[], object]) -> Callable[[int, object], None]:
    def handle(_number: int, _frame: object) -> None:
        loop.call_soon_threadsafe(callback)

    return handle
