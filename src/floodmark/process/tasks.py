"""End tasks for certain."""

import asyncio
from typing import Any

# A library may lose a cancellation: on Python 3.11 `asyncio.wait_for` does when its result comes at the same moment.
_AGAIN_SECONDS = 1.0


async def end_tasks(*tasks: "asyncio.Task[Any]") -> None:
    """Cancel tasks until all of them have ended. Their errors are not raised."""
    left = {task for task in tasks if not task.done()}
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=_AGAIN_SECONDS)
    for task in tasks:
        if not task.cancelled():
            # Marks the error as retrieved: asyncio would log it otherwise.
            task.exception()
