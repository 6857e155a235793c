"""The browsers of a worker: so many at once, replaced after so many scans, and gone with the scan they were used for.

Each is a process of ours (`keeper`) that holds the browser below it, in a folder of its own.
"""

import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import IO

import msgspec
from msgspec import Struct

from floodmark.errors import Permanent, SlowDown, SourceError, Transient

from .browser import require_browser
from .findings import Found
from .messages import HEAD, LARGEST, Order, ScanAnswer, Start, framed, length_of

# A scan that made its browser crash is tried in so many others.
_OTHERS = 2
_LEAVING_SECONDS = 10.0
_STARTING_SECONDS = 90.0
# More than the scan may take by itself: for loading the last page, and for the other phases.
_BEYOND_SECONDS = 300.0
_BUSY = timedelta(seconds=15)
_SHOWN = 2000
_SPELLING = "is the domain written correctly, and does it answer? try it in a browser of yours"
# What a process of ours needs to run; it is told nothing that a page could want to know.
_ENVIRONMENT = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "FONTCONFIG_PATH", "SYSTEMROOT")
_ENVIRONMENT_STARTS = ("PYTHON", "PLAYWRIGHT_")


class BrowserRules(Struct, frozen=True, kw_only=True):
    """What the settings say of browsers."""

    chromium: Path | None = None
    browsers: int = 1
    scans_each: int = 20
    sandbox: bool = True
    third_party_cookies: bool = True
    user_agent: str = ""
    allow_hosts: str = ""
    resolve: Mapping[str, Sequence[str]] = {}


class BrowserCrashed(Transient):
    """The browser, or the process that holds it, went away."""


class UnreachableSite(Transient):
    """Nobody answers at the start page."""


class Pool:
    """Hands out browsers to scans."""

    def __init__(self, rules: BrowserRules) -> None:
        self._rules = rules
        self._free: list[_Browser] = []
        self._room = asyncio.Semaphore(rules.browsers)
        self.waiting, self.started = 0, 0

    async def close(self) -> None:
        """End every browser that is idle; those in use end with their scans."""
        while self._free:
            await self._free.pop().end()

    async def scan(self, order: Order) -> Found:
        """One scan; in another browser if the first goes away. Cancelled, it takes its browser with it."""
        async with self._turn():
            for left in range(_OTHERS, -1, -1):
                browser = await self._browser()
                try:
                    found = await browser.scan(order)
                except BrowserCrashed:
                    await browser.end()
                    if not left:
                        raise
                    continue
                except SourceError:
                    # It was about the site; the browser is fine.
                    await self._give_back(browser)
                    raise
                except BaseException:
                    await browser.end()
                    raise
                await self._give_back(browser)
                return found
        raise AssertionError("unreachable")

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """Room for one more browser. One scan for each may wait, so that none is idle; the others leave their slots."""
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

    async def _browser(self) -> "_Browser":
        while self._free:
            browser = self._free.pop()
            if browser.is_alive:
                return browser
            await browser.end()
        self.started += 1
        return await _Browser.start(self._rules)

    async def _give_back(self, browser: "_Browser") -> None:
        if browser.scans >= self._rules.scans_each:
            # They grow with every page.
            await browser.end()
        else:
            self._free.append(browser)


class _Browser:
    """One browser and the process that holds it."""

    def __init__(self, process: asyncio.subprocess.Process, folder: Path, log: IO[bytes]) -> None:
        self._process, self._folder, self._log = process, folder, log
        self.scans = 0

    @classmethod
    async def start(cls, rules: BrowserRules) -> "_Browser":
        """A browser that is ready; whatever happens on the way, nothing is left behind."""
        executable = require_browser(rules.chromium, os.environ)
        folder = Path(tempfile.mkdtemp(prefix="floodmark-browser-"))
        log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the browser
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "floodmark.sources.cookies.keeper"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env=_environment(),
                # Not of our group: a Ctrl-C is for us, and we tell it.
                start_new_session=True,
            )
        except BaseException:
            log.close()
            shutil.rmtree(folder, ignore_errors=True)
            raise
        browser = cls(process, folder, log)
        try:
            started = Start(
                executable=str(executable),
                folder=str(folder),
                third_party_cookies=rules.third_party_cookies,
                # Chromium refuses its sandbox to root.
                sandbox=rules.sandbox and getattr(os, "geteuid", lambda: 1)() != 0,
                user_agent=rules.user_agent,
                allow_hosts=rules.allow_hosts,
                resolve=rules.resolve,
            )
            await browser._ask(started, _STARTING_SECONDS)
        except BaseException:
            await browser.end()
            raise
        return browser

    @property
    def is_alive(self) -> bool:
        """Whether its process is there; the browser may still be gone."""
        return self._process.returncode is None

    async def scan(self, order: Order) -> Found:
        """One scan. `BrowserCrashed`: this browser is of no more use. `UnreachableSite`: it is, but nobody answers."""
        self.scans += 1
        answer = await self._ask(order, order.scan_seconds + _BEYOND_SECONDS)
        if answer.refused is not None:
            raise Permanent(answer.refused, hint="name the host in HTTP_ALLOW_HOSTS if it is meant to be scanned")
        if answer.unreachable is not None:
            is_cert = "ERR_CERT" in answer.unreachable
            hint = "is its certificate valid? to scan it all the same: --insecure" if is_cert else _SPELLING
            raise UnreachableSite(answer.unreachable, hint=hint)
        assert answer.found is not None
        return answer.found

    async def _ask(self, message: Struct, seconds: float) -> ScanAnswer:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            async with asyncio.timeout(seconds):
                stdin.write(framed(message))
                await stdin.drain()
                length = length_of(await stdout.readexactly(HEAD))
                if length > LARGEST:
                    raise BrowserCrashed(f"an answer of {length} bytes is too large")
                answer = msgspec.msgpack.decode(await stdout.readexactly(length), type=ScanAnswer)
        except TimeoutError:
            raise BrowserCrashed(f"the browser did not answer within {seconds:g} s", hint=_look()) from None
        except (OSError, asyncio.IncompleteReadError):
            raise BrowserCrashed(f"the process of the browser ended: {self._last_words()}", hint=_look()) from None
        if answer.crashed is not None:
            raise BrowserCrashed(answer.crashed, hint=_look(answer.crashed))
        return answer

    def _last_words(self) -> str:
        self._log.seek(0)
        said = self._log.read().decode(errors="replace").strip()
        return said[-_SHOWN:] or "it said nothing"

    async def end(self) -> None:
        """Let nothing of it be left. Also when we are being cancelled: it takes a moment, not more."""
        stdin = self._process.stdin
        assert stdin is not None
        # What ends everything: see `keeper`.
        stdin.close()
        try:
            async with asyncio.timeout(_LEAVING_SECONDS):
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
        if name in _ENVIRONMENT or name.startswith(_ENVIRONMENT_STARTS)
    }


def _look(told: str = "") -> str:
    if "sandbox" in told.lower():
        return "where the system lacks what its sandbox needs: COOKIES_SANDBOX=false"
    return "see whether it runs at all: python -m floodmark.sources.cookies.browser prints it; try it with --headless"
