"""One phase of a scan: its own browser context and page, and what was recorded in it.

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
from .parties import party_of, registrable_domain
from .purposes import find_purpose
from .tcf import TcString, decode_tc_string

# More than any site needs; they keep a hostile page from filling the database.
_MAX_COOKIES, _MAX_KEYS, _MAX_HOSTS, _MAX_FRAMES = 2000, 2000, 500, 50
_PICTURE_MS, _READ_SECONDS = 10_000.0, 5.0
_QUIET_SECONDS, _MAX_NOISE_SECONDS, _POLL_SECONDS = 0.5, 5.0, 0.05
_PAUSE, _LONGEST_PAUSE = timedelta(seconds=0.5), timedelta(seconds=5)
_VIEW = {"width": 1280, "height": 800}
_LONGEST_URL = 500
_TC_COOKIES = ("euconsent-v2", "eupubconsent-v2")
_GPC = """Object.defineProperty(Navigator.prototype, "globalPrivacyControl", {
    get: () => true, configurable: true, enumerable: true });"""


class PageContent(Struct, frozen=True):
    """The content of a page."""

    title: str = ""
    text: str = ""
    links: tuple[str, ...] = ()
    agent: str = ""
    is_driven: bool = False
    """`agent` and `is_driven` are `navigator.userAgent` and `navigator.webdriver`."""


class Origin(Struct, frozen=True):
    """What set a cookie: the URL of a response or script, and when."""

    url: str | None
    host: str | None
    at: float
    is_inline: bool = False


def is_gone(browser: Browser, error: Error) -> bool:
    """Return whether an error is about the browser and not about a page."""
    return not browser.is_connected() or "has been closed" in error.message


class PhaseContext:
    """The browser context of one phase; to be used with `async with`."""

    def __init__(self, browser: Browser, order: Order, user_agent: str | None) -> None:
        self._browser, self._order, self._user_agent = browser, order, user_agent
        # The global name of `observer.js` in pages; random, so that they cannot know it.
        self.token = f"_{secrets.token_hex(8)}"
        self.seen = PageContent()
        self.began_at: float | None = None
        self.left_out: list[str] = []
        self._visits: list[Visit] = []
        self._hosts: dict[str, Counter[str]] = {}
        self._is_crowded = False
        self._open: set[Request] = set()
        self._active_at = 0.0
        self._by_header: dict[tuple[str, str], Origin] = {}
        self._by_script: dict[tuple[str, str], Origin] = {}
        self._first_seen: dict[tuple[Any, ...], str] = {}
        self._tcf: TcString | None = None
        self._storage: dict[tuple[str, Area, str], tuple[int, str]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._context: BrowserContext | None = None
        self._page: Page | None = None

    async def __aenter__(self) -> "PhaseContext":
        params = self._order.params
        self._context = await self._browser.new_context(
            accept_downloads=False,
            ignore_https_errors=params.insecure,
            viewport=cast(Any, _VIEW),
            locale=params.locale or "en-US",
            timezone_id=params.browser_timezone,
            # No permission is granted, and questions for one are refused without a dialog.
            permissions=[],
            extra_http_headers={"Sec-GPC": "1"} if params.gpc else None,
            user_agent=self._user_agent,
        )
        self._context.on("request", self._on_request)
        self._context.on("response", self._on_response)
        self._context.on("requestfinished", self._on_request_end)
        self._context.on("requestfailed", self._on_request_end)
        await self._context.add_init_script(script=observer_script(self.token))
        if params.gpc:
            await self._context.add_init_script(script=_GPC)
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
        """The current page."""
        assert self._page is not None
        return self._page

    @property
    def is_quiet(self) -> bool:
        """Whether there has been no network traffic for a moment."""
        return not self._open and time.monotonic() - self._active_at >= _QUIET_SECONDS

    async def _open_page(self) -> None:
        assert self._context is not None
        self._page = await self._context.new_page()
        # Close all windows that a page opens.
        self._page.on("popup", lambda popup: self._start(_ignore_errors(popup.close())))

    def _start(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _on_request_end(self, request: Request) -> None:
        self._open.discard(request)
        self._active_at = time.monotonic()

    def _on_request(self, request: Request) -> None:
        self._open.add(request)
        self._active_at = time.monotonic()
        host = urlsplit(request.url).hostname
        if not host or not request.url.startswith(("http:", "https:")):
            return
        if host not in self._hosts and len(self._hosts) >= _MAX_HOSTS:
            self._is_crowded = True
            return
        self._hosts.setdefault(host, Counter())[request.resource_type] += 1

    def _on_response(self, response: Response) -> None:
        self._start(self._read_headers(response, time.time()))

    async def _read_headers(self, response: Response, at: float) -> None:
        host = urlsplit(response.url).hostname or ""
        with suppress(Error):
            for line in await response.header_values("set-cookie"):
                self._by_header.setdefault(_parse_set_cookie(line, host), Origin(_strip_query(response.url), host, at))

    async def visit(self, url: str, depth: int = 0) -> Visit:
        """Load a page, wait until it has settled, and record its content."""
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
        # Requests of the previous page: their end is not always reported.
        self._open.clear()
        try:
            response = await self.page.goto(url, wait_until="domcontentloaded", timeout=self._order.page_seconds * 1000)
        except TookTooLong:
            await self.read_page()
            return replace(visit, result="time-out", note=f"not loaded after {self._order.page_seconds:g} s")
        except Error as error:
            return replace(visit, result="failed", note=await self._handle_failure(error))
        status = None if response is None else response.status
        if status is not None and status >= 500:
            return replace(visit, result="failed", status=status, note=f"status {status}")
        await self.settle()
        await self.read_page()
        visit = replace(visit, status=status, title=self.seen.title)
        if (why := why_blocked(status, self.seen.title, self.seen.text)) is not None:
            return replace(visit, result="blocked page", note=why)
        return visit

    async def _handle_failure(self, error: Error) -> str:
        """Open a new tab and return why the page could not be loaded; raise if the browser has ended."""
        message = first_line(error)
        if is_gone(self._browser, error):
            raise error
        # The rest of this page must not interfere with the next one.
        await _ignore_errors(self.page.close())
        await self._open_page()
        if "crashed" in message:
            return "the browser's tab crashed"
        found = re.search(r"net::ERR_[A-Z_]+", message)
        return found[0].removeprefix("net::") if found else message

    async def settle(self) -> None:
        """Wait until the page is loaded, its scripts had their time and the network is quiet, within limits.

        Playwright's "networkidle" fires once per page, and not again after a button was pressed.
        """
        with suppress(TookTooLong):
            await self.page.wait_for_load_state("load", timeout=self._order.page_seconds * 1000)
        self._active_at = time.monotonic()
        await asyncio.sleep(self._order.settle_seconds)
        until = time.monotonic() + _MAX_NOISE_SECONDS
        # There is no event for silence.
        while time.monotonic() < until and not self.is_quiet:  # noqa: ASYNC110
            await asyncio.sleep(_POLL_SECONDS)

    async def read_page(self) -> None:
        """Record the content and storage of the page and its frames, and new cookies."""
        self.seen = PageContent()
        for frame in self.page.frames[:_MAX_FRAMES]:
            content = await self._read_frame(frame)
            if content is None:
                continue
            if frame is self.page.main_frame:
                title, text, links = content["title"], content["text"], tuple(content["links"])
                self.seen = PageContent(title, text, links, content["agent"], content["isDriven"])
                self._tcf = decode_tc_string(content["tcString"]) or self._tcf
            self._record_storage(content)
            for write in content["writes"]:
                domain = (write["domain"] or write["host"]).lstrip(".").lower()
                script = write["script"] or ""
                origin = Origin(
                    _strip_query(script), _host(script) or None, float(write["at"]), bool(write["isInline"])
                )
                self._by_script.setdefault((write["name"], domain), origin)
        for cookie in await self._cookies():
            self._first_seen.setdefault(_identity(cookie), self.page.url)

    def _record_storage(self, content: dict[str, Any]) -> None:
        origin = content["origin"]
        sized: tuple[Area, ...] = ("local", "session")
        named: tuple[Area, ...] = ("indexeddb", "cache", "worker")
        self._storage |= {(origin, area, key): (size, "") for area in sized for key, size in content[area]}
        self._storage |= {(origin, area, key): (0, detail) for area in named for key, detail in content[area]}

    async def _read_frame(self, frame: Any) -> dict[str, Any] | None:
        try:
            async with asyncio.timeout(_READ_SECONDS):
                return cast("dict[str, Any]", await frame.evaluate(reader_script(), self.token))
        except TimeoutError:
            return None
        except Error as error:
            if is_gone(self._browser, error):
                raise
            # Frames are removed at any time, and some cannot be read.
            return None

    async def _cookies(self) -> list[dict[str, Any]]:
        assert self._context is not None
        return cast("list[dict[str, Any]]", await self._context.cookies())

    async def picture(self) -> bytes | None:
        """Return a screenshot as PNG; None if it fails."""
        try:
            return await self.page.screenshot(type="png", timeout=_PICTURE_MS, animations="disabled")
        except Error as error:
            if is_gone(self._browser, error):
                raise
            self.left_out.append(f"the picture: {first_line(error)}")
            return None

    async def collect(self, phase: Phase, site: str, result: Any) -> PhaseFound:
        """Return the results of this phase."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_READ_SECONDS)
        now = time.time()
        stored = await self._cookies()
        cookies = [self._make_cookie(cookie, site, now) for cookie in stored]
        cookies.sort(key=lambda cookie: (cookie.party, cookie.domain.lstrip("."), cookie.name, cookie.path))
        storage = [
            Stored(origin=origin, area=area, key=key, size=size, party=party_of(_host(origin), site), detail=detail)
            for (origin, area, key), (size, detail) in sorted(self._storage.items())
        ]
        for what, found, most in (("cookies", cookies, _MAX_COOKIES), ("keys in storage", storage, _MAX_KEYS)):
            if len(cast("list[object]", found)) > most:
                self.left_out.append(f"{len(found) - most} {what}")
        if self._is_crowded:
            self.left_out.append(f"hosts after the first {_MAX_HOSTS}")
        return PhaseFound(
            phase=phase,
            result=result,
            began_at=self.began_at,
            visits=tuple(self._visits),
            cookies=tuple(cookies[:_MAX_COOKIES]),
            storage=tuple(storage[:_MAX_KEYS]),
            contacts=tuple(self._contacts(site)),
            tcf=self._tcf or _find_tc_string(stored),
            left_out=tuple(self.left_out),
        )

    def own_hosts(self, site: str) -> set[str]:
        """Return the hosts of the site itself that received requests."""
        return {host for host in self._hosts if party_of(host, site) == "first"}

    def _contacts(self, site: str) -> Iterable[Contact]:
        for host, types in sorted(self._hosts.items()):
            if party_of(host, site) == "third":
                yield Contact(
                    host=host, site=registrable_domain(host), requests=types.total(), types=dict(sorted(types.items()))
                )

    def _make_cookie(self, raw: dict[str, Any], site: str, now: float) -> Cookie:
        name, value, domain = raw["name"], raw["value"], raw["domain"]
        expires = None if raw.get("expires", -1) < 0 else float(raw["expires"])
        party, partition = party_of(domain.lstrip("."), site), raw.get("partitionKey")
        key = (name, domain.lstrip("."))
        origin = self._by_header.get(key) or self._by_script.get(key)
        known = find_purpose(name, domain)
        return Cookie(
            name=name[:500],
            domain=domain,
            path=raw["path"][:500],
            party=party,
            expires=expires,
            lifetime_seconds=None if expires is None else round(expires - now),
            http_only=raw["httpOnly"],
            secure=raw["secure"],
            same_site=raw.get("sameSite", "None"),
            partition=partition,
            size=len(name.encode()) + len(value.encode()),
            value_sha256=hashlib.sha256(value.encode()).hexdigest(),
            set_by="header" if key in self._by_header else "script",
            set_from=None if origin is None else origin.host,
            set_by_url=None if origin is None else origin.url,
            set_inline=origin is not None and origin.is_inline,
            set_at=None if origin is None else round(origin.at, 3),
            first_seen_on=self._first_seen.get(_identity(raw)),
            blocked_by_default=party == "third" and partition is None,
            purpose=known.purpose,
            vendor=known.vendor,
            about=known.about,
        )


