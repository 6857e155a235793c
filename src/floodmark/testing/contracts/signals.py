"""What signals promise."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta

from floodmark.coordination.signals.port import Bell, Signals, Topic

Tell = Callable[[Topic], Awaitable[None]]
SOON, LATER = timedelta(milliseconds=20), timedelta(seconds=5)


class SignalsContract:
    """What every kind of signal promises. Subclass it and provide `signals` and `tell`.

    `signals` has been started; `tell` is what another process does to be heard under a topic.
    """

    async def test_a_bell_rings_when_told(self, signals: Signals) -> None:
        """Within the process it is immediate."""
        bell = await quiet(signals.bell(Topic.QUEUE))
        waiting = asyncio.create_task(bell.wait(LATER), name="waiting")
        await signals.notify(Topic.QUEUE)

        assert await waiting

    async def test_a_bell_rings_when_another_process_tells(self, signals: Signals, tell: Tell) -> None:
        """That is what signals are for."""
        bell = await quiet(signals.bell(Topic.QUEUE))
        waiting = asyncio.create_task(bell.wait(LATER), name="waiting")
        await tell(Topic.QUEUE)

        assert await waiting

    async def test_a_signal_before_the_wait_is_remembered(self, signals: Signals) -> None:
        """Otherwise it could fall between looking and waiting."""
        bell = await quiet(signals.bell(Topic.JOBS))
        await signals.notify(Topic.JOBS)
        await signals.notify(Topic.JOBS)

        assert await bell.wait(SOON)

    async def test_a_bell_rings_once_for_many_signals(self, signals: Signals, tell: Tell) -> None:
        """Looking once is enough for all of them."""
        bell = await quiet(signals.bell(Topic.JOBS))
        for _ in range(5):
            await signals.notify(Topic.JOBS)
        await tell(Topic.JOBS)

        await quiet(bell)
        assert not await bell.wait(SOON)

    async def test_waiting_ends_without_a_signal(self, signals: Signals) -> None:
        """And says so."""
        bell = await quiet(signals.bell(Topic.QUEUE))
        began = time.monotonic()

        assert not await bell.wait(SOON)
        assert time.monotonic() - began >= SOON.total_seconds() * 0.9

    async def test_all_who_wait_are_woken(self, signals: Signals, tell: Tell) -> None:
        """Each bell on its own, so that nobody takes another's signal."""
        bells = [await quiet(signals.bell(Topic.CANCEL)) for _ in range(3)]
        waiting = [asyncio.create_task(bell.wait(LATER), name="waiting") for bell in bells]
        await tell(Topic.CANCEL)

        assert all(await asyncio.gather(*waiting))

    async def test_a_topic_wakes_only_those_who_wait_for_it(self, signals: Signals) -> None:
        """Mostly: a spurious ring does no harm, but a habit of it would cost."""
        bell = await quiet(signals.bell(Topic.CANCEL))
        await signals.notify(Topic.QUEUE)

        assert not await bell.wait(SOON)


async def quiet(bell: Bell) -> Bell:
    """The bell, once it has fallen silent: it may ring at the start, as something may have been missed."""
    while await bell.wait(SOON):
        pass
    return bell
