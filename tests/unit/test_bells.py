"""Bells: what waits for a signal ends when it is cancelled, whatever else happens at that moment."""

import asyncio
from datetime import timedelta

import pytest

from floodmark.coordination.signals.port import Bell


@pytest.mark.spec("E4")
@pytest.mark.parametrize("turns", range(6))
async def test_a_cancellation_in_the_moment_of_a_signal_is_not_lost(turns: int) -> None:
    """A worker that waits for work is stopped while work arrives: it must end."""
    bell = Bell()
    waiting = asyncio.create_task(bell.wait(timedelta(minutes=1)))
    for _ in range(3):
        await asyncio.sleep(0)
    bell.ring()
    for _ in range(turns):
        await asyncio.sleep(0)
    if waiting.cancel():
        with pytest.raises(asyncio.CancelledError):
            await waiting
    else:
        assert await waiting