def _find_tc_string(cookies: Iterable[dict[str, Any]]) -> TcString | None:
    """Return the choice in a cookie, for consent managers that answer no questions."""
    found = (decode_tc_string(cookie["value"]) for cookie in cookies if cookie["name"] in _TC_COOKIES)
    return next((one for one in found if one is not None), None)


def _parse_set_cookie(line: str, host: str) -> tuple[str, str]:
    """Return name and domain of a cookie from the Set-Cookie header of a response of `host`."""
    pair, *attributes = line.split(";")
    domain = host
    for attribute in attributes:
        name, _, value = attribute.partition("=")
        if name.strip().lower() == "domain" and value.strip():
            domain = value.strip().lstrip(".").lower()
    return pair.partition("=")[0].strip(), domain


def _identity(cookie: dict[str, Any]) -> tuple[Any, ...]:
    return cookie["name"], cookie["domain"], cookie["path"], cookie.get("partitionKey")


def _strip_query(url: str) -> str | None:
    """Return a URL without its query, which may identify a visitor."""
    return re.split(r"[?#]", url, maxsplit=1)[0][:_LONGEST_URL] or None


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        # A page can write anything into its stack trace.
        return ""


def first_line(error: Error) -> str:
    """Return the first line of a browser error."""
    return error.message.partition("\n")[0][:300]


async def _ignore_errors(work: Any) -> None:
    with suppress(Error):
        await work


@lru_cache(maxsize=1)
def reader_script() -> str:
    """Return the script that reads the content of a frame."""
    return files(__package__).joinpath("reader.js").read_text(encoding="utf-8")


def observer_script(token: str) -> str:
    """Return the script that runs first in every frame and keeps its records under the name `token`."""
    source = files(__package__).joinpath("observer.js").read_text(encoding="utf-8")
    return f"(\n{source.strip()}\n)({json.dumps(token)});"
