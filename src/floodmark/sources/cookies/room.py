"""One phase of a scan: a browser context that knows nothing of the others, its page, and everything seen in it.

Runs in the browser's process.
"""

import asyncio
import hashlib
import json
import re
import secrets
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from datetime import timedelta
from functools import lru_cache
from importlib.resources import files
from typing import Any, cast
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace
from playwright.async_api import Browser, BrowserContext, Error, Page, Request, Response
from playwright.async_api import TimeoutError as TookTooLong

from floodmark.rules.backoff import backoff

from .blocked import why_blocked
from .findings import COMPLETE, Area, Contact, Cookie, Phase, PhaseFound, Stored, Visit
from .messages import Order
from .parties import party_of, site_of
from .purposes import known_as

# More than any site has; a page that wants to fill our database has no effect.
_MOST_COOKIES, _MOST_KEYS, _MOST_HOSTS, _MOST_FRAMES = 2000, 2000, 500, 50
_PICTURE_MS, _LOOK_SECONDS = 10_000.0, 5.0
_QUIET_SECONDS, _LONGEST_NOISE_SECONDS, _LISTEN_SECONDS = 0.5, 5.0, 0.05
_PAUSE, _LONGEST_PAUSE = timedelta(seconds=0.5), timedelta(seconds=5)
_VIEW = {"width": 1280, "height": 800}
_LONGEST_ADDRESS = 500


class Shown(Struct, frozen=True):
    """What a page showed."""

    title: str = ""
    text: str = ""
    links: tuple[str, ...] = ()
    agent: str = ""
    is_driven: bool = False
    """What it knows as `navigator.userAgent` and `navigator.webdriver`."""


class Origin(Struct, frozen=True):
    """Who set a cookie: the address of a response or script, and when."""

    url: str | None
    host: str | None
    at: float
    is_inline: bool = False


def is_gone(browser: Browser, error: Error) -> bool:
    """Whether this error is about the browser, and not about a page."""
    return not browser.is_connected() or "has been closed" in error.message


