"""The parent process of one browser: drives it, and leaves no process or file behind.

    worker  ->  this process  ->  Playwright's driver  ->  Chromium and its many processes

The worker holds the other end of our standard input. When it closes, because a scan was cancelled or the worker has
ended or was killed, this process kills all its descendants and deletes the profile. As their subreaper (Linux) it also
finds processes whose parents have ended. If this process is killed, the driver loses its input and ends the browser.
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
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from floodmark.model.hosts import allowed_hosts, parse_dns_server
from floodmark.outbound.cname import system_server
from floodmark.outbound.connector import Names, system_lookup
from floodmark.outbound.guard import AddressRefused, Guard
from floodmark.outbound.proxy import GuardedProxy
from floodmark.process.framing import HEAD, encode_message, read_length

from .browser import FLAGS, ordinary_agent, prepare_profile, visitor_flags
from .messages import BrowserRules, Order, PrintOrder, RenderOrder, ScanAnswer, Start

AnyOrder = Order | RenderOrder | PrintOrder
_PR_SET_CHILD_SUBREAPER = 36
_KILL_SECONDS = 5.0
_LAUNCH_MS = 60_000.0


def main() -> None:
    """Run scans until the standard input closes."""
    _become_subreaper()
    start = _read(sys.stdin.buffer, Start)
    if start is None:
        return
    # Other output must not mix with our messages.
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    # Ctrl-C reaches the whole process group; only the worker ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    loop = asyncio.new_event_loop()
    orders: asyncio.Queue[AnyOrder] = asyncio.Queue()
    threading.Thread(target=_read_orders, args=(loop, orders, start), daemon=True).start()
    try:
        loop.run_until_complete(_serve(start, orders, out))
    finally:
        _end(start.folder, 1)


def _read_orders(loop: asyncio.AbstractEventLoop, orders: "asyncio.Queue[AnyOrder]", start: Start) -> None:
    """Read orders in a thread, so that the end of the input is noticed whatever the browser does."""
    while (order := _read(sys.stdin.buffer, AnyOrder)) is not None:
        loop.call_soon_threadsafe(orders.put_nowait, order)
    _end(start.folder, 0)


def _read(stream: BinaryIO, kind: Any) -> Any:
    head = stream.read(HEAD)
    if len(head) < HEAD:
        return None
    body = stream.read(read_length(head))
    return msgspec.msgpack.decode(body, type=kind) if len(body) == read_length(head) else None


async def _serve(start: Start, orders: "asyncio.Queue[AnyOrder]", out: BinaryIO) -> None:
    from playwright.async_api import Error, async_playwright  # noqa: PLC0415 - takes a second; the input is watched by then

    async with AsyncExitStack() as stack:
        network = _GuardedNetwork(start.rules)
        flags = await network.open(stack)
        driver = await stack.enter_async_context(async_playwright())
        folder = Path(start.folder)
        prepare_profile(folder, third_party_cookies=start.rules.third_party_cookies)
        agent_flags = visitor_flags(start.executable, start.rules.user_agent)
        try:
            context = await driver.chromium.launch_persistent_context(
                folder,
                executable_path=start.executable,
                headless=True,
                chromium_sandbox=start.rules.sandbox,
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
        user_agent = start.rules.user_agent or await _read_user_agent(browser)
        _answer(out, ScanAnswer())
        renderer = None
        while True:
            order = await orders.get()
            if isinstance(order, RenderOrder):
                renderer = renderer or _make_renderer(browser, user_agent)
                answer = await _render(renderer, order, network)
            elif isinstance(order, PrintOrder):
                answer = await _print(browser, order)
            else:
                answer = await _scan(browser, order, network, user_agent)
            _answer(out, answer)
            if answer.crashed is not None:
                return


class _GuardedNetwork:
    """The browser's network: only the guarded proxy resolves names and connects, never the browser itself."""

    def __init__(self, rules: BrowserRules) -> None:
        guard = Guard(allowed_hosts(rules.allow_hosts))
        self._names = Names(guard, rules.resolve, system_lookup)
        self._proxy = GuardedProxy(guard, self._names)
        self.dns_server = parse_dns_server(rules.dns_server) if rules.dns_server else system_server()

    async def open(self, stack: AsyncExitStack) -> list[str]:
        """Start the proxy until the stack closes, and return the flags that make the browser use it."""
        await stack.enter_async_context(self._proxy)
        return [
            f"--proxy-server={self._proxy.url}",
            "--proxy-bypass-list=<-loopback>",
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
        ]

    async def why_refused(self, url: str) -> str | None:
        """Return why a URL may not be loaded. The browser would take the proxy's error for the page itself."""
        try:
            await self._names.addresses(urlsplit(url).hostname or "")
        except AddressRefused as refused:
            return str(refused)
        except OSError:
            # An unknown name: the browser will report it.
            return None
        return None

    def notes(self) -> tuple[str, ...]:
        """Return the refused requests of pages since the last call."""
        notes = tuple(f"request refused: {refused}" for refused in sorted(set(self._proxy.refused)))
        self._proxy.refused.clear()
        return notes


