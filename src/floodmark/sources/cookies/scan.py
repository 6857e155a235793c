"""One scan in a running browser, in three phases: before consent, after accepting, after rejecting.

Each phase has its own browser context, so that they share nothing. Runs in the browser's process.
"""

import asyncio
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal
from urllib.parse import urldefrag, urlsplit

import msgspec
from msgspec.structs import replace
from playwright.async_api import Browser, Error

from floodmark.model.hosts import DnsServer

from .aliases import resolve_hosts
from .banners import KINDS, BannerView, Kind, answer_banner, find_banner, find_by_selector
from .findings import COMPLETE, Alias, Banner, PhaseFound, ScanRecord, Visit
from .messages import Order
from .params import custom_urls
from .parties import registrable_domain
from .phase import PhaseContext, first_line, is_gone

_LONGEST_TEXT = 4000
_ANSWER_SECONDS, _FIND_SECONDS = 40.0, 30.0
# A page with constant network traffic is watched this many times as long as a quiet one.
_NOISY_FACTOR, _POLL_SECONDS, _COMPLETE_SECONDS = 3, 0.4, 0.3
_FILES = re.compile(
    r"\.(?:pdf|zip|gz|tgz|rar|7z|exe|dmg|apk|docx?|xlsx?|pptx?|csv|jpe?g|png|gif|webp|svg|ico|mp[34]|avi|mov|webm)$",
    re.IGNORECASE,
)
# Links that would end a session.
_LOGOUT = re.compile(r"log-?out|sign-?out|abmelden|deconnexion", re.IGNORECASE)


class Crashed(Exception):
    """The browser has ended. The scan can be repeated in another one."""


class PageUnreachable(Exception):
    """The start page cannot be loaded or scanned."""


async def scan(
    browser: Browser, order: Order, user_agent: str | None = None, dns_server: DnsServer | None = None
) -> ScanRecord:
    """Run all phases. Raises `PageUnreachable` without a start page, `Crashed` if the browser has ended."""
    try:
        return _make_storable(await _Scan(browser, order, user_agent, dns_server).run())
    except Error as error:
        if is_gone(browser, error):
            raise Crashed(first_line(error)) from error
        # Expected errors of pages are handled where they occur.
        raise PageUnreachable(f"the page cannot be scanned: {first_line(error)}") from error


