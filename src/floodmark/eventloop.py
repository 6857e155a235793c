"""The fastest event loop there is on this machine."""

import asyncio
import gc
from collections.abc import Coroutine
from typing import Any

# So many more objects than before are worth a look for garbage: a few megabytes.
_NEW_OBJECTS = 20_000


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run to the end: on uvloop where it installs, on asyncio's own loop elsewhere."""
    # What was imported stays to the end: looking through it again and again for garbage is a waste.
    gc.freeze()
    # A page of posts is thousands of objects without a cycle among them: looking for one after each 700 new objects,
    # as is usual, takes a tenth of the time and finds nothing.
    gc.set_threshold(_NEW_OBJECTS)
    try:
        from uvloop import new_event_loop  # noqa: PLC0415 - not on every platform
    except ImportError:
        asyncio.run(work)
        return
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(work)