async def _read_user_agent(browser: Any) -> str:
    session = await browser.new_browser_cdp_session()
    version = await session.send("Browser.getVersion")
    await session.detach()
    return ordinary_agent(str(version["userAgent"]))


async def _scan(browser: Any, order: Order, network: _GuardedNetwork, user_agent: str) -> ScanAnswer:
    from .scan import Crashed, PageUnreachable, scan  # noqa: PLC0415 - imports Playwright

    if (why := await network.why_refused(order.starts[0])) is not None:
        return ScanAnswer(refused=why)
    network.notes()
    try:
        found = await scan(browser, order, user_agent, network.dns_server)
    except PageUnreachable as error:
        return ScanAnswer(unreachable=str(error))
    except Crashed as error:
        return ScanAnswer(crashed=str(error))
    return ScanAnswer(found=replace(found, notes=(*found.notes, *network.notes())))


def _make_renderer(browser: Any, user_agent: str) -> Any:
    from .rendering import Renderer  # noqa: PLC0415 - imports Playwright

    return Renderer(browser, user_agent)


async def _render(renderer: Any, order: RenderOrder, network: _GuardedNetwork) -> ScanAnswer:
    from .scan import Crashed, PageUnreachable  # noqa: PLC0415 - imports Playwright

    if (why := await network.why_refused(order.url)) is not None:
        return ScanAnswer(refused=why)
    try:
        return ScanAnswer(page=await renderer.render(order))
    except PageUnreachable as error:
        return ScanAnswer(unreachable=str(error))
    except Crashed as error:
        return ScanAnswer(crashed=str(error))
    finally:
        network.notes()


async def _print(browser: Any, order: PrintOrder) -> ScanAnswer:
    from .printing import print_page  # noqa: PLC0415 - imports Playwright
    from .scan import Crashed, PageUnreachable  # noqa: PLC0415

    try:
        await print_page(browser, order)
    except PageUnreachable as error:
        return ScanAnswer(unreachable=str(error))
    except Crashed as error:
        return ScanAnswer(crashed=str(error))
    return ScanAnswer()


def _answer(out: BinaryIO, answer: ScanAnswer) -> None:
    try:
        out.write(encode_message(answer))
        out.flush()
    except BrokenPipeError:
        # The worker has closed the pipe; the other thread is about to end this process.
        time.sleep(_KILL_SECONDS)


def _environment(folder: Path) -> dict[str, str | float | bool]:
    """Return the browser's environment: no secrets, and its profile as home, so that it writes nowhere else."""
    kept = {
        name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL", "TZ", "FONTCONFIG_PATH") if name in os.environ
    }
    return {**kept, "HOME": str(folder), "XDG_CONFIG_HOME": str(folder), "XDG_CACHE_HOME": str(folder)}


def _become_subreaper() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _end(folder: str, code: int) -> None:
    """Kill all descendants, delete the profile and exit."""
    deadline = time.monotonic() + _KILL_SECONDS
    while (running := list(descendants(os.getpid()))) and time.monotonic() < deadline:
        for pid in running:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        _reap()
        time.sleep(0.02)
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(code)


def descendants(root: int) -> Iterator[int]:
    """Yield the descendants of a process, including those that wait to be reaped; none without /proc."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The name is in parentheses and may itself contain parentheses.
            fields = entry.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append(int(entry.parent.name))
    waiting = [root]
    while waiting:
        for pid in children.get(waiting.pop(), ()):
            waiting.append(pid)
            yield pid


def _reap() -> None:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


if __name__ == "__main__":
    main()
