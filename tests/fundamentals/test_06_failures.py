"""6. Failures: retries and dead letters.

An execution that raises is retried after a growing, random delay, `retry_max` times (`PARSER_RETRY_MAX`, 3). After
that, or at once if a retry will not help, it is a *dead letter*: it stays until someone retries or drops it, and the
schedule of the job continues.

| raise | meaning |
|---|---|
| `Transient`, or anything unexpected | it may work next time |
| `Permanent` | a retry will not help, the next scheduled run may |
| `Gone` | the target no longer exists: the job is paused too |
"""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from floodmark import Floodmark, Gone, Permanent, Transient

from .running import running


@pytest.mark.spec("T4")
async def test_a_failed_execution_is_retried(app: Floodmark) -> None:
    """The history contains every failed attempt."""
    attempts = 0

    @app.collector(key="id")
    async def posts() -> AsyncIterator[dict[str, Any]]:
        nonlocal attempts
        attempts += 1
        if attempts < 3:
            raise Transient(f"no answer ({attempts})")
        yield {"id": 1}

    async with running(app) as floodmark:
        done = await floodmark.run_and_wait("posts")

        assert done.state == "done"
        assert done.attempt == 3
        assert [failed["error"] for failed in done.error_details] == ["no answer (1)", "no answer (2)"]


@pytest.mark.spec("T4", "T13")
async def test_the_last_failed_attempt_makes_a_dead_letter(app: Floodmark) -> None:
    """This job allows one retry."""

    @app.collector(retry_max=1)
    def posts() -> list[dict[str, Any]]:
        return [{"half": 1 / 0}]

    async with running(app) as floodmark:
        dead = await floodmark.run_and_wait("posts")

        assert dead.state == "dead"
        assert dead.attempt == 2
        assert dead.error_message == "ZeroDivisionError: division by zero"
        assert (await floodmark.explain("posts")).endswith("retry it with: floodmark dlq retry posts")


@pytest.mark.spec("T13")
async def test_a_dead_letter_can_be_retried(app: Floodmark) -> None:
    """After the cause is fixed, the same execution runs again with all its attempts."""
    is_repaired = False

    @app.collector(key="id")
    async def posts() -> AsyncIterator[dict[str, Any]]:
        if not is_repaired:
            raise Permanent("the feed has a new format")
        yield {"id": 1}

    async with running(app) as floodmark:
        dead = await floodmark.run_and_wait("posts")
        assert dead.attempt == 1, "a permanent error is not retried"
        [letter] = await floodmark.dead_letters("posts")
        assert letter.execution_id == dead.execution_id

        is_repaired = True
        await floodmark.retry("posts")

        assert (await floodmark.wait_for_state(dead.execution_id, "done")).items_new == 1
        assert await floodmark.dead_letters("posts") == []


@pytest.mark.spec("T13")
async def test_a_target_that_is_gone_pauses_its_job(app: Floodmark) -> None:
    """Further requests would be useless. `floodmark resume` ends the pause."""

    @app.collector(every="1h")
    def posts() -> list[dict[str, Any]]:
        raise Gone("410: this feed was shut down")

    async with running(app) as floodmark:
        assert (await floodmark.wait_for_first_run("posts")).state == "dead"
        sentence = "paused: 410: this feed was shut down; resume it with: floodmark resume posts"
        assert await floodmark.explain("posts") == sentence

        await floodmark.resume("posts")

        assert not (await floodmark.job("posts")).paused
