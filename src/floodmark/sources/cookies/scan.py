"""One scan, in a browser that is there: what it keeps before consent, with it, and after it was refused.

Each phase has a context of its own, so that nothing of one is seen in another. Runs in the browser's process.
"""

import asyncio
import hashlib
import re
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache
from importlib.resources import files
from typing import Any, cast
from urllib.parse import urldefrag, urlsplit

import msgspec
from msgspec import Struct
from msgspec.structs import replace
from playwright.async_api import Browser, BrowserContext, Error, Page, Request, Response
from playwright.async_api import TimeoutError as TookTooLong

from .banners import Button, Kind, find, press
from .blocked import why_blocked
from .findings import Banner, Contact, Cookie, Found, Phase, PhaseFound, Stored, Visit
from .messages import Order
from .params import custom_urls
from .parties import party_of, site_of
from .purposes import known_as

# More than any site has; a page that wants to fill our database has no effect.
_MOST_COOKIES, _MOST_KEYS, _MOST_HOSTS, _MOST_FRAMES = 2000, 2000, 500, 50
_LONGEST_TEXT = 4000
_PICTURE_MS, _LOOK_SECONDS = 10_000.0, 5.0
_QUIET_SECONDS, _LONGEST_NOISE_SECONDS, _LISTEN_SECONDS = 0.5, 5.0, 0.05
_PRESS_SECONDS, _FIND_SECONDS = 10.0, 30.0
_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.25, 5.0
_VIEW = {"width": 1280, "height": 800}
_FILES = re.compile(
    r"\.(?:pdf|zip|gz|tgz|rar|7z|exe|dmg|apk|docx?|xlsx?|pptx?|csv|jpe?g|png|gif|webp|svg|ico|mp[34]|avi|mov|webm)$",
    re.IGNORECASE,
)
# Leaving would take away what is being looked at.
_LEAVING = re.compile(r"log-?out|sign-?out|abmelden|deconnexion", re.IGNORECASE)


class Crashed(Exception):
    """The browser is gone. What it was doing can be done again in another."""


class Unreachable(Exception):
    """Nobody answers at the start page, or what does cannot be scanned."""


class _Look(Struct, frozen=True):
    """What a page showed."""

    title: str = ""
    text: str = ""
    links: tuple[str, ...] = ()


async def scan(browser: Browser, order: Order) -> Found:
    """All phases. `Unreachable` if there is no start page, `Crashed` if the browser went away."""
    try:
        return _storable(await _Scan(browser, order).run())
    except Error as error:
        if is_gone(browser, error):
            raise Crashed(_first_line(error)) from error
        # What was to be expected of a page is dealt with where it was asked.
        raise Unreachable(f"the page cannot be scanned: {_first_line(error)}") from error


def is_gone(browser: Browser, error: Error) -> bool:
    """Whether this error is about the browser, and not about a page."""
    return not browser.is_connected() or "has been closed" in error.message


