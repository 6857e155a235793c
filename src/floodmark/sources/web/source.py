"""The source `web`: crawls sites page by page. Fast to import: parsers are loaded with the first run."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from floodmark.errors import InvalidInput, Permanent
from floodmark.extensions.services import Services
from floodmark.model.batch import Batch, Watermark
from floodmark.model.completeness import GapKind
from floodmark.outbound.client import HttpAnswer, ResponseLimits
from floodmark.settings import Settings
from floodmark.sources.port import Context, Target

from .extraction.plan import require_packages
from .params import FOLDER_HINT, NAMES, NO_FOLDER, PATIENCE, WebParams, parse_params
from .robots_cache import RobotsCache
from .targets import UrlSource
from .urls import Scope, origin_of, parse_start_url
from .watermark import parse_mark

if TYPE_CHECKING:
    from floodmark.sources.cookies.pool import Pool

    from .extraction.pool import ExtractionPool
    from .rendering import Rendering
    from .robots import Robots
    from .robots_by_origin import RobotsRules

# RFC 9309 requires 500 KB; this is a little more.
ROBOTS_LIMITS = ResponseLimits(body_bytes=1024 * 1024, unpacked_bytes=1024 * 1024, total=timedelta(seconds=30))


class WebSource(UrlSource):
    """Crawls sites."""

    kind = "web"
    fills: frozenset[GapKind] = frozenset({"refused"})

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._robots = RobotsCache()
        self._pool: ExtractionPool | None = None
        self._browsers: Pool | None = None

    async def __aenter__(self) -> "WebSource":
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._browsers is not None:
            await self._browsers.close()

    def check(self, target: str, params: Mapping[str, Any]) -> None:
        """Raise `InvalidInput` unless `target` is the URL of a page and `params` are valid."""
        parse_start_url(target)
        parse_params(params)

    def param_names(self, target: str) -> frozenset[str]:
        """Return the parameters of a crawl."""
        return NAMES

    def collect(self, target: Target, since: Watermark | None, context: Context) -> AsyncIterator[Batch]:
        """Yield pages that are new, changed or gone, a few at a time."""
        services = self._require_services()
        try:
            start, params = parse_start_url(target.name), parse_params(target.params)
            scope = Scope(start, include=params.include, exclude=params.exclude, subdomains=params.subdomains)
        except InvalidInput as error:
            raise Permanent(str(error), hint=error.hint) from error
        if params.login_url and not scope.is_inside(params.login_url):
            raise Permanent(f"{params.login_url} is not a page of {start}", hint="log in at a page of the same site")
        require_packages(params.packages)
        if params.needs_folder and services.settings.artifacts_dir is None:
            raise Permanent(NO_FOLDER, hint=FOLDER_HINT)
        if params.render and services.settings.web_proxy:
            raise Permanent("a browser cannot use WEB_PROXY", hint="leave out --render, or run it on another worker")
        return self._run(services, target, since, context, scope=scope, params=params)

    async def _run(
        self,
        services: Services,
        target: Target,
        since: Watermark | None,
        context: Context,
        *,
        scope: Scope,
        params: WebParams,
    ) -> AsyncGenerator[Batch, None]:
        from .run_services import prepare_services  # noqa: PLC0415 - slow to import

        async with (
            prepare_services(services, params.secrets, params.proxy) as prepared,
            aclosing(self._batches(prepared, target, since, context, scope=scope, params=params)) as batches,
        ):
            async for batch in batches:
                yield batch

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
        from .archive.evidence import open_evidence  # noqa: PLC0415 - slow to import
        from .crawl import Crawl  # noqa: PLC0415
        from .extraction.pool import ExtractionPool  # noqa: PLC0415
        from .visiting import PageVisitor  # noqa: PLC0415

        if self._pool is None:
            self._pool = ExtractionPool(services.settings.web_extract_processes)
        rules = await self._read_rules(services, origin_of(scope.start), params) if params.obeys_robots else None
        visitor = PageVisitor(
            services,
            params,
            scope,
            pool=self._pool,
            rendering=self._open_rendering(services, target, params) if params.render else None,
            evidence=open_evidence(
                services.settings.artifacts_dir,
                target.stream,
                context.execution_id,
                warc=params.warc,
                raw=params.raw,
                most_bytes=services.settings.web_warc_bytes,
            ),
        )
        crawl = Crawl(
            services,
            target,
            context,
            params=params,
            scope=scope,
            mark=parse_mark(since),
            rules=rules,
            visitor=visitor,
        )
        async with self._pool.using(), aclosing(crawl.batches()) as batches:
            async for batch in batches:
                yield batch

    def _open_rendering(self, services: Services, target: Target, params: WebParams) -> "Rendering":
        from .rendering import Rendering, open_browsers  # noqa: PLC0415 - only some jobs render pages

        if self._browsers is None:
            self._browsers = open_browsers(services.settings)
        return Rendering(self._browsers, services.settings, site=target.stream, wait_for=params.wait_for)

    async def _read_rules(self, services: Services, origin: str, params: WebParams) -> "RobotsRules":
        from .robots_by_origin import RobotsRules  # noqa: PLC0415 - slow to import

        async def get(url: str) -> HttpAnswer:
            delay = params.delay if params.delay is None or params.delay <= PATIENCE else None
            return await services.http.get(url, limits=ROBOTS_LIMITS, concurrency=params.concurrency, delay=delay)

        async def read(origin: str) -> "Robots":
            return await self._robots.read(services, get, origin)

        return RobotsRules(read, origin, await read(origin))
