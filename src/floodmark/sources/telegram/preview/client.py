"""Requests pages of the web preview: one at a time for all processes, with pauses, and as robots.txt allows.

Table: `leases`, whose row `telegram preview: <host>` is the turn of the next request.
"""

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING
from uuid import uuid4

from floodmark.coordination.leases.sql import SqlLeases
from floodmark.errors import Gone, Permanent, SlowDown, TargetDenied, Transient
from floodmark.extensions.services import Services
from floodmark.outbound.caller import CallKey
from floodmark.outbound.client import REDIRECTED, HttpAnswer, ResponseLimits
from floodmark.sources.web.robots_cache import RobotsCache

if TYPE_CHECKING:
    from .pages import PreviewPage

_LIMITS = ResponseLimits(body_bytes=5 * 1024 * 1024, unpacked_bytes=10 * 1024 * 1024, total=timedelta(seconds=30))
# The turn of a process that was killed during a request ends after this time.
_LONGEST_REQUEST = timedelta(seconds=60)
# A run waits this long for its turn in its slot; then the execution waits without one.
_PATIENCE_SECONDS, _LOOK_SECONDS = 20.0, 0.25
# After an answer that is no preview: the site has likely begun to refuse us.
_STRANGE_ANSWER = timedelta(minutes=30)
_USE_AN_ACCOUNT = "Read it with an account: floodmark edit JOB --param preview=false, and floodmark accounts add"


class PreviewClient:
    """Requests pages of `TELEGRAM_PREVIEW_URL`. One per process."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._base = services.settings.telegram_preview_url.rstrip("/")
        self._robots = RobotsCache()
        self._leases = SqlLeases(services.database, services.clock)

    async def page(self, name: str, before: int | None = None) -> "PreviewPage":
        """Return the newest posts of a channel, or the newest ones with an id below `before`.

        `Gone` if the name does not exist, `TargetDenied` if it has no preview, `SlowDown` if the site asks to wait or
        its answer is no preview.
        """
        from .pages import parse_page  # noqa: PLC0415 - slow to import

        url = f"{self._base}/s/{name}" + ("" if before is None else f"?before={before}")
        answer = await self._get(url)
        if answer.status in REDIRECTED:
            raise await self._explain_redirect(name)
        if answer.status in (404, 410):
            raise Gone(f"@{name} does not exist", hint="Check it in Telegram; if it is gone, remove its job")
        if answer.status != 200:
            raise Transient(f"the preview of @{name} answers with status {answer.status}")
        html = answer.body.decode("utf-8", "replace")
        try:
            found = parse_page(html)
        except ValueError as error:
            raise Permanent(f"the preview of @{name} cannot be read: {error}") from error
        if found is None:
            raise await self._stop(url)
        return found

    async def _get(self, url: str) -> HttpAnswer:
        delay = self._services.settings.telegram_preview_delay
        delay = max(delay, await self._require_allowed(url))
        return await self._request(url, delay)

    async def _require_allowed(self, url: str) -> timedelta:
        """Return the delay that robots.txt asks for; `TargetDenied` if it forbids the page."""

        async def get(address: str) -> HttpAnswer:
            return await self._request(address, self._services.settings.telegram_preview_delay, follow=True)

        from floodmark.sources.web.urls import origin_of  # noqa: PLC0415 - slow to import

        rules = await self._robots.read(self._services, get, origin_of(url))
        if not rules.allows(url):
            raise TargetDenied(f"robots.txt of {self._base} does not allow previews", hint=_USE_AN_ACCOUNT)
        return rules.delay

    async def _request(self, url: str, delay: timedelta, *, follow: bool = False) -> HttpAnswer:
        """Send one request in its turn: no other process sends one before it has ended and the delay has passed."""
        turn, holder = f"telegram preview: {self._base}", f"{self._services.process}:{uuid4().hex}"
        await self._wait_for_turn(turn, holder)
        try:
            return await self._services.http.get(
                url, follow=follow, concurrency=1, delay=timedelta(), limits=_LIMITS, headers={"Accept-Language": "en"}
            )
        finally:
            if delay:
                await self._leases.acquire(turn, holder=holder, ttl=delay)
            else:
                await self._leases.release(turn, holder=holder)

    async def _wait_for_turn(self, turn: str, holder: str) -> None:
        waited = 0.0
        while not await self._leases.acquire(turn, holder=holder, ttl=_LONGEST_REQUEST):
            if waited >= _PATIENCE_SECONDS:
                raise SlowDown(
                    timedelta(seconds=_PATIENCE_SECONDS), None, "waits for its turn: other jobs read previews"
                )
            await asyncio.sleep(_LOOK_SECONDS)
            waited += _LOOK_SECONDS

    async def _explain_redirect(self, name: str) -> Exception:
        """Return the error for a name whose preview redirects, as its page describes it."""
        from .pages import describe_landing  # noqa: PLC0415 - slow to import

        answer = await self._get(f"{self._base}/{name}")
        what = describe_landing(answer.body.decode("utf-8", "replace")) if answer.status == 200 else "other"
        if what == "missing":
            return Gone(f"@{name} does not exist", hint="Check it in Telegram; if it is gone, remove its job")
        if what == "group":
            return TargetDenied(f"@{name} is a group: only channels have a preview", hint=_USE_AN_ACCOUNT)
        return TargetDenied(f"@{name} has no preview", hint=_USE_AN_ACCOUNT)

    async def _stop(self, url: str) -> Exception:
        """Return the error for an answer that is no preview, after no process requests previews for a while."""
        from yarl import URL  # noqa: PLC0415 - slow to import

        host = URL(url).authority
        reason = f"{host} answers with a page that is no preview"

        async def refuse() -> None:
            raise SlowDown(_STRANGE_ANSWER, f"web:{host}", reason)

        try:
            await self._services.caller.call(CallKey(scope=f"web:{host}", method="get", target=host), refuse)
        except SlowDown as told:
            return told
        raise AssertionError