class _Scan:
    """The course of one scan."""

    def __init__(self, browser: Browser, order: Order) -> None:
        self._browser, self._order = browser, order
        self._until = time.monotonic() + order.scan_seconds
        self._start, self._final, self._site = order.starts[0], order.starts[0], ""
        self._pages: list[tuple[str, int]] = []
        self._notes: list[str] = []

    async def run(self) -> Found:
        before, can = await self._before()
        phases = [before]
        if can:
            phases += [await self._answered(kind, can) for kind in ("accept", "reject")]
        if self._order.params.insecure:
            self._notes.append("certificates were not checked (insecure)")
        return Found(
            domain=self._order.domain,
            start=self._start,
            final=self._final,
            browser=f"Chromium {self._browser.version}",
            phases=tuple(phases),
            notes=tuple(self._notes),
        )

    async def _before(self) -> tuple[PhaseFound, dict[Kind, bool]]:
        """The first phase, which also finds out which pages there are, and which buttons; none if there is no page."""
        async with _Room(self._browser, self._order) as room:
            first = await self._begin(room)
            self._final = room.page.url if room.page.url.startswith("http") else self._start
            self._site = site_of(urlsplit(self._final).hostname or self._order.domain)
            if self._site != site_of(urlsplit(self._start).hostname or ""):
                self._notes.append(f"{self._order.domain} leads to another site, {self._site}, which was scanned")
            picture = await room.picture()
            if first.result != "ok":
                found = replace(await room.told("before", self._site, first.result), note=first.note, picture=picture)
                return found, {}
            buttons = {kind: await self._button(room, kind) for kind in ("accept", "reject")}
            result = await self._visit_all(room, is_finding=True)
            found = await room.told("before", self._site, result)
            return replace(found, picture=picture, banner=_banner(buttons)), {
                cast(Kind, kind): button is not None for kind, button in buttons.items()
            }

    async def _begin(self, room: "_Room") -> Visit:
        """The start page, at the first address where somebody answers."""
        for start in self._order.starts:
            visit = await room.visit(start)
            if visit.result != "failed":
                self._start = start
                return visit
            self._notes.append(f"{start} cannot be reached: {visit.note}")
        told = "; ".join(self._notes)
        raise Unreachable(told)

    async def _button(self, room: "_Room", kind: Any) -> Button | None:
        params = self._order.params
        selector = params.accept_selector if kind == "accept" else params.reject_selector
        try:
            async with asyncio.timeout(_FIND_SECONDS):
                return await find(room.page, kind, selector)
        except TimeoutError:
            # A page whose scripts never rest has no button that could be pressed.
            return None

    async def _pressed(self, button: Button) -> str | None:
        """Press it; why it could not be, if it could not."""
        try:
            async with asyncio.timeout(_PRESS_SECONDS):
                await press(button)
        except TimeoutError:
            return "the button could not be pressed in time"
        except Error as error:
            if is_gone(self._browser, error):
                raise
            return f"the button could not be pressed: {_first_line(error)}"
        return None

    async def _answered(self, kind: Any, can: dict[Kind, bool]) -> PhaseFound:
        """A phase that begins with pressing a button."""
        if not can[kind]:
            return self._without_button(kind, has_banner=any(can.values()))
        async with _Room(self._browser, self._order) as room:
            first = await room.visit(self._start)
            if first.result != "ok":
                return replace(await room.told(kind, self._site, first.result), note=first.note)
            button = await self._button(room, kind)
            if button is None:
                missing = "it was there before consent, and not when the page was loaded again"
                return replace(await room.told(kind, self._site, "banner not found"), note=missing)
            why = await self._pressed(button)
            if why is not None:
                return replace(await room.told(kind, self._site, "failed"), note=why, banner=button.banner)
            await room.settle()
            await room.look()
            picture = await room.picture()
            result = await self._visit_all(room, is_finding=False)
            return replace(await room.told(kind, self._site, result), banner=button.banner, picture=picture)

    def _without_button(self, kind: Kind, *, has_banner: bool) -> PhaseFound:
        params = self._order.params
        said = params.accept_selector if kind == "accept" else params.reject_selector
        if said is not None:
            return PhaseFound(phase=kind, result="banner not found", note=f"{kind}_selector selects nothing: {said}")
        if has_banner:
            return PhaseFound(
                phase=kind, result="no such button", note=f"the banner has no button to {kind} that is known"
            )
        return PhaseFound(phase=kind, result="banner not found", note="no banner that is known was shown")

    async def _visit_all(self, room: "_Room", *, is_finding: bool) -> Any:
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
        return "ok"

    def _links(self, room: "_Room", depth: int) -> list[tuple[str, int]]:
        params = self._order.params
        if not params.allow_deep_scan or depth > params.scan_depth:
            return []
        hosts = {(urlsplit(url).hostname or "").removeprefix("www.") for url in (self._final, self._start)}
        found = dict.fromkeys(urldefrag(link)[0] for link in room.seen.links)
        return [(link, depth) for link in found if _is_page_of(link, hosts)]


