"""SIGTERM and Ctrl-C end a process in good order, also on event loops that know no signals, as those of Windows."""

import asyncio
import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from floodmark.process.eventloop import stopped_by_signals


class WithoutSignals(asyncio.SelectorEventLoop):
    """As on Windows."""

    def add_signal_handler(self, sig: int, callback: Callable[..., Any], *args: Any) -> None:  # type: ignore[override]
        raise NotImplementedError


@pytest.mark.spec("G7")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("make", [asyncio.SelectorEventLoop, WithoutSignals])
def test_a_signal_stops(make: type[asyncio.SelectorEventLoop], number: signal.Signals) -> None:
    before = [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)]

    async def work() -> None:
        stop = asyncio.Event()
        with stopped_by_signals(stop):
            os.kill(os.getpid(), number)
            async with asyncio.timeout(60):
                await stop.wait()

    with asyncio.Runner(loop_factory=make) as runner:
        runner.run(work())
    assert [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)] == before


def test_it_stops_by_itself() -> None:
    async def work() -> None:
        stop = asyncio.Event()
        with stopped_by_signals(stop, 0.01):
            async with asyncio.timeout(60):
                await stop.wait()

    asyncio.run(work())
