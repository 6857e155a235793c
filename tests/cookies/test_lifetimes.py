"""Browsers die, and are killed: a scan survives it, and nothing of a browser is ever left behind."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from command_line import CommandLine
from command_line import eventually as eventually_outside
from cookies.conftest import patient
from cookies.shop import HOSTS, RESOLVE, Shop
from floodmark.model.clock import SystemClock
from floodmark.model.outcome import Cancelled, Done, Snooze
from floodmark.rules.retries import Retries
from floodmark.sinks.sql import SqlSink
from floodmark.sources.cookies.browser_process import descendants
from floodmark.sources.cookies.source import CookiesSource
from floodmark.store.tables import items
from floodmark.testing.eventually import eventually
from floodmark.testing.factories import Opened, count_of, given_lease
from floodmark.wiring.resources import Resources
from floodmark.worker.executor import Executor, Interrupt

pytest_plugins = ("backends",)
pytestmark = pytest.mark.spec("E8")

SECOND = timedelta(seconds=1)


@pytest.fixture
async def resources(sqlite: Opened) -> AsyncIterator[Resources]:
    async with sqlite() as resources:
        yield resources


@pytest.fixture
async def source(shop: Shop) -> AsyncIterator[CookiesSource]:
    async with CookiesSource(patient(), SystemClock()) as made:
        yield made


class Running:
    """One execution of a job, run as a worker does."""

    def __init__(self, resources: Resources, source: CookiesSource, shop: Shop) -> None:
        self.resources, self.source, self.shop, self.interrupt = resources, source, shop, Interrupt()

    async def run(self, host: str) -> Any:
        params = {"insecure": True, "maxRetries": 0}
        target = self.shop.domain(host)
        lease = await given_lease(
            self.resources, source="cookies", target=target, stream=f"cookies:{target}", params=params
        )
        sink, retries = SqlSink(self.resources.keeping, self.resources.events), Retries(base=SECOND, longest=SECOND)
        return await Executor({"cookies": self.source}, sink, retries, asyncio.Event()).execute(lease, self.interrupt)


def command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def alive(pids: Iterable[int]) -> list[str]:
    """What is left of these processes; one that has ended has no command line, even before anybody has noticed."""
    return [told for told in map(command, pids) if told]


def browsers(pids: Iterable[int]) -> list[int]:
    return [pid for pid in pids if "--user-data-dir=" in command(pid) and "--type=" not in command(pid)]


async def in_mid_scan(shop: Shop) -> list[int]:
    """Wait until the browser waits for a page; its processes then, without the servers of other tests."""
    await eventually(shop.held.is_set)
    keepers = [pid for pid in descendants(os.getpid()) if "cookies.browser_process" in command(pid)]
    below = [pid for keeper in keepers for pid in (keeper, *descendants(keeper))]
    assert browsers(below)
    return below


@pytest.mark.release
async def test_browsers_are_replaced_when_they_die_and_end_with_their_execution(
    resources: Resources, source: CookiesSource, shop: Shop
) -> None:
    """One that is killed in mid-scan; then the next, whose execution is cancelled."""
    running = asyncio.create_task(Running(resources, source, shop).run("once.test"))
    below = await in_mid_scan(shop)
    os.kill(browsers(below)[0], signal.SIGKILL)
    outcome = await running

    assert isinstance(outcome, Done), outcome
    assert outcome.kept.new == 1
    assert outcome.result is not None
    assert outcome.result["result"] == "banner not found"
    assert outcome.result["cookies"] == {"before": 1, "accept": 0, "reject": 0}
    assert await count_of(resources, items) == 1
    assert source.pool.started == 2
    assert alive(below) == []

    shop.held.clear()
    one = Running(resources, source, shop)
    running = asyncio.create_task(one.run("stuck.test"))
    below = await in_mid_scan(shop)
    # The next in turn waits for the browser; whoever comes then gives up its slot.
    waiting = asyncio.create_task(Running(resources, source, shop).run("plain.test"))
    await eventually(lambda: source.pool.waiting == 1)
    third = await Running(resources, source, shop).run("flaky.test")
    assert isinstance(third, Snooze)
    assert third.reason == "all browsers of this worker are busy"
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    one.interrupt.end(Cancelled(reason="by a person"))

    assert isinstance(await running, Cancelled)
    assert alive(below) == []
    assert await count_of(resources, items) == 1


@pytest.mark.thorough
def test_a_killed_worker_leaves_no_browser_behind(
    tmp_path: Path, shop: Shop, chromium: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = {"HTTP_ALLOW_HOSTS": ", ".join(HOSTS), "HTTP_RESOLVE": RESOLVE, "FLOODMARK_CHROMIUM": str(chromium)}
    line = CommandLine(tmp_path, **settings)
    line.good("add", "cookies", shop.domain("stuck.test"), "--insecure", "--once")
    with line.running("up", "--port", "0") as worker:
        assert eventually_outside(shop.held.is_set), line.said()
        below = [pid for pid in descendants(worker.pid) if command(pid)]
        assert browsers(below)
        assert any("node" in command(pid) for pid in below)
        folders = [Path(word.partition("=")[2]) for word in command(browsers(below)[0]).split() if "data-dir=" in word]
        assert folders[0].exists()
        worker.kill()
        worker.wait()
        eventually_outside(lambda: not alive(below))
    assert not [path for path in folders if path.exists()], "nor its profile"
