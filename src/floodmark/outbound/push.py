"""Metrics to a Pushgateway, where Prometheus cannot reach the processes. Beside the work, never in its way.

`job="floodmark"`, `instance=<name of the process>` is the group of a process that stays. It is replaced by every push,
and deleted when the process leaves in good order. `job="floodmark-fetch"`, `instance=<HOSTNAME>` is the group of short
runs: it is pushed once more at the end and stays, and the next run on that host replaces it.
"""

import asyncio
import time
from base64 import b64encode, urlsafe_b64encode
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
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
# What a Pushgateway of any age reads.
_MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_LIMITS = ResponseLimits(body_bytes=64 * 1024, unpacked_bytes=64 * 1024, total=timedelta(seconds=10))
_FIRST_PAUSE = timedelta(seconds=1)
# For a push that is under way when we leave, and for deleting the group.
_LAST_WORDS_SECONDS = 3.0
_SHOWN = 200


class Gateway:
    """Where the metrics of one process go."""

    def __init__(self, url: str, instance: str, http: Http, *, job: str = JOB) -> None:
        told = urlsplit(url)
        self.host = told.hostname or ""
        place = f"{told.scheme}://{told.netloc.rpartition('@')[2]}{told.path.rstrip('/')}"
        self._url, self._http = f"{place}/metrics/job/{job}/{_grouped('instance', instance)}", http
        self._headers = {"Content-Type": _MEDIA_TYPE} | _authorization(told.username, told.password)

    async def put(self, text: bytes) -> None:
        """Replace the group. `SourceError` says why it could not be done."""
        answer = await self._http.put(self._url, body=text, headers=self._headers, limits=_LIMITS)
        _require_ok(answer.status, answer.body, self.host)

    async def delete(self) -> None:
        """Delete the group."""
        answer = await self._http.delete(self._url, headers=self._headers, limits=_LIMITS)
        _require_ok(answer.status, answer.body, self.host)


class Pusher:
    """Pushes what `render` writes. A failure costs nothing but the push: it is told, and tried again."""

    def __init__(self, gateway: Gateway, render: Callable[[], bytes], events: Events) -> None:
        self._gateway, self._render, self._events = gateway, render, events
        self._failures = 0

    async def step(self) -> timedelta | None:
        """One push; after a failure the next one is asked for soon, and later each time."""
        try:
            # In a thread: thousands of series take milliseconds, in which leases would not be renewed.
            await self._gateway.put(await asyncio.to_thread(self._render))
        except SourceError as error:
            self._events.emit(MetricsPushed(time.time(), str(error)))
            self._failures += 1
            return _FIRST_PAUSE * (1 << min(self._failures - 1, 10))
        self._events.emit(MetricsPushed(time.time()))
        self._failures = 0
        return None

    async def leave(self) -> None:
        """Delete what was pushed, so that nobody takes it for the present."""
        try:
            async with asyncio.timeout(_LAST_WORDS_SECONDS):
                await self._gateway.delete()
        except (SourceError, TimeoutError) as error:
            why = str(error) or "it took too long"
            self._events.emit(MetricsPushed(time.time(), f"the group was not deleted: {why}"))

    async def push_last(self) -> None:
        """Push once more, for a group that stays; not for long if the gateway is away."""
        try:
            async with asyncio.timeout(_LAST_WORDS_SECONDS):
                await self.step()
        except TimeoutError:
            self._events.emit(MetricsPushed(time.time(), "the last values were not pushed: it took too long"))


@asynccontextmanager
async def pushing(
    settings: Settings, instance: str, render: Callable[[], bytes], events: Events
) -> AsyncIterator[None]:
    """Push as METRICS_MODE says, until the block ends; then delete what was pushed."""
    async with _pushing(settings, (JOB, instance), render, events, Pusher.leave):
        yield


@asynccontextmanager
async def pushing_short_run(settings: Settings, render: Callable[[], bytes], events: Events) -> AsyncIterator[None]:
    """Push as METRICS_MODE says, until the block ends and once more then.

    The group stays, so that Prometheus can scrape the last values of a run that was shorter than its interval. It is
    named after the host and not after the process: groups that stay must not become more with every run.
    """
    async with _pushing(settings, (SHORT_JOB, settings.hostname), render, events, Pusher.push_last):
        yield


@asynccontextmanager
async def _pushing(
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
    """Whether metrics are pushed at all."""
    return settings.metrics_mode in ("push", "both")


def is_scraped(settings: Settings) -> bool:
    """Whether there is a /metrics."""
    return settings.metrics_mode in ("scrape", "both")


def require_gateway(settings: Settings) -> str:
    """The address to push to, or `InvalidInput`."""
    if settings.pushgateway_url is None:
        raise InvalidInput(
            f"METRICS_MODE is {settings.metrics_mode}, but nobody said where to push to",
            hint="Set PUSHGATEWAY_URL=http://pushgateway:9091, or METRICS_MODE=scrape",
        )
    try:
        allowed_hosts(urlsplit(settings.pushgateway_url).hostname or "")
    except ValueError as error:
        raise InvalidInput(
            f"PUSHGATEWAY_URL has no good host: {error}", hint="Write it as in http://pushgateway:9091"
        ) from None
    return settings.pushgateway_url


def _http(settings: Settings, url: str) -> Http:
    """The operator chose this host, so it may be private; no other may, and it is not asked through a redirect."""
    host = urlsplit(url).hostname or ""
    return Http(
        Guard(allowed_hosts(host)), user_agent=f"floodmark/{__version__}", resolve=resolved_hosts(settings.http_resolve)
    )


def _grouped(label: str, value: str) -> str:
    """A label of the group as part of the path. What has a slash in it has to be wrapped up."""
    if "/" in value:
        return f"{label}@base64/{urlsafe_b64encode(value.encode()).decode()}"
    return f"{label}/{quote(value, safe='')}"


def _authorization(user: str | None, password: str | None) -> dict[str, str]:
    if user is None:
        return {}
    pair = f"{unquote(user)}:{unquote(password or '')}"
    return {"Authorization": f"Basic {b64encode(pair.encode()).decode()}"}


def _require_ok(status: int, body: bytes, host: str) -> None:
    if status // 100 != 2:
        said = " ".join(body.decode(errors="replace").split())[:_SHOWN]
        raise SourceError(f"{host} answers with status {status}{said and ': '}{said}")