class Room:
    """One phase. Opened and closed as an async context."""

    def __init__(self, browser: Browser, order: Order, user_agent: str | None) -> None:
        self._browser, self._order, self._user_agent = browser, order, user_agent
        # Under this name the pages keep what `witness.js` has seen; they cannot know it beforehand.
        self.token = f"_{secrets.token_hex(8)}"
        self.seen = Shown()
        self.began_at: float | None = None
        self.left_out: list[str] = []
        self._visits: list[Visit] = []
        self._hosts: dict[str, Counter[str]] = {}
        self._is_crowded = False
        self._open: set[Request] = set()
        self._stirred = 0.0
        self._by_header: dict[tuple[str, str], Origin] = {}
        self._by_script: dict[tuple[str, str], Origin] = {}
        self._first_seen: dict[tuple[Any, ...], str] = {}
        self._storage: dict[tuple[str, Area, str], tuple[int, str]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._context: BrowserContext | None = None
        self._page: Page | None = None

    async def __aenter__(self) -> "Room":
        self._context = await self._browser.new_context(
            accept_downloads=False,
            ignore_https_errors=self._order.params.insecure,
            viewport=cast(Any, _VIEW),
            locale="en-US",
            user_agent=self._user_agent,
        )
        self._context.on("request", self._requested)
        self._context.on("response", self._answered)
        self._context.on("requestfinished", self._ended)
        self._context.on("requestfailed", self._ended)
        await self._context.add_init_script(script=witness(self.token))
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
        """The page that is being looked at."""
        assert self._page is not None
        return self._page

    @property
    def is_quiet(self) -> bool:
        """Whether the network has been silent for a moment."""
        return not self._open and time.monotonic() - self._stirred >= _QUIET_SECONDS

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
        self._start(self._read_headers(response, time.time()))

    async def _read_headers(self, response: Response, at: float) -> None:
        host = urlsplit(response.url).hostname or ""
        with suppress(Error):
            for line in await response.header_values("set-cookie"):
                self._by_header.setdefault(_set(line, host), Origin(_address(response.url), host, at))

    async def visit(self, url: str, depth: int = 0) -> Visit:
        """Load a page, let it do what it does, and look at what is there then."""
        if self.began_at is None:
            self.began_at = time.time()
        visit = Visit(url=url, result="failed", depth=depth)
        for tries in range(1, self._order.params.max_retries + 2):
            visit = replace(await self._load(url, depth), tries=tries)
            if visit.result in (COMPLETE, "blocked page"):
                break
            await asyncio.sleep(backoff(tries, base=_PAUSE, longest=_LONGEST_PAUSE).total_seconds())
        self._visits.append(visit)
        return visit

    async def _load(self, url: str, depth: int) -> Visit:
        visit = Visit(url=url, result="complete", depth=depth)
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
        told = first_line(error)
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
        while time.monotonic() < until and not self.is_quiet:  # noqa: ASYNC110
            await asyncio.sleep(_LISTEN_SECONDS)

    async def look(self) -> None:
        """Read what the page and its frames hold, and which cookies have come since the last look."""
        self.seen = Shown()
        for frame in self.page.frames[:_MOST_FRAMES]:
            told = await self._told_by(frame)
            if told is None:
                continue
            if frame is self.page.main_frame:
                links = tuple(told["links"])
                self.seen = Shown(told["title"], told["text"], links, told["agent"], told["isDriven"])
            self._keep_storage(told)
            for write in told["writes"]:
                domain = (write["domain"] or write["host"]).lstrip(".").lower()
                script = write["script"] or ""
                origin = Origin(_address(script), _host(script) or None, float(write["at"]), bool(write["isInline"]))
                self._by_script.setdefault((write["name"], domain), origin)
        for cookie in await self._cookies():
            self._first_seen.setdefault(_identity(cookie), self.page.url)

    def _keep_storage(self, told: dict[str, Any]) -> None:
        areas: tuple[Area, ...] = ("local", "session")
        for area in areas:
            for key, size in told[area]:
                self._storage[(told["origin"], area, key)] = (size, "")
        named: tuple[Area, ...] = ("indexeddb", "cache", "worker")
        for area in named:
            for key, detail in told[area]:
                self._storage[(told["origin"], area, key)] = (0, detail)

    async def _told_by(self, frame: Any) -> dict[str, Any] | None:
        try:
            async with asyncio.timeout(_LOOK_SECONDS):
                return cast("dict[str, Any]", await frame.evaluate(reader(), self.token))
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
            self.left_out.append(f"the picture: {first_line(error)}")
            return None

    async def told(self, phase: Phase, site: str, result: Any) -> PhaseFound:
        """Everything that was found in this room."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_LOOK_SECONDS)
        now = time.time()
        cookies = [self._cookie(cookie, site, now) for cookie in await self._cookies()]
        cookies.sort(key=lambda cookie: (cookie.party, cookie.domain.lstrip("."), cookie.name, cookie.path))
        storage = [
            Stored(origin=origin, area=area, key=key, size=size, party=party_of(_host(origin), site), detail=detail)
            for (origin, area, key), (size, detail) in sorted(self._storage.items())
        ]
        for what, found, most in (("cookies", cookies, _MOST_COOKIES), ("keys in storage", storage, _MOST_KEYS)):
            if len(cast("list[object]", found)) > most:
                self.left_out.append(f"{len(found) - most} {what}")
        if self._is_crowded:
            self.left_out.append(f"hosts beyond the first {_MOST_HOSTS}")
        return PhaseFound(
            phase=phase,
            result=result,
            began_at=self.began_at,
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
        key = (name, domain.lstrip("."))
        origin = self._by_header.get(key) or self._by_script.get(key)
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
            set_by="header" if key in self._by_header else "script",
            set_from=None if origin is None else origin.host,
            set_by_url=None if origin is None else origin.url,
            set_inline=origin is not None and origin.is_inline,
            set_at=None if origin is None else round(origin.at, 3),
            first_seen_on=self._first_seen.get(_identity(told)),
            blocked_by_default=party == "third" and partition is None,
            purpose=known.purpose,
            vendor=known.vendor,
            about=known.about,
        )


def _set(line: str, host: str) -> tuple[str, str]:
    """Name and domain of a cookie, as a response of `host` sets it."""
    pair, *attributes = line.split(";")
    domain = host
    for attribute in attributes:
        name, _, value = attribute.partition("=")
        if name.strip().lower() == "domain" and value.strip():
            domain = value.strip().lstrip(".").lower()
    return pair.partition("=")[0].strip(), domain


def _identity(cookie: dict[str, Any]) -> tuple[Any, ...]:
    return cookie["name"], cookie["domain"], cookie["path"], cookie.get("partitionKey")


def _address(url: str) -> str | None:
    """An address without its query, which may hold what identifies a visitor."""
    return re.split(r"[?#]", url, maxsplit=1)[0][:_LONGEST_ADDRESS] or None


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        # Whatever a page wrote into its stack.
        return ""


def first_line(error: Error) -> str:
    """The first line of an error of the browser."""
    return error.message.partition("\n")[0][:300]


async def _quietly(work: Any) -> None:
    with suppress(Error):
        await work


@lru_cache(maxsize=1)
def reader() -> str:
    """The script that tells what a frame holds."""
    return files(__package__).joinpath("pages.js").read_text(encoding="utf-8")


def witness(token: str) -> str:
    """The script that runs in every frame before its own scripts, and keeps its notes under this name."""
    source = files(__package__).joinpath("witness.js").read_text(encoding="utf-8")
    return f"(\n{source.strip()}\n)({json.dumps(token)});"
