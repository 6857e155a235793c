"""Pushes metrics to a Pushgateway, for processes that Prometheus cannot reach. A failed push never blocks the work.

A long-running process has the group `job="floodmark"`, `instance=<name of the process>`. Every push replaces it, and an
orderly shutdown deletes it. Short runs share the group `job="floodmark-fetch"`, `instance=<HOSTNAME>`: it is pushed
once more at the end and stays until the next run on that host replaces it.
"""

import asyncio
import time
from base64 import b64encode, urlsafe_b64encode
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from urllib.parse import quote, unquote, urlsplit

from floodmark.coordination.service import Service, run_services
from floodmark.errors import InvalidInput, SourceError
from floodmark.model.hosts import allowed_hosts, resolved_hosts
from floodmark.observability.events import Events, MetricsPushed
from floodmark.settings import Settings
from floodmark.version import __version__

from .client import Http, ResponseLimits
from .guard import Guard

JOB, SHORT_JOB = "floodmark", "floodmark-fetch"
# Every version of the Pushgateway accepts this format.
_MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_LIMITS = ResponseLimits(body_bytes=64 * 1024, unpacked_bytes=64 * 1024, total=timedelta(seconds=10))
_FIRST_PAUSE = timedelta(seconds=1)
# For the last push and for deleting the group at shutdown.
_SHUTDOWN_SECONDS = 3.0
_SHOWN = 200


class Gateway:
    """The group of one process at a Pushgateway."""

    def __init__(self, url: str, instance: str, http: Http, *, job: str = JOB) -> None:
        parts = urlsplit(url)
        self.host = parts.hostname or ""
        base = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}"
        self._url, self._http = f"{base}/metrics/job/{job}/{_format_label('instance', instance)}", http
        self._headers = {"Content-Type": _MEDIA_TYPE} | _authorization(parts.username, parts.password)

    async def put(self, text: bytes) -> None:
        """Replace the group; `SourceError` if that fails."""
        await self._send("PUT", text)

    async def delete(self) -> None:
        """Delete the group; `SourceError` if that fails."""
        await self._send("DELETE")

    async def _send(self, method: str, body: bytes | None = None) -> None:
        answer = await self._http.send(method, self._url, body=body, headers=self._headers, limits=_LIMITS)
        if answer.status // 100 != 2:
            text = " ".join(answer.body.decode(errors="replace").split())[:_SHOWN]
            raise SourceError(f"{self.host} answers with status {answer.status}{text and ': '}{text}")


class Pusher:
    """Pushes the output of `render`. A failed push is reported and retried."""

    def __init__(self, gateway: Gateway, render: Callable[[], bytes], events: Events) -> None:
        self._gateway, self._render, self._events = gateway, render, events
        self._failures = 0

    async def step(self) -> timedelta | None:
        """Push once; after a failure return the time until the next attempt, which doubles each time."""
        try:
            # In a thread: rendering thousands of series would delay lease renewals.
            await self._gateway.put(await asyncio.to_thread(self._render))
        except SourceError as error:
            self._events.emit(MetricsPushed(time.time(), str(error)))
            self._failures += 1
            return _FIRST_PAUSE * (1 << min(self._failures - 1, 10))
        self._events.emit(MetricsPushed(time.time()))
        self._failures = 0
        return None

    async def leave(self) -> None:
        """Delete the group, so that no stale values remain."""
        try:
            async with asyncio.timeout(_SHUTDOWN_SECONDS):
                await self._gateway.delete()
        except (SourceError, TimeoutError) as error:
            why = str(error) or "it took too long"
            self._events.emit(MetricsPushed(time.time(), f"the group was not deleted: {why}"))

    async def push_last(self) -> None:
        """Push once more, for a group that stays; give up after a few seconds."""
        try:
            async with asyncio.timeout(_SHUTDOWN_SECONDS):
                await self.step()
        except TimeoutError:
            self._events.emit(MetricsPushed(time.time(), "the last values were not pushed: it took too long"))


def push_metrics(
    settings: Settings, instance: str, render: Callable[[], bytes], events: Events
) -> AbstractAsyncContextManager[None]:
    """Push metrics, if METRICS_MODE says so, until the block ends; then delete the group."""
    return _push(settings, (JOB, instance), render, events, Pusher.leave)


def push_short_run(
    settings: Settings, render: Callable[[], bytes], events: Events
) -> AbstractAsyncContextManager[None]:
    """Push metrics, if METRICS_MODE says so, until the block ends and once more then.

    The group stays, so that Prometheus can scrape the last values of a run that was shorter than its interval. Its
    name contains the host, not the process, so that runs do not add more and more groups.
    """
    return _push(settings, (SHORT_JOB, settings.hostname), render, events, Pusher.push_last)


@asynccontextmanager
async def _push(
    settings: Settings,
    group: tuple[str, str],
    render: Callable[[], bytes],
    events: Events,
    end: Callable[[Pusher], Awaitable[None]],
) -> AsyncIterator[None]:
    if not is_pushed(settings):
        yield
        return
    url, (job, instance) = require_gateway(settings), group
    async with _http(settings, url) as http:
        pusher = Pusher(Gateway(url, instance, http, job=job), render, events)
        try:
            async with run_services([Service("push", pusher.step, settings.metrics_push_interval)], events):
                yield
        finally:
            await end(pusher)


def is_pushed(settings: Settings) -> bool:
    """Return whether metrics are pushed."""
    return settings.metrics_mode in ("push", "both")


def is_scraped(settings: Settings) -> bool:
    """Return whether /metrics is served."""
    return settings.metrics_mode in ("scrape", "both")


def require_gateway(settings: Settings) -> str:
    """Return the Pushgateway's URL; `InvalidInput` if it is missing or invalid."""
    if settings.pushgateway_url is None:
        raise InvalidInput(
            f"METRICS_MODE is {settings.metrics_mode}, but PUSHGATEWAY_URL is not set",
            hint="Set PUSHGATEWAY_URL=http://pushgateway:9091, or METRICS_MODE=scrape",
        )
    try:
        allowed_hosts(urlsplit(settings.pushgateway_url).hostname or "")
    except ValueError as error:
        raise InvalidInput(
            f"PUSHGATEWAY_URL has no valid host: {error}", hint="Write it as in http://pushgateway:9091"
        ) from None
    return settings.pushgateway_url


def _http(settings: Settings, url: str) -> Http:
    # The operator chose this host, so it may be private; no other host may be.
    host = urlsplit(url).hostname or ""
    return Http(
        Guard(allowed_hosts(host)), user_agent=f"floodmark/{__version__}", resolve=resolved_hosts(settings.http_resolve)
    )


def _format_label(label: str, value: str) -> str:
    # The Pushgateway needs a value with a slash in base64.
    if "/" in value:
        return f"{label}@base64/{urlsafe_b64encode(value.encode()).decode()}"
    return f"{label}/{quote(value, safe='')}"


def _authorization(user: str | None, password: str | None) -> dict[str, str]:
    if user is None:
        return {}
    pair = f"{unquote(user)}:{unquote(password or '')}"
    return {"Authorization": f"Basic {b64encode(pair.encode()).decode()}"}
