"""The source `cookies`: each run scans a domain in a real browser and makes its report one item."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

from msgspec.structs import replace

from floodmark.errors import SlowDown, SourceError
from floodmark.extensions.services import Services
from floodmark.model.batch import Batch, Item, Watermark
from floodmark.model.clock import Clock
from floodmark.model.hosts import resolved_hosts
from floodmark.model.spec import JobSpec
from floodmark.observability.events import Events, ScanEnded
from floodmark.settings import Settings
from floodmark.sources.port import Context, Target

from .findings import ScanRecord
from .messages import BrowserRules, Order
from .params import NAMES, check_custom_pages, complete_spec, normalize_domain, parse_params, start_urls
from .pool import Pool
from .report import make_report, scan_result
from .scan_profiles import ScanProfiles


class CookiesSource:
    """Scans domains. Use one per process; its browsers end with it."""

    kind = "cookies"

    def __init__(
        self,
        settings: Settings,
        clock: Clock | None = None,
        events: Events | None = None,
        *,
        profiles: Callable[[str], Awaitable[Mapping[str, Any]]] | None = None,
    ) -> None:
        self._settings, self._clock, self._events = settings, clock, events or Events()
        self._profiles = profiles
        self.pool = Pool(browser_rules(settings))

    def use_services(self, services: Services) -> None:
        """Use the process's clock, events and database."""
        self._clock, self._events = services.clock, services.events
        self._profiles = ScanProfiles(services.database).params_for

    async def __aenter__(self) -> "CookiesSource":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.pool.close()

    def check(self, target: str, params: Mapping[str, Any]) -> None:
        """Raise `InvalidInput` unless `target` is a domain and `params` are valid."""
        check_custom_pages(normalize_domain(target), parse_params(params))

    def param_names(self, target: str) -> frozenset[str]:
        """Return the parameters of a scan."""
        return NAMES

    def complete(self, spec: JobSpec) -> JobSpec:
        """Return the job with its normalized domain."""
        return complete_spec(spec)

    async def collect(self, target: Target, since: Watermark | None, context: Context) -> AsyncIterator[Batch]:
        """Yield the report of one scan, unless this execution has already stored one."""
        if since is not None and since.get("execution") == context.execution_id:
            return
        assert self._clock is not None, "a source without services can only check jobs"
        began = self._clock.now()
        order = self.order(await self._with_profile(target, context))
        found = await self._scan(order)
        seconds = (self._clock.now() - began).total_seconds()
        report, blobs = make_report(found, began=began, seconds=seconds, policy=order.params.policy)
        context.result.update(_summarize(found, report))
        item = Item(key=context.execution_id, data=report, occurred_at=began)
        yield Batch([item], {"execution": context.execution_id, "at": began.isoformat()}, blobs=blobs)

    async def _with_profile(self, target: Target, context: Context) -> Target:
        """Return the target with the parameters of its profile; its own take precedence."""
        if self._profiles is None:
            return target
        return replace(target, params={**await self._profiles(context.execution_id), **target.params})

    async def _scan(self, order: Order) -> ScanRecord:
        try:
            found = await self.pool.scan(order)
        except SlowDown:
            # All browsers are busy: no scan was run.
            raise
        except SourceError:
            self._events.emit(ScanEnded("failed"))
            raise
        self._events.emit(ScanEnded(scan_result(found.phases).replace(" ", "_")))
        return found

    def order(self, target: Target) -> Order:
        """Return the scan of a target."""
        domain, settings = normalize_domain(target.name), self._settings
        params = parse_params(target.params)
        return Order(
            domain=domain,
            starts=start_urls(domain),
            params=params,
            page_seconds=settings.cookies_page_timeout.total_seconds(),
            settle_seconds=settings.cookies_settle.total_seconds(),
            banner_seconds=settings.cookies_banner_wait.total_seconds(),
            scan_seconds=settings.cookies_scan_timeout.total_seconds(),
        )


def browser_rules(settings: Settings) -> BrowserRules:
    """Return the settings of browsers."""
    return BrowserRules(
        chromium=None if settings.floodmark_chromium is None else str(settings.floodmark_chromium),
        browsers=settings.cookies_max_browsers,
        scans_each=settings.cookies_scans_per_browser,
        sandbox=settings.cookies_sandbox,
        user_agent=settings.cookies_user_agent or "",
        allow_hosts=settings.http_allow_hosts or "",
        resolve=resolved_hosts(settings.http_resolve),
        dns_server=settings.cookies_dns_server or "",
    )


def _summarize(found: ScanRecord, report: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "result": report["result"],
        "findings": [finding["text"] for finding in report["findings"]],
        "summary": report["summary"],
        "cookies": {phase.phase: len(phase.cookies) for phase in found.phases},
    }
