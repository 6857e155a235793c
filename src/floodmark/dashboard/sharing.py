"""What equal requests share for a second, so that many open dashboards cost little more than one."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request

from floodmark.api.addresses import route_path
from floodmark.api.turnstile import arrival_of

from .regions import HEADER
from .view import THEME, View

SHARED_SECONDS = 1.0
_MOST_PAGES = 50


class SharedPage:
    """The values of a page, which callers with the same role share, and the texts that were made of them.

    `began` is when reading began, and `version` that of the live feed at that time.
    """

    def __init__(self, values: asyncio.Future[Any], *, began: float, version: int) -> None:
        self._values, self._began, self._version = values, began, version
        self._texts: dict[str, asyncio.Future[str]] = {}

    def is_good_for(self, arrived: float, version: int) -> bool:
        """Return whether a request may get this: a page that has heard of a change must not see what was before it."""
        return (self._version == version or self._began >= arrived) and not _has_failed(self._values)

    def is_older_than(self, moment: float) -> bool:
        """Return whether reading began before this moment."""
        return self._began < moment

    async def values(self) -> Any:
        """Return the values of the page."""
        # Shielded: others may wait for the same result when this caller goes away.
        return await asyncio.shield(self._values)

    async def text(self, view: View, make: Callable[[], Awaitable[str]]) -> str:
        """Return the text of the page, which callers share who see the same person, time zone and theme."""
        headers = [view.request.headers.get(name) for name in ("x-floodmark-live", HEADER)]
        theme = view.request.cookies.get(THEME)
        key = repr((headers, view.visitor.who, view.session_id, view.needs_token, str(view.zone), theme))
        known = self._texts.get(key)
        if known is None or _has_failed(known):
            known = self._texts[key] = asyncio.ensure_future(make())
        return await asyncio.shield(known)


class Shared:
    """The pages that are being made, or were begun within the last second."""

    def __init__(self) -> None:
        self._pages: dict[str, SharedPage] = {}

    @classmethod
    def of(cls, request: Request) -> "Shared":
        """Return what the requests of this application share."""
        state = request.app.state
        if not hasattr(state, "dashboard_shared"):
            state.dashboard_shared = cls()
        found: Shared = state.dashboard_shared
        return found

    def page(self, view: View, build: Callable[[], Awaitable[Any]]) -> SharedPage:
        """Return the page of this request, and begin to build it if there is none."""
        scope, version, now = view.request.scope, view.request.app.state.live.version, _now()
        self._drop_old(now - SHARED_SECONDS)
        # With the prefix: a page has links.
        key = repr((view.role, view.prefix, route_path(scope), scope["query_string"]))
        known = self._pages.get(key)
        if known is None or not known.is_good_for(arrival_of(scope, now), version):
            known = SharedPage(asyncio.ensure_future(build()), began=now, version=version)
            self._pages[key] = known
        return known

    def clear(self) -> None:
        """Make every page again: an action has changed something."""
        self._pages.clear()

    def _drop_old(self, moment: float) -> None:
        recent = [(key, page) for key, page in self._pages.items() if not page.is_older_than(moment)]
        self._pages = dict(recent[-_MOST_PAGES:])


def _now() -> float:
    return asyncio.get_running_loop().time()


def _has_failed(future: asyncio.Future[Any]) -> bool:
    return future.done() and (future.cancelled() or future.exception() is not None)
