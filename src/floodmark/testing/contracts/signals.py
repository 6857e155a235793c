"""The guarantees of signals."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta

from floodmark.coordination.signals.port import Bell, Signals, Topic

Tell = Callable[[Topic], Awaitable[None]]
SOON, LATER = timedelta(milliseconds=20), timedelta(minutes=2)
# So long that every signal has arrived.
SILENCE = timedelta(seconds=1)


class SignalsContract:
    """The guarantees of every kind of signal. Subclass it and provide `signals` and `tell`.

    `signals` has been started; `tell` sends a signal for a topic from another process.
    """

    async def test_a_bell_rings_when_told(self, signals: Signals) -> None:
        """Within a process a signal arrives at once."""
        bell = await wait_for_silence(signals.bell(Topic.QUEUE))
        waiting = asyncio.create_task(bell.wait(LATER), name="waiting")
        await signals.notify(Topic.QUEUE)

        assert await waiting

    async def test_a_bell_rings_when_another_process_tells(self, signals: Signals, tell: Tell) -> None:
        """A signal of another process arrives."""
        bell = await wait_for_silence(signals.bell(Topic.QUEUE))
        waiting = asyncio.create_task(bell.wait(LATER), name="waiting")
        await tell(Topic.QUEUE)

        assert await waiting

    async def test_a_signal_before_the_wait_is_remembered(self, signals: Signals) -> None:
        """A signal between a check and the wait must not be lost."""
        bell = await wait_for_silence(signals.bell(Topic.JOBS))
        await signals.notify(Topic.JOBS)
        await signals.notify(Topic.JOBS)

        assert await bell.wait(SOON)

    async def test_a_bell_rings_once_for_many_signals(self, signals: Signals, tell: Tell) -> None:
        """One check is enough for all of them."""
        bell = await wait_for_silence(signals.bell(Topic.JOBS))
        for _ in range(5):
            await signals.notify(Topic.JOBS)
        await tell(Topic.JOBS)

        rings = 0
        while await bell.wait(SILENCE):
            rings += 1
        assert 1 <= rings < 6, "six signals were sent"

    async def test_waiting_ends_without_a_signal(self, signals: Signals) -> None:
        """The result says that there was no signal."""
        bell = await wait_for_silence(signals.bell(Topic.QUEUE))
        began = time.monotonic()

        assert not await bell.wait(SOON)
        assert time.monotonic() - began >= SOON.total_seconds() * 0.9

    async def test_all_who_wait_are_woken(self, signals: Signals, tell: Tell) -> None:
        """Each waiter has its own bell, so that no waiter consumes the signal of another."""
        bells = [await wait_for_silence(signals.bell(Topic.CANCEL)) for _ in range(3)]
        waiting = [asyncio.create_task(bell.wait(LATER), name="waiting") for bell in bells]
        await tell(Topic.CANCEL)

        assert all(await asyncio.gather(*waiting))

    async def test_a_topic_wakes_only_those_who_wait_for_it(self, signals: Signals) -> None:
        """A rare spurious wake-up is harmless, but frequent ones would cost time."""
        bell = await wait_for_silence(signals.bell(Topic.CANCEL))
        await signals.notify(Topic.QUEUE)

        assert not await bell.wait(SOON)


async def wait_for_silence(bell: Bell) -> Bell:
    """Return the bell after it has stopped ringing: it may ring at the start, because a signal may have been missed."""
    while await bell.wait(SOON):
        pass
    return bell
