"""One scan, in a browser that is there: what it keeps before consent, with it, and after it was refused.

Each phase has a context of its own, so that nothing of one is seen in another. Runs in the browser's process.
"""

import asyncio
import re
import time
from typing import Any, Literal
from urllib.parse import urldefrag, urlsplit

import msgspec
from msgspec.structs import replace
from playwright.async_api import Browser, Error

from .banners import BannerView, Kind, answer, look_for, select
from .findings import COMPLETE, Banner, Found, PhaseFound, Visit
from .messages import Order
from .params import custom_urls
from .parties import site_of
from .room import Room, first_line, is_gone

_LONGEST_TEXT = 4000
_ANSWER_SECONDS, _FIND_SECONDS = 40.0, 30.0
# A page that is never quiet is watched so many times as long as one that is.
_PATIENCE, _GLANCE_SECONDS, _COMPLETE_SECONDS = 3, 0.4, 0.3
_FILES = re.compile(
    r"\.(?:pdf|zip|gz|tgz|rar|7z|exe|dmg|apk|docx?|xlsx?|pptx?|csv|jpe?g|png|gif|webp|svg|ico|mp[34]|avi|mov|webm)$",
    re.IGNORECASE,
)
# Leaving would take away what is being looked at.
_LEAVING = re.compile(r"log-?out|sign-?out|abmelden|deconnexion", re.IGNORECASE)


class Crashed(Exception):
    """The browser is gone. What it was doing can be done again in another."""


class PageUnreachable(Exception):
    """Nobody answers at the start page, or what does cannot be scanned."""


async def scan(browser: Browser, order: Order, user_agent: str | None = None) -> Found:
    """All phases. `PageUnreachable` if there is no start page, `Crashed` if the browser went away."""
    try:
        return _storable(await _Scan(browser, order, user_agent).run())
    except Error as error:
        if is_gone(browser, error):
            raise Crashed(first_line(error)) from error
        # What was to be expected of a page is dealt with where it was asked.
        raise PageUnreachable(f"the page cannot be scanned: {first_line(error)}") from error


