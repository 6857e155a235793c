"""The browsers of a worker: limited in number and replaced after some scans.

Each browser is the child of a process of ours (`browser_process`) and has its own folder.
"""

import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import IO, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from floodmark.errors import Permanent, SlowDown, SourceError, Transient
from floodmark.process.framing import HEAD, encode_message, read_length

from .browser import require_browser
from .findings import ScanRecord
from .messages import LARGEST, BrowserRules, Order, PrintOrder, RenderedPage, RenderOrder, ScanAnswer, Start

# Further browsers to try after a crash.
_MORE_BROWSERS = 2
_EXIT_SECONDS = 10.0
_START_SECONDS = 90.0
# In addition to the scan's own limit: for its last page and the other phases.
_EXTRA_SECONDS, _RENDER_EXTRA_SECONDS = 300.0, 120.0
_BUSY = timedelta(seconds=15)
_SHOWN = 2000
_UNREACHABLE_HINT = "check the spelling of the domain, and open it in your own browser"
# Variables that the browser's process needs. It gets no others, so that no page can read secrets.
_ENVIRONMENT = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "FONTCONFIG_PATH", "SYSTEMROOT")
_ENVIRONMENT_PREFIXES = ("PYTHON", "PLAYWRIGHT_")


PAGES_PER_SCAN = 10
"""Rendered pages that cost a browser as much as a scan."""
T = TypeVar("T")


class BrowserCrashed(Transient):
    """The browser or its parent process has ended."""


class UnreachableSite(Transient):
    """The start page cannot be loaded."""


class Pool:
    """Runs scans in a limited number of browsers."""

    def __init__(self, rules: BrowserRules) -> None:
        self._rules = rules
        self._free: list[_Browser] = []
        self._room = asyncio.Semaphore(rules.browsers)
        self.waiting, self.started = 0, 0

    async def close(self) -> None:
        """End all idle browsers; the others end with their scans."""
        while self._free:
            await self._free.pop().end()

    async def scan(self, order: Order) -> ScanRecord:
        """Run a scan, in another browser if the first one crashes. A cancelled scan ends its browser."""
        async with self._slot():
            return await self._use_browser(lambda browser: browser.scan(order), _MORE_BROWSERS)

    async def render(self, order: RenderOrder) -> RenderedPage:
        """Render a page, in another browser if the first one crashes. Waits as long as all browsers are in use."""
        async with self._room:
            return await self._use_browser(lambda browser: browser.render(order), 1)

    async def print(self, order: PrintOrder) -> None:
        """Print a page, in another browser if the first one crashes."""
        async with self._room:
            await self._use_browser(lambda browser: browser.print(order), 1)

    async def _use_browser(self, work: "Callable[[_Browser], Awaitable[T]]", more: int) -> T:
        for left in range(more, -1, -1):
            browser = await self._take_browser()
            try:
                found = await work(browser)
            except BrowserCrashed:
                await browser.end()
                if not left:
                    raise
                continue
            except SourceError:
                # An error of the site: the browser can be used again.
                await self._return_browser(browser)
                raise
            except BaseException:
                await browser.end()
                raise
            await self._return_browser(browser)
            return found
        raise AssertionError("unreachable")

    @asynccontextmanager
    async def _slot(self) -> AsyncIterator[None]:
        """Wait for a free browser slot. As many scans may wait as there are browsers; the others are snoozed."""
        if self._room.locked() and self.waiting >= self._rules.browsers:
            raise SlowDown(_BUSY, None, "all browsers of this worker are busy")
        self.waiting += 1
        try:
            await self._room.acquire()
        finally:
            self.waiting -= 1
        try:
            yield
        finally:
            self._room.release()

    async def _take_browser(self) -> "_Browser":
        while self._free:
            browser = self._free.pop()
            if browser.is_alive:
                return browser
            await browser.end()
        self.started += 1
        return await _Browser.start(self._rules)

    async def _return_browser(self, browser: "_Browser") -> None:
        if browser.scans >= self._rules.scans_each:
            # Browsers use more memory with every page.
            await browser.end()
        else:
            self._free.append(browser)


