"""The source `web`: sites, page by page. Light to import: what takes pages apart comes with a run."""

import asyncio
import re
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from floodmark.errors import InvalidInput, Permanent, Transient
from floodmark.extensions.services import Services
from floodmark.model.batch import Batch, Watermark
from floodmark.model.hosts import allowed_hosts
from floodmark.model.spec import JobSpec
from floodmark.outbound.client import HttpAnswer, ResponseLimits, TooLarge
from floodmark.outbound.guard import Guard
from floodmark.settings import Settings
from floodmark.sources.port import Context, Target

from .marks import mark_of
from .params import NAMES, PATIENCE, WebParams, parse_params
from .targets import completed
from .urls import Scope, origin_of, start_of

if TYPE_CHECKING:
    from .robots import Robots
    from .rules import RobotsRules

# A robots.txt may be half a megabyte by its standard; we bear a little more.
ROBOTS_LIMITS = ResponseLimits(body_bytes=1024 * 1024, unpacked_bytes=1024 * 1024, total=timedelta(seconds=30))
# How many hosts are remembered, and for how long at most (RFC 9309, section 2.4).
_REMEMBERED, _LONGEST_TTL = 1000, timedelta(days=1)
_MAX_AGE = re.compile(r"\bmax-age\s*=\s*\"?(\d{1,9})", re.IGNORECASE | re.ASCII)


class WebSource:
    """Crawls sites. Without services it can only check jobs."""

    kind = "web"

    def __init__(self, settings: Settings) -> None:
        self._guard = Guard(allowed_hosts(settings.http_allow_hosts))
        self._services: Services | None = None
        self._held: OrderedDict[str, tuple[datetime, Robots]] = OrderedDict()
        self._asking: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def use_services(self, services: Services) -> None:
        """Read pages with the polite HTTP client of the process."""
        self._services = services

    def check(self, target: str, params: Mapping[str, Any]) -> None:
        """Raise `InvalidInput` unless `target` can be the address of a page and `params` make sense."""
        start_of(target)
        parse_params(params)

    def param_names(self, target: str) -> frozenset[str]:
        """What can be said about a crawl."""
        return NAMES

    def complete(self, spec: JobSpec) -> JobSpec:
        """A job with its address in its one form, which is public or allowed by name."""
        return completed(spec, self._guard)

    def collect(self, target: Target, since: Watermark | None, context: Context) -> AsyncIterator[Batch]:
        """Pages that are new, changed or gone, a few at a time."""
        if self._services is None:
            raise InvalidInput("this process can only check sites", hint="Start floodmark up, or a worker")
        try:
            start, params = start_of(target.name), parse_params(target.params)
            scope = Scope(start, include=params.include, exclude=params.exclude)
        except InvalidInput as error:
            raise Permanent(str(error), hint=error.hint) from error
        return self._batches(self._services, target, since, context, scope=scope, params=params)

    async def _batches(
        self,
        services: Services,
        target: Target,
        since: Watermark | None,
        context: Context,
        *,
        scope: Scope,
        params: WebParams,
    ) -> AsyncGenerator[Batch, None]:
        from .crawl import Crawl  # noqa: PLC0415 - takes a while to import, and not everyone crawls

        rules = await self._rules(services, origin_of(scope.start), params) if params.obeys_robots else None
        crawl = Crawl(services, target, context, params=params, scope=scope, mark=mark_of(since), rules=rules)
        async with aclosing(crawl.batches()) as batches:
            async for batch in batches:
                yield batch

    async def _rules(self, services: Services, origin: str, params: WebParams) -> "RobotsRules":
        from .rules import RobotsRules  # noqa: PLC0415 - see above

        async def get(url: str) -> HttpAnswer:
            delay = params.delay if params.delay is None or params.delay <= PATIENCE else None
            return await services.http.get(url, limits=ROBOTS_LIMITS, concurrency=params.concurrency, delay=delay)

        async def read(origin: str) -> "Robots":
            return await self._robots(services, get, origin)

        return RobotsRules(read, origin, await read(origin))

    async def _robots(self, services: Services, get: Callable[[str], Awaitable[HttpAnswer]], origin: str) -> "Robots":
        """The rules of an origin, asked for once as long as they are valid, by however many crawls."""
        lock = self._asking.setdefault(origin, asyncio.Lock())
        async with lock:
            held = self._held.get(origin)
            if held is not None and services.clock.now() < held[0]:
                return held[1]
            ttl = services.settings.web_robots_ttl

            async def get_and_look(url: str) -> HttpAnswer:
                nonlocal ttl
                answer = await get(url)
                ttl = max(ttl, _max_age(answer))
                return answer

            # robots.txt speaks to this name.
            agent = services.settings.http_user_agent or "floodmark"
            found = await robots_of(get_and_look, origin, agent)
            self._held[origin] = services.clock.now() + min(ttl, _LONGEST_TTL), found
            self._held.move_to_end(origin)
            while len(self._held) > _REMEMBERED:
                self._held.popitem(last=False)
            return found


def _max_age(answer: HttpAnswer) -> timedelta:
    said = _MAX_AGE.search(answer.headers.get("Cache-Control", ""))
    return timedelta(seconds=int(said[1])) if said else timedelta()


async def robots_of(get: Callable[[str], Awaitable[HttpAnswer]], origin: str, agent: str) -> "Robots":
    """The rules of a site. One that has none allows everything; one that cannot say allows nothing, for now."""
    from .charsets import decoded  # noqa: PLC0415 - see above
    from .robots import Robots  # noqa: PLC0415

    try:
        answer = await get(f"{origin}/robots.txt")
    except TooLarge as error:
        raise Permanent(
            f"{origin}/robots.txt cannot be read: {error}",
            hint="if the site is yours, add it with --robots ignore",
        ) from error
    if answer.status >= 500:
        raise Transient(f"{origin}/robots.txt answers with status {answer.status}")
    # A long one takes seconds, in which others have their turn.
    return await asyncio.to_thread(Robots, decoded(answer.body) if answer.status == 200 else "", agent)