class _Scan:
    """The state of one scan."""

    def __init__(self, browser: Browser, order: Order, user_agent: str | None, dns_server: DnsServer | None) -> None:
        self._browser, self._order, self._user_agent, self._dns_server = browser, order, user_agent, dns_server
        self._hosts: set[str] = set()
        self._until = time.monotonic() + order.scan_seconds
        self._start, self._final, self._site = order.starts[0], order.starts[0], ""
        self._pages: list[tuple[str, int]] = []
        self._notes: list[str] = []
        self._agent, self._is_driven = user_agent or "", False
        self._managers: tuple[str, ...] = ()

    async def run(self) -> ScanRecord:
        before, seen = await self._run_first_phase()
        phases = [before]
        if seen is not None:
            phases += [await self._run_choice_phase(kind, seen) for kind in KINDS]
        if self._order.params.insecure:
            self._notes.append("certificates were not checked (insecure)")
        is_recognisable = self._is_driven or "Headless" in self._agent
        if is_recognisable:
            self._notes.append(
                "sites could recognise the scan as a program, and some consent managers hide from programs"
            )
        aliases = await self._find_aliases()
        return ScanRecord(
            domain=self._order.domain,
            start=self._start,
            final=self._final,
            browser=f"Chromium {self._browser.version}",
            user_agent=self._agent,
            is_recognisable=is_recognisable,
            managers=self._managers,
            options=self._options(),
            aliases=tuple(aliases),
            phases=tuple(phases),
            notes=tuple(self._notes),
        )

    def _options(self) -> dict[str, str]:
        params = self._order.params
        told = {"locale": params.locale, "timezone": params.browser_timezone, "gpc": "sent" if params.gpc else None}
        return {name: value for name, value in told.items() if value is not None}

    async def _find_aliases(self) -> list[Alias]:
        """Return the hosts of the site that another party runs. That of the page itself is left out: it is hosted."""
        own = {urlsplit(url).hostname for url in (self._start, self._final)}
        hosts = {host for host in self._hosts if host not in own}
        if not hosts:
            return []
        if self._dns_server is None:
            self._notes.append("aliases of hosts were not looked up: this machine names no DNS server")
            return []
        found, notes = await resolve_hosts(hosts, self._site, self._dns_server)
        self._notes += notes
        return found

    @asynccontextmanager
    async def _open_context(self) -> AsyncIterator[PhaseContext]:
        async with PhaseContext(self._browser, self._order, self._user_agent) as context:
            yield context
            self._hosts |= context.own_hosts(self._site)

    async def _run_first_phase(self) -> tuple[PhaseFound, dict[Kind, BannerView] | None]:
        """Run the phase before consent, which also finds the pages and the banner (None without a start page)."""
        async with self._open_context() as context:
            first = await self._visit_start(context)
            self._final = context.page.url if context.page.url.startswith("http") else self._start
            self._site = registrable_domain(urlsplit(self._final).hostname or self._order.domain)
            if self._site != registrable_domain(urlsplit(self._start).hostname or ""):
                self._notes.append(f"{self._order.domain} redirects to another site, {self._site}, which was scanned")
            if first.result != COMPLETE:
                picture = await context.picture()
                found = replace(
                    await context.collect("before", self._site, first.result), note=first.note, picture=picture
                )
                return found, None
            seen = await self._find_choices(context)
            picture = await context.picture()
            # A late banner may have set cookies.
            await context.read_page()
            self._agent, self._is_driven = context.seen.agent, context.seen.is_driven
            result = await self._visit_all(context, is_finding=True)
            found = await context.collect("before", self._site, result)
            banner = next((Banner(name=look.name) for look in seen.values() if look.is_banner), None)
            return replace(found, picture=picture, banner=banner), seen

    async def _find_choices(self, context: PhaseContext) -> dict[Kind, BannerView]:
        """Return the banners on which consent can be given and refused."""
        plain = None
        if any(self._selector(kind) is None for kind in KINDS):
            plain = await self._wait_for_banner(context, None)
            self._managers = plain.loaded
        return {
            kind: plain
            if plain is not None and self._selector(kind) is None
            else await self._wait_for_banner(context, kind)
            for kind in KINDS
        }

    def _selector(self, kind: Kind) -> str | None:
        params = self._order.params
        return params.accept_selector if kind == "accept" else params.reject_selector

    async def _visit_start(self, context: PhaseContext) -> Visit:
        """Visit the start page at the first start URL that can be loaded."""
        for start in self._order.starts:
            visit = await context.visit(start)
            if visit.result != "failed":
                self._start = start
                return visit
            self._notes.append(f"{start} cannot be reached: {visit.note}")
        raise PageUnreachable("; ".join(self._notes))

    async def _wait_for_banner(self, context: PhaseContext, kind: Kind | None) -> BannerView:
        """Wait for a banner until the time for it is over and the network is quiet.

        With `kind` only a banner counts on which this choice can be made.
        """
        least = time.monotonic() + self._order.banner_seconds
        most = least + (_NOISY_FACTOR - 1) * self._order.banner_seconds
        while True:
            seen = await self._find_banner(context, kind)
            if seen.is_banner and (kind is None or seen.way(kind)):
                # A banner that has just appeared may be incomplete.
                await asyncio.sleep(_COMPLETE_SECONDS)
                again = await self._find_banner(context, kind)
                return again if again.is_banner and (kind is None or again.way(kind)) else seen
            now = time.monotonic()
            if now >= most or (now >= least and context.is_quiet):
                return seen
            await asyncio.sleep(_POLL_SECONDS)

    async def _find_banner(self, context: PhaseContext, kind: Kind | None) -> BannerView:
        try:
            async with asyncio.timeout(_FIND_SECONDS):
                if kind is not None and (selector := self._selector(kind)) is not None:
                    return await find_by_selector(context.page, kind, selector)
                return await find_banner(context.page, context.token)
        except TimeoutError:
            # The scripts of the page run all the time: no button can be pressed.
            return BannerView()

    async def _make_choice(self, context: PhaseContext, seen: BannerView, kind: Kind) -> Banner | str:
        """Make a choice on the banner; return the reason as text if that fails."""
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                return await answer_banner(context.page, seen, kind, context.token)
        except TimeoutError:
            return "the button could not be pressed in time"
        except Error as error:
            if is_gone(self._browser, error):
                raise
            return f"the button could not be pressed: {first_line(error)}"

    async def _run_choice_phase(self, kind: Kind, before: dict[Kind, BannerView]) -> PhaseFound:
        """Run a phase that starts with a choice on the banner."""
        if not before[kind].way(kind):
            return self._phase_without_button(kind, has_banner=any(look.is_banner for look in before.values()))
        async with self._open_context() as context:
            first = await context.visit(self._start)
            if first.result != COMPLETE:
                return replace(await context.collect(kind, self._site, first.result), note=first.note)
            seen = await self._wait_for_banner(context, kind)
            if not seen.way(kind):
                missing = "the banner was shown before consent, but not when the page was loaded again"
                return replace(await context.collect(kind, self._site, "banner not found"), note=missing)
            banner = await self._make_choice(context, seen, kind)
            if isinstance(banner, str):
                found = await context.collect(kind, self._site, "failed")
                return replace(found, note=banner, banner=Banner(name=seen.name))
            await context.settle()
            await context.read_page()
            picture = await context.picture()
            if banner.answered_at is None:
                note = f'no button to {kind} was recognised after pressing "{banner.button}"'
                found = await context.collect(kind, self._site, "no such button")
                return replace(found, note=note, banner=banner, picture=picture)
            note = await self._note_if_still_shown(context, kind, seen)
            result = await self._visit_all(context, is_finding=False)
            found = await context.collect(kind, self._site, result)
            return replace(found, note=note, banner=banner, picture=picture)

    async def _note_if_still_shown(self, context: PhaseContext, kind: Kind, seen: BannerView) -> str:
        if seen.how == "selector":
            return ""
        again = await self._find_banner(context, None)
        is_still = again.is_banner and again.name == seen.name and bool(again.way(kind))
        return "the banner was still shown after the choice" if is_still else ""

    def _phase_without_button(self, kind: Kind, *, has_banner: bool) -> PhaseFound:
        selector = self._selector(kind)
        if selector is not None:
            note = f"{kind}_selector matches nothing: {selector}"
            return PhaseFound(phase=kind, result="banner not found", note=note)
        if has_banner:
            note = f"no button to {kind} was recognised on the banner, and no settings"
            return PhaseFound(phase=kind, result="no such button", note=note)
        loaded = f"; {', '.join(self._managers)} is loaded but showed no banner" if self._managers else ""
        return PhaseFound(phase=kind, result="banner not found", note=f"no consent banner was shown{loaded}")

    async def _visit_all(self, context: PhaseContext, *, is_finding: bool) -> Literal["complete", "time-out"]:
        """Visit the other pages, up to `maxPages`; return "time-out" if the time was too short for all of them."""
        params = self._order.params
        if not is_finding:
            waiting = list(self._pages)
        else:
            waiting = [(url, 0) for url in custom_urls(params, self._final)] + self._find_links(context, 1)
            self._pages = []
        seen, count = {_page_key(self._start), _page_key(self._final)}, 1
        while waiting and count < params.max_pages:
            url, depth = waiting.pop(0)
            if _page_key(url) in seen:
                continue
            if time.monotonic() > self._until:
                context.left_out.append(f"{len(waiting) + 1} pages: no time left")
                return "time-out"
            seen.add(_page_key(url))
            count += 1
            await context.visit(url, depth)
            if is_finding:
                self._pages.append((url, depth))
                seen.add(_page_key(context.page.url))
                waiting += self._find_links(context, depth + 1)
        return "complete"

    def _find_links(self, context: PhaseContext, depth: int) -> list[tuple[str, int]]:
        params = self._order.params
        if not params.allow_deep_scan or depth > params.scan_depth:
            return []
        hosts = {(urlsplit(url).hostname or "").removeprefix("www.") for url in (self._final, self._start)}
        found = dict.fromkeys(urldefrag(link)[0] for link in context.seen.links)
        return [(link, depth) for link in found if _is_page_of(link, hosts)]


def _make_storable(found: ScanRecord) -> ScanRecord:
    """Return the results without what databases reject: NUL, lone surrogates, very long texts."""
    return msgspec.convert(_clean(msgspec.to_builtins(found, builtin_types=(bytes,))), ScanRecord)


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return (
            value[:_LONGEST_TEXT].replace("\0", "\ufffd").encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        )
    if isinstance(value, dict):
        return {_clean(key): _clean(entry) for key, entry in value.items()}
    return [_clean(entry) for entry in value] if isinstance(value, list | tuple) else value


def _is_page_of(link: str, hosts: set[str]) -> bool:
    try:
        parts = urlsplit(link)
        host = (parts.hostname or "").removeprefix("www.")
    except ValueError:
        return False
    is_ours = any(host == ours or host.endswith(f".{ours}") for ours in hosts)
    return parts.scheme in ("http", "https") and is_ours and not _FILES.search(parts.path) and not _LOGOUT.search(link)


def _page_key(url: str) -> str:
    """Return the same key for all URLs of a page."""
    return urldefrag(url)[0].rstrip("/")