class _Scan:
    """The course of one scan."""

    def __init__(self, browser: Browser, order: Order, user_agent: str | None) -> None:
        self._browser, self._order, self._user_agent = browser, order, user_agent
        self._until = time.monotonic() + order.scan_seconds
        self._start, self._final, self._site = order.starts[0], order.starts[0], ""
        self._pages: list[tuple[str, int]] = []
        self._notes: list[str] = []
        self._agent, self._is_driven = user_agent or "", False
        self._managers: tuple[str, ...] = ()

    async def run(self) -> Found:
        before, seen = await self._before()
        phases = [before]
        if seen is not None:
            phases += [await self._answered(kind, seen) for kind in ("accept", "reject")]
        if self._order.params.insecure:
            self._notes.append("certificates were not checked (insecure)")
        is_recognisable = self._is_driven or "Headless" in self._agent
        if is_recognisable:
            self._notes.append(
                "the scan could be recognised as a program, and some consent managers hide from programs"
            )
        return Found(
            domain=self._order.domain,
            start=self._start,
            final=self._final,
            browser=f"Chromium {self._browser.version}",
            user_agent=self._agent,
            is_recognisable=is_recognisable,
            managers=self._managers,
            phases=tuple(phases),
            notes=tuple(self._notes),
        )

    def _room(self) -> Room:
        return Room(self._browser, self._order, self._user_agent)

    async def _before(self) -> tuple[PhaseFound, dict[Kind, BannerView] | None]:
        """The first phase, which also finds out which pages there are, and which banner; None if there is no page."""
        async with self._room() as room:
            first = await self._begin(room)
            self._final = room.page.url if room.page.url.startswith("http") else self._start
            self._site = site_of(urlsplit(self._final).hostname or self._order.domain)
            if self._site != site_of(urlsplit(self._start).hostname or ""):
                self._notes.append(f"{self._order.domain} leads to another site, {self._site}, which was scanned")
            if first.result != COMPLETE:
                picture = await room.picture()
                found = replace(await room.told("before", self._site, first.result), note=first.note, picture=picture)
                return found, None
            seen = await self._choices(room)
            picture = await room.picture()
            # A banner that came late may have brought cookies with it.
            await room.look()
            self._agent, self._is_driven = room.seen.agent, room.seen.is_driven
            result = await self._visit_all(room, is_finding=True)
            found = await room.told("before", self._site, result)
            banner = next((Banner(name=look.name) for look in seen.values() if look.is_banner), None)
            return replace(found, picture=picture, banner=banner), seen

    async def _choices(self, room: Room) -> dict[Kind, BannerView]:
        """What can be pressed to give and to refuse consent."""
        params = self._order.params
        plain = None
        if params.accept_selector is None or params.reject_selector is None:
            plain = await self._watch(room, None)
            self._managers = plain.loaded
        accept = plain if plain is not None and params.accept_selector is None else await self._watch(room, "accept")
        reject = plain if plain is not None and params.reject_selector is None else await self._watch(room, "reject")
        return {"accept": accept, "reject": reject}

    async def _begin(self, room: Room) -> Visit:
        """The start page, at the first address where somebody answers."""
        for start in self._order.starts:
            visit = await room.visit(start)
            if visit.result != "failed":
                self._start = start
                return visit
            self._notes.append(f"{start} cannot be reached: {visit.note}")
        told = "; ".join(self._notes)
        raise PageUnreachable(told)

    async def _watch(self, room: Room, kind: Kind | None) -> BannerView:
        """Watch a page until it shows a banner, or is quiet and has had its time; a banner may come late.

        With `kind` only a banner counts on which this choice can be made.
        """
        least = time.monotonic() + self._order.banner_seconds
        most = least + (_PATIENCE - 1) * self._order.banner_seconds
        while True:
            seen = await self._glance(room, kind)
            if seen.is_banner and (kind is None or seen.way(kind)):
                # What has just appeared may not be complete.
                await asyncio.sleep(_COMPLETE_SECONDS)
                again = await self._glance(room, kind)
                return again if again.is_banner and (kind is None or again.way(kind)) else seen
            now = time.monotonic()
            if now >= most or (now >= least and room.is_quiet):
                return seen
            await asyncio.sleep(_GLANCE_SECONDS)

    async def _glance(self, room: Room, kind: Kind | None) -> BannerView:
        params = self._order.params
        selector = {"accept": params.accept_selector, "reject": params.reject_selector, None: None}[kind]
        try:
            async with asyncio.timeout(_FIND_SECONDS):
                if selector is not None and kind is not None:
                    return await select(room.page, kind, selector)
                return await look_for(room.page, room.token)
        except TimeoutError:
            # A page whose scripts never rest has no button that could be pressed.
            return BannerView()

    async def _made(self, room: Room, seen: BannerView, kind: Kind) -> Banner | str:
        """Make a choice on the banner; why it could not be made, if it could not."""
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                return await answer(room.page, seen, kind, room.token)
        except TimeoutError:
            return "the button could not be pressed in time"
        except Error as error:
            if is_gone(self._browser, error):
                raise
            return f"the button could not be pressed: {first_line(error)}"

    async def _answered(self, kind: Any, before: dict[Kind, BannerView]) -> PhaseFound:
        """A phase that begins with a choice on the banner."""
        if not before[kind].way(kind):
            return self._without_button(kind, has_banner=any(look.is_banner for look in before.values()))
        async with self._room() as room:
            first = await room.visit(self._start)
            if first.result != COMPLETE:
                return replace(await room.told(kind, self._site, first.result), note=first.note)
            seen = await self._watch(room, kind)
            if not seen.way(kind):
                missing = "it was there before consent, and not when the page was loaded again"
                return replace(await room.told(kind, self._site, "banner not found"), note=missing)
            banner = await self._made(room, seen, kind)
            if isinstance(banner, str):
                found = await room.told(kind, self._site, "failed")
                return replace(found, note=banner, banner=Banner(name=seen.name))
            await room.settle()
            await room.look()
            picture = await room.picture()
            if banner.answered_at is None:
                note = f'behind "{banner.button}" there is no button to {kind} that is known'
                found = await room.told(kind, self._site, "no such button")
                return replace(found, note=note, banner=banner, picture=picture)
            note = await self._still_shown(room, kind, seen)
            result = await self._visit_all(room, is_finding=False)
            found = await room.told(kind, self._site, result)
            return replace(found, note=note, banner=banner, picture=picture)

    async def _still_shown(self, room: Room, kind: Kind, seen: BannerView) -> str:
        if seen.how == "selector":
            return ""
        again = await self._glance(room, None)
        is_still = again.is_banner and again.name == seen.name and bool(again.way(kind))
        return "the banner was still shown after the choice" if is_still else ""

    def _without_button(self, kind: Kind, *, has_banner: bool) -> PhaseFound:
        params = self._order.params
        said = params.accept_selector if kind == "accept" else params.reject_selector
        if said is not None:
            return PhaseFound(phase=kind, result="banner not found", note=f"{kind}_selector selects nothing: {said}")
        if has_banner:
            note = f"the banner has no button to {kind} that is known, nor settings to {kind} in"
            return PhaseFound(phase=kind, result="no such button", note=note)
        loaded = f"; {', '.join(self._managers)} is loaded but showed none" if self._managers else ""
        return PhaseFound(phase=kind, result="banner not found", note=f"no consent banner was shown{loaded}")

    async def _visit_all(self, room: Room, *, is_finding: bool) -> Literal["complete", "time-out"]:
        """The other pages, as far as they are wanted; "time-out" if there was no time for all of them."""
        params = self._order.params
        if not is_finding:
            waiting = list(self._pages)
        else:
            waiting = [(url, 0) for url in custom_urls(params, self._final)] + self._links(room, 1)
            self._pages = []
        seen, count = {_plain(self._start), _plain(self._final)}, 1
        while waiting and count < params.max_pages:
            url, depth = waiting.pop(0)
            if _plain(url) in seen:
                continue
            if time.monotonic() > self._until:
                room.left_out.append(f"{len(waiting) + 1} pages: no time was left for them")
                return "time-out"
            seen.add(_plain(url))
            count += 1
            await room.visit(url, depth)
            if is_finding:
                self._pages.append((url, depth))
                seen.add(_plain(room.page.url))
                waiting += self._links(room, depth + 1)
        return "complete"

    def _links(self, room: Room, depth: int) -> list[tuple[str, int]]:
        params = self._order.params
        if not params.allow_deep_scan or depth > params.scan_depth:
            return []
        hosts = {(urlsplit(url).hostname or "").removeprefix("www.") for url in (self._final, self._start)}
        found = dict.fromkeys(urldefrag(link)[0] for link in room.seen.links)
        return [(link, depth) for link in found if _is_page_of(link, hosts)]


def _storable(found: Found) -> Found:
    """The same without what databases refuse and pages may hold: NUL, half characters, texts without end."""
    return msgspec.convert(_clean(msgspec.to_builtins(found, builtin_types=(bytes,))), Found)


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
    return parts.scheme in ("http", "https") and is_ours and not _FILES.search(parts.path) and not _LEAVING.search(link)


def _plain(url: str) -> str:
    """One address for what is one page."""
    return urldefrag(url)[0].rstrip("/")
