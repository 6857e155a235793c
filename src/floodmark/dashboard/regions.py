"""Large parts of a page that change rarely: what an open page already has is not sent again.

Such a part is an element with `data-live` and `data-version`. A page that asks for itself again names the versions that
it has, and the server leaves those parts out; the script keeps what is not in the answer.
"""

import asyncio
import zlib
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from floodmark.api.access import Recent

from .view import View

HEADER = "x-floodmark-have"

T = TypeVar("T")

# What the leader counts every few seconds need not be read every second.
_SECONDS = 4.0
_MOST = 200
_LONGEST_HEADER = 4000


def version_of(*parts: object) -> str:
    """Return a short text that changes with the parts."""
    return f"{zlib.crc32('|'.join(map(str, parts)).encode(errors='replace')):08x}"


def has_region(view: View, region: str, version: str) -> bool:
    """Return whether the page that asks again has this version of a part."""
    headers = view.request.headers
    had = headers.get(HEADER, "")[:_LONGEST_HEADER] if "x-floodmark-live" in headers else ""
    return f"{region}={version}" in had.split()


async def read_rarely(view: View, key: str, read: Callable[[], Awaitable[T]]) -> T:
    """Return what `read` returned within the last seconds for a caller with the same role."""
    state = view.request.app.state
    if not hasattr(state, "dashboard_rarely"):
        state.dashboard_rarely = Recent[Any](asyncio.get_running_loop().time, _SECONDS, _MOST)
    known: Recent[T] = state.dashboard_rarely
    found = known.get(f"{view.role} {key}")
    return known.put(f"{view.role} {key}", await read()) if found is None else found
