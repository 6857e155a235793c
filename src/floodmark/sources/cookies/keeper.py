"""The process of one browser: it drives it, and sees to it that nothing of it is ever left behind.

    worker  ->  keeper (this)  ->  Playwright's driver  ->  Chromium and its many processes

The worker holds the other end of our standard input. When that closes, for whatever reason - the scan was cancelled,
the worker has left, was killed - every process below us is killed, and the folder of the profile removed. Being their
subreaper (Linux) we also get those that tried to get away from their parents. Should we be killed ourselves, the
driver loses its own input and ends the browser.
"""

import asyncio
import ctypes
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from floodmark.model.hosts import allowed_hosts
from floodmark.outbound.connector import Names, system_lookup
from floodmark.outbound.guard import AddressRefused, Guard
from floodmark.outbound.proxy import GuardedProxy

from .browser import FLAGS, ordinary_agent, prepare_profile, visitor_flags
from .messages import HEAD, Order, ScanAnswer, Start, framed, length_of

_PR_SET_CHILD_SUBREAPER = 36
_KILLING_SECONDS = 5.0
_LAUNCH_MS = 60_000.0


def main() -> None:
    """Serve until the standard input closes."""
    _become_subreaper()
    start = _read(sys.stdin.buffer, Start)
    if start is None:
        return
    # What others print must not end up between our messages.
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    # A Ctrl-C at a terminal reaches the whole group; the worker tells us when it is time.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    loop = asyncio.new_event_loop()
    orders: asyncio.Queue[Order] = asyncio.Queue()
    threading.Thread(target=_watch, args=(loop, orders, start), daemon=True).start()
    try:
        loop.run_until_complete(_serve(start, orders, out))
    finally:
        _end(start.folder, 1)


def _watch(loop: asyncio.AbstractEventLoop, orders: "asyncio.Queue[Order]", start: Start) -> None:
    """In a thread of its own, so that nothing the browser does can keep us from noticing the end."""
    while (order := _read(sys.stdin.buffer, Order)) is not None:
        loop.call_soon_threadsafe(orders.put_nowait, order)
    _end(start.folder, 0)


def _read(stream: BinaryIO, kind: Any) -> Any:
    head = stream.read(HEAD)
    if len(head) < HEAD:
        return None
    body = stream.read(length_of(head))
    return msgspec.msgpack.decode(body, type=kind) if len(body) == length_of(head) else None


async def _serve(start: Start, orders: "asyncio.Queue[Order]", out: BinaryIO) -> None:
    from playwright.async_api import Error, async_playwright  # noqa: PLC0415 - takes a second, after the watch is set

    async with AsyncExitStack() as stack:
        way_out = _WayOut(start)
        flags = await way_out.open(stack)
        driver = await stack.enter_async_context(async_playwright())
        folder = Path(start.folder)
        prepare_profile(folder, third_party_cookies=start.third_party_cookies)
        agent_flags = visitor_flags(start.executable, start.user_agent)
        try:
            context = await driver.chromium.launch_persistent_context(
                folder,
                executable_path=start.executable,
                headless=True,
                chromium_sandbox=start.sandbox,
                args=[*FLAGS, *flags, *agent_flags],
                env=_environment(folder),
                timeout=_LAUNCH_MS,
                handle_sigint=False,
                handle_sigterm=False,
                handle_sighup=False,
            )
        except Error as error:
            _answer(out, ScanAnswer(crashed=f"the browser does not start: {error.message[:2000]}"))
            return
        browser = context.browser
        assert browser is not None
        user_agent = start.user_agent or await _agent_of(browser)
        _answer(out, ScanAnswer())
        while True:
            answer = await _scanned(browser, await orders.get(), way_out, user_agent)
            _answer(out, answer)
            if answer.crashed is not None:
                return


class _WayOut:
    """Names are looked up and addresses dialled by the guard's proxy alone, never by the browser."""

    def __init__(self, start: Start) -> None:
        guard = Guard(allowed_hosts(start.allow_hosts))
        self._names = Names(guard, start.resolve, system_lookup)
        self._proxy = GuardedProxy(guard, self._names)

    async def open(self, stack: AsyncExitStack) -> list[str]:
        """Open it for as long as the stack; the flags that send the browser there."""
        await stack.enter_async_context(self._proxy)
        return [
            f"--proxy-server={self._proxy.url}",
            "--proxy-bypass-list=<-loopback>",
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
        ]

    async def why_refused(self, order: Order) -> str | None:
        """Why the domain itself may not be scanned. The browser would take the proxy's answer for the page."""
        try:
            await self._names.addresses(urlsplit(order.starts[0]).hostname or "")
        except AddressRefused as refused:
            return str(refused)
        except OSError:
            # Nobody knows it: the browser will say so.
            return None
        return None

    def notes(self) -> tuple[str, ...]:
        """What pages asked for and did not get, since the last time."""
        told = tuple(f"not let through: {refused}" for refused in sorted(set(self._proxy.refused)))
        self._proxy.refused.clear()
        return told


async def _agent_of(browser: Any) -> str:
    """The user agent of this browser when a person uses it."""
    session = await browser.new_browser_cdp_session()
    told = await session.send("Browser.getVersion")
    await session.detach()
    return ordinary_agent(str(told["userAgent"]))


async def _scanned(browser: Any, order: Order, way_out: _WayOut, user_agent: str) -> ScanAnswer:
    from .scan import Crashed, PageUnreachable, scan  # noqa: PLC0415 - as above

    if (why := await way_out.why_refused(order)) is not None:
        return ScanAnswer(refused=why)
    way_out.notes()
    try:
        found = await scan(browser, order, user_agent)
    except PageUnreachable as told:
        return ScanAnswer(unreachable=str(told))
    except Crashed as told:
        return ScanAnswer(crashed=str(told))
    return ScanAnswer(found=replace(found, notes=(*found.notes, *way_out.notes())))


def _answer(out: BinaryIO, answer: ScanAnswer) -> None:
    try:
        out.write(framed(answer))
        out.flush()
    except BrokenPipeError:
        # Nobody listens any more; the watch is about to end us.
        time.sleep(_KILLING_SECONDS)


def _environment(folder: Path) -> dict[str, str | float | bool]:
    """What a browser needs, and none of what a worker knows. Its profile is its home: it writes nowhere else."""
    kept = {
        name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL", "TZ", "FONTCONFIG_PATH") if name in os.environ
    }
    return {**kept, "HOME": str(folder), "XDG_CONFIG_HOME": str(folder), "XDG_CACHE_HOME": str(folder)}


def _become_subreaper() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _end(folder: str, code: int) -> None:
    """Kill everything below us, remove the profile, and leave."""
    deadline = time.monotonic() + _KILLING_SECONDS
    while (below := list(descendants(os.getpid()))) and time.monotonic() < deadline:
        for pid in below:
            _kill(pid)
        _reap()
        time.sleep(0.02)
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(code)


def descendants(root: int) -> Iterator[int]:
    """All processes below one, where there is a /proc to tell; those that have ended and wait to be reaped too."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The name is in parentheses and may hold anything, even parentheses.
            fields = entry.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append(int(entry.parent.name))
    waiting = [root]
    while waiting:
        for pid in children.get(waiting.pop(), ()):
            waiting.append(pid)
            yield pid


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


if __name__ == "__main__":
    main()