class _Room:
    """One phase: a context that knows nothing of the others, its page, and all that was seen in it."""

    def __init__(self, browser: Browser, order: Order) -> None:
        self._browser, self._order = browser, order
        self.seen = _Look()
        self.left_out: list[str] = []
        self._visits: list[Visit] = []
        self._hosts: dict[str, Counter[str]] = {}
        self._is_crowded = False
        self._open: set[Request] = set()
        self._stirred = 0.0
        self._by_header: dict[tuple[str, str], str] = {}
        self._first_seen: dict[tuple[Any, ...], str] = {}
        self._storage: dict[tuple[str, str, str], int] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._context: BrowserContext | None = None
        self._page: Page | None = None

    async def __aenter__(self) -> "_Room":
        self._context = await self._browser.new_context(
            accept_downloads=False,
            ignore_https_errors=self._order.params.insecure,
            viewport=cast(Any, _VIEW),
            locale="en-US",
        )
        self._context.on("request", self._requested)
        self._context.on("response", self._answered)
        self._context.on("requestfinished", self._ended)
        self._context.on("requestfailed", self._ended)
        await self._open_page()
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._context is not None:
            with suppress(Error):
                await self._context.close()

    @property
    def page(self) -> Page:
        assert self._page is not None
        return self._page

    async def _open_page(self) -> None:
        assert self._context is not None
        self._page = await self._context.new_page()
        # Windows that a page opens are none that anybody asked for.
        self._page.on("popup", self._close)

    def _close(self, popup: Page) -> None:
        self._start(_quietly(popup.close()))

    def _start(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _ended(self, request: Request) -> None:
        self._open.discard(request)
        self._stirred = time.monotonic()

    def _requested(self, request: Request) -> None:
        self._open.add(request)
        self._stirred = time.monotonic()
        host = urlsplit(request.url).hostname
        if not host or not request.url.startswith(("http:", "https:")):
            return
        if host not in self._hosts and len(self._hosts) >= _MOST_HOSTS:
            self._is_crowded = True
            return
        self._hosts.setdefault(host, Counter())[request.resource_type] += 1

    def _answered(self, response: Response) -> None:
        self._start(self._read_headers(response))

    async def _read_headers(self, response: Response) -> None:
        host = urlsplit(response.url).hostname or ""
        with suppress(Error):
            for line in await response.header_values("set-cookie"):
                self._by_header.setdefault(_set(line, host), host)

    async def visit(self, url: str, depth: int = 0) -> Visit:
        """Load a page, let it do what it does, and look at what is there then."""
        visit = Visit(url=url, result="failed", depth=depth)
        for tries in range(1, self._order.params.max_retries + 2):
            visit = replace(await self._load(url, depth), tries=tries)
            if visit.result in ("ok", "blocked page"):
                break
            await asyncio.sleep(min(_LONGEST_PAUSE_SECONDS, _PAUSE_SECONDS * 2 ** (tries - 1)))
        self._visits.append(visit)
        return visit

    async def _load(self, url: str, depth: int) -> Visit:
        visit = Visit(url=url, result="ok", depth=depth)
        # Of the page before; whether they have ended is not always told.
        self._open.clear()
        try:
            response = await self.page.goto(url, wait_until="domcontentloaded", timeout=self._order.page_seconds * 1000)
        except TookTooLong:
            await self.look()
            return replace(visit, result="time-out", note=f"not there after {self._order.page_seconds:g} s")
        except Error as error:
            return replace(visit, result="failed", note=await self._why(error))
        status = None if response is None else response.status
        if status is not None and status >= 500:
            return replace(visit, result="failed", status=status, note=f"status {status}")
        await self.settle()
        await self.look()
        visit = replace(visit, status=status, title=self.seen.title)
        if (why := why_blocked(status, self.seen.title, self.seen.text)) is not None:
            return replace(visit, result="blocked page", note=why)
        return visit

    async def _why(self, error: Error) -> str:
        """What is wrong with a page that cannot be loaded; the browser itself going away is another matter."""
        told = _first_line(error)
        if is_gone(self._browser, error):
            raise error
        # The next page must not come in the way of what is left of this one.
        await _quietly(self.page.close())
        await self._open_page()
        if "crashed" in told:
            return "it made the browser's tab crash"
        found = re.search(r"net::ERR_[A-Z_]+", told)
        return found[0].removeprefix("net::") if found else told

    async def settle(self) -> None:
        """Wait until the page is loaded, its scripts had their time, and the network is quiet; not for ever.

        Playwright's own "networkidle" comes once for each page, and not again for what a button has set off.
        """
        with suppress(TookTooLong):
            await self.page.wait_for_load_state("load", timeout=self._order.page_seconds * 1000)
        self._stirred = time.monotonic()
        await asyncio.sleep(self._order.settle_seconds)
        until = time.monotonic() + _LONGEST_NOISE_SECONDS
        # Silence is no event that could be waited for.
        while (now := time.monotonic()) < until and (self._open or now - self._stirred < _QUIET_SECONDS):  # noqa: ASYNC110
            await asyncio.sleep(_LISTEN_SECONDS)

    async def look(self) -> None:
        """Read what the page and its frames hold, and which cookies have come since the last look."""
        self.seen = _Look()
        for frame in self.page.frames[:_MOST_FRAMES]:
            told = await self._told_by(frame)
            if told is None:
                continue
            if frame is self.page.main_frame:
                self.seen = _Look(told["title"], told["text"], tuple(told["links"]))
            for area in ("local", "session"):
                for key, size in told[area]:
                    self._storage[(told["origin"], area, key)] = size
        for cookie in await self._cookies():
            self._first_seen.setdefault(_identity(cookie), self.page.url)

    async def _told_by(self, frame: Any) -> dict[str, Any] | None:
        try:
            async with asyncio.timeout(_LOOK_SECONDS):
                return cast("dict[str, Any]", await frame.evaluate(_reader()))
        except TimeoutError:
            return None
        except Error as error:
            if is_gone(self._browser, error):
                raise
            # Frames come and go, and some may not be asked.
            return None

    async def _cookies(self) -> list[dict[str, Any]]:
        assert self._context is not None
        return cast("list[dict[str, Any]]", await self._context.cookies())

    async def picture(self) -> bytes | None:
        """What a visitor sees, as PNG; None if the page does not hold still for it."""
        try:
            return await self.page.screenshot(type="png", timeout=_PICTURE_MS, animations="disabled")
        except Error as error:
            if is_gone(self._browser, error):
                raise
            self.left_out.append(f"the picture: {_first_line(error)}")
            return None

    async def told(self, phase: Phase, site: str, result: Any) -> PhaseFound:
        """Everything that was found in this room."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_LOOK_SECONDS)
        now = time.time()
        cookies = [self._cookie(cookie, site, now) for cookie in await self._cookies()]
        cookies.sort(key=lambda cookie: (cookie.party, cookie.domain.lstrip("."), cookie.name, cookie.path))
        storage = [
            Stored(origin=origin, area=cast(Any, area), key=key, size=size, party=party_of(_host(origin), site))
            for (origin, area, key), size in sorted(self._storage.items())
        ]
        for what, found, most in (("cookies", cookies, _MOST_COOKIES), ("keys in storage", storage, _MOST_KEYS)):
            if len(cast("list[object]", found)) > most:
                self.left_out.append(f"{len(found) - most} {what}")
        if self._is_crowded:
            self.left_out.append(f"hosts beyond the first {_MOST_HOSTS}")
        return PhaseFound(
            phase=phase,
            result=result,
            visits=tuple(self._visits),
            cookies=tuple(cookies[:_MOST_COOKIES]),
            storage=tuple(storage[:_MOST_KEYS]),
            contacts=tuple(self._contacts(site)),
            left_out=tuple(self.left_out),
        )

    def _contacts(self, site: str) -> Iterable[Contact]:
        for host, types in sorted(self._hosts.items()):
            if party_of(host, site) == "third":
                yield Contact(host=host, site=site_of(host), requests=types.total(), types=dict(sorted(types.items())))

    def _cookie(self, told: dict[str, Any], site: str, now: float) -> Cookie:
        name, value, domain = told["name"], told["value"], told["domain"]
        expires = None if told.get("expires", -1) < 0 else float(told["expires"])
        party, partition = party_of(domain.lstrip("."), site), told.get("partitionKey")
        origin = self._by_header.get((name, domain.lstrip(".")))
        known = known_as(name, domain)
        return Cookie(
            name=name[:500],
            domain=domain,
            path=told["path"][:500],
            party=party,
            expires=expires,
            lifetime_seconds=None if expires is None else round(expires - now),
            http_only=told["httpOnly"],
            secure=told["secure"],
            same_site=told.get("sameSite", "None"),
            partition=partition,
            size=len(name.encode()) + len(value.encode()),
            value_sha256=hashlib.sha256(value.encode()).hexdigest(),
            set_by="script" if origin is None else "header",
            set_from=origin,
            first_seen_on=self._first_seen.get(_identity(told)),
            blocked_by_default=party == "third" and partition is None,
            purpose=known.purpose,
            vendor=known.vendor,
            about=known.about,
        )


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


def _set(line: str, host: str) -> tuple[str, str]:
    """Name and domain of a cookie, as an answer of `host` sets it."""
    pair, *attributes = line.split(";")
    domain = host
    for attribute in attributes:
        name, _, value = attribute.partition("=")
        if name.strip().lower() == "domain" and value.strip():
            domain = value.strip().lstrip(".").lower()
    return pair.partition("=")[0].strip(), domain


def _identity(cookie: dict[str, Any]) -> tuple[Any, ...]:
    return cookie["name"], cookie["domain"], cookie["path"], cookie.get("partitionKey")


def _banner(buttons: dict[Any, Button | None]) -> Banner | None:
    found = buttons["accept"] or buttons["reject"]
    return None if found is None else replace(found.banner, button="")


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


def _host(origin: str) -> str:
    return urlsplit(origin).hostname or ""


def _first_line(error: Error) -> str:
    return error.message.partition("\n")[0][:300]


async def _quietly(work: Any) -> None:
    with suppress(Error):
        await work


@lru_cache(maxsize=1)
def _reader() -> str:
    return files(__package__).joinpath("pages.js").read_text(encoding="utf-8")
