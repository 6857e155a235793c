"""Waiting for the effect of other tasks or processes."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, overload

T = TypeVar("T")

# Looking is work too: the longer it takes, the less often we look.
_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS, _GROWTH = 0.01, 0.1, 1.2


@overload
async def eventually(check: Callable[[], Awaitable[T]], *, within: float = ...) -> T: ...
@overload
async def eventually(check: Callable[[], T], *, within: float = ...) -> T: ...
async def eventually(check: Callable[[], Any], *, within: float = 120.0) -> Any:
    """Call `check` until it returns a true value, and return that value. Fails with the last value.

    An `AssertionError` counts as not yet, so that a check may be an assertion.
    """
    deadline, pause = time.monotonic() + within, _PAUSE_SECONDS
    while True:
        seen: object
        try:
            seen = check()
            if isinstance(seen, Awaitable):
                seen = await seen
            if seen:
                return seen
        except AssertionError as error:
            seen = error
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within:g} s; last seen: {seen!r}")
        await asyncio.sleep(pause)
        pause = min(pause * _GROWTH, _LONGEST_PAUSE_SECONDS)
