"""Tasks are ended for certain, also one that loses a cancellation."""

import asyncio

import pytest

from floodmark.process.tasks import end_tasks


@pytest.mark.spec("G7")
async def test_a_task_that_loses_its_cancellation_is_cancelled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("floodmark.process.tasks._AGAIN_SECONDS", 0.01)
    lost = 0

    async def stubborn() -> None:
        nonlocal lost
        while True:
            try:
                await asyncio.sleep(600)
            except asyncio.CancelledError:
                if lost == 3:
                    raise
                lost += 1

    async def failing() -> None:
        raise ValueError

    tasks = [asyncio.create_task(stubborn()), asyncio.create_task(failing())]
    await asyncio.sleep(0)
    await end_tasks(*tasks)
    assert lost == 3
    assert all(task.done() for task in tasks)
