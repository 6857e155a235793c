"""The fastest event loop there is on this machine."""

import asyncio
import gc
from collections.abc import Coroutine
from typing import Any


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run to the end: on uvloop where it installs, on asyncio's own loop elsewhere."""
    # What was imported stays to the end: looking through it again and again for garbage is a waste.
    gc.freeze()
    try:
        from uvloop import new_event_loop  # noqa: PLC0415 - not on every platform
    except ImportError:
        asyncio.run(work)
        return
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(work)
