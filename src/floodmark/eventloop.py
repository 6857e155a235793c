"""The fastest event loop there is on this machine."""

import asyncio
from collections.abc import Coroutine
from typing import Any


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run to the end: on uvloop where it installs, on asyncio's own loop elsewhere."""
    try:
        from uvloop import new_event_loop  # noqa: PLC0415 - not on every platform
    except ImportError:
        asyncio.run(work)
        return
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(work)