class _Browser:
    """One browser and its parent process."""

    def __init__(self, process: asyncio.subprocess.Process, folder: Path, log: IO[bytes]) -> None:
        self._process, self._folder, self._log = process, folder, log
        self.scans = 0.0

    @classmethod
    async def start(cls, rules: BrowserRules) -> "_Browser":
        """Start a browser and wait until it is ready; on any error leave no process or file."""
        executable = require_browser(rules.chromium, os.environ)
        folder = Path(tempfile.mkdtemp(prefix="floodmark-browser-"))
        log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the browser
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "floodmark.sources.cookies.browser_process"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env=_environment(),
                # Its own group: Ctrl-C must reach only us.
                start_new_session=True,
            )
        except BaseException:
            log.close()
            shutil.rmtree(folder, ignore_errors=True)
            raise
        browser = cls(process, folder, log)
        try:
            # Chromium's sandbox does not work as root.
            sandbox = rules.sandbox and getattr(os, "geteuid", lambda: 1)() != 0
            start = Start(executable=str(executable), folder=str(folder), rules=replace(rules, sandbox=sandbox))
            await browser._request(start, _START_SECONDS)
        except BaseException:
            await browser.end()
            raise
        return browser

    @property
    def is_alive(self) -> bool:
        """Whether the parent process is running. The browser itself may have ended."""
        return self._process.returncode is None

    async def scan(self, order: Order) -> ScanRecord:
        """Run one scan. After `BrowserCrashed` this browser cannot be used again, after other errors it can."""
        self.scans += 1
        answer = await self._request(order, order.scan_seconds + _EXTRA_SECONDS)
        if answer.refused is not None:
            raise Permanent(answer.refused, hint="to scan it all the same, add the host to HTTP_ALLOW_HOSTS")
        if answer.unreachable is not None:
            is_cert = "ERR_CERT" in answer.unreachable
            hint = (
                "its certificate is not valid; to scan it all the same use --insecure" if is_cert else _UNREACHABLE_HINT
            )
            raise UnreachableSite(answer.unreachable, hint=hint)
        assert answer.found is not None
        return answer.found

    async def render(self, order: RenderOrder) -> RenderedPage:
        """Render one page. After `BrowserCrashed` this browser cannot be used again, after other errors it can."""
        self.scans += 1 / PAGES_PER_SCAN
        answer = await self._request(order, order.page_seconds + order.wait_seconds + _RENDER_EXTRA_SECONDS)
        if answer.refused is not None or answer.unreachable is not None:
            raise Permanent(f"cannot be rendered: {answer.refused or answer.unreachable}")
        assert answer.page is not None
        return answer.page

    async def print(self, order: PrintOrder) -> None:
        """Print one page. After `BrowserCrashed` this browser cannot be used again, after other errors it can."""
        self.scans += 1
        answer = await self._request(order, order.seconds + _RENDER_EXTRA_SECONDS)
        if answer.unreachable is not None:
            raise Permanent(answer.unreachable, hint="use another format, such as html, and print it yourself")

    async def _request(self, message: Struct, seconds: float) -> ScanAnswer:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            async with asyncio.timeout(seconds):
                stdin.write(encode_message(message))
                await stdin.drain()
                length = read_length(await stdout.readexactly(HEAD))
                if length > LARGEST:
                    raise BrowserCrashed(f"a response of {length} bytes is too large")
                answer = msgspec.msgpack.decode(await stdout.readexactly(length), type=ScanAnswer)
        except TimeoutError:
            raise BrowserCrashed(f"the browser did not respond within {seconds:g} s", hint=_crash_hint()) from None
        except (OSError, asyncio.IncompleteReadError):
            raise BrowserCrashed(f"the browser's process has ended: {self._read_log()}", hint=_crash_hint()) from None
        if answer.crashed is not None:
            raise BrowserCrashed(answer.crashed, hint=_crash_hint(answer.crashed))
        return answer

    def _read_log(self) -> str:
        self._log.seek(0)
        text = self._log.read().decode(errors="replace").strip()
        return text[-_SHOWN:] or "its log is empty"

    async def end(self) -> None:
        """End the browser with all its processes and files, also during a cancellation; takes a few seconds at most."""
        stdin = self._process.stdin
        assert stdin is not None
        # The end of its input ends everything: see `browser_process`.
        stdin.close()
        try:
            async with asyncio.timeout(_EXIT_SECONDS):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
        finally:
            self._log.close()
            with suppress(OSError):
                shutil.rmtree(self._folder, ignore_errors=True)


def _environment() -> dict[str, str]:
    return {
        name: value
        for name, value in os.environ.items()
        if name in _ENVIRONMENT or name.startswith(_ENVIRONMENT_PREFIXES)
    }


def _crash_hint(message: str = "") -> str:
    if "sandbox" in message.lower():
        return "if this system does not support Chromium's sandbox, set COOKIES_SANDBOX=false"
    return "check that it starts: run the path that python -m floodmark.sources.cookies.browser prints with --headless"
