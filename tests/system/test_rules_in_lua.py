"""The scripts of the queue decide as `rules/` does, on any input."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from math import ceil
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis.asyncio import Redis

from floodmark.model.execution import Queued
from floodmark.model.job import Priority
from floodmark.observability.events import Events
from floodmark.queue.redis_streams import GROUP, RedisStreamsQueue
from floodmark.rules.rank import BATCH_SHARES, rank_of

pytest_plugins = ("backends",)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
STREAMS = {priority: f"crawler:jobs:{priority.name.lower()}" for priority in Priority}
# Few distinct values, so that ranks are often equal.
TIMES = st.lists(st.integers(1, 40), max_size=12, unique=True).map(sorted)


def choose(times: Sequence[Sequence[int]], wanted: int, patience: timedelta) -> list[str]:
    """Return the ids of the executions that leave the queue next, as the rules say."""
    left = {priority: [f"{priority}-{at}" for at in some] for priority, some in zip(Priority, times, strict=True)}
    heads = {
        priority: EPOCH + timedelta(milliseconds=some[0])
        for priority, some in zip(Priority, times, strict=True)
        if some
    }
    order = sorted(heads, key=lambda priority: (rank_of(priority, heads[priority], patience), priority))
    shares = BATCH_SHARES[len(order) - 1] if order else ()
    chosen: list[str] = []
    for priority, count in [
        *((p, ceil(wanted * s)) for p, s in zip(order, shares, strict=True)),
        *((p, wanted) for p in order),
    ]:
        taken = min(count, wanted - len(chosen))
        chosen += left[priority][:taken]
        left[priority] = left[priority][taken:]
    return chosen


def a_queue(redis: Redis, patience: timedelta) -> RedisStreamsQueue:
    nothing: Any = None
    return RedisStreamsQueue(redis, nothing, nothing, Events(), prefix="crawler", patience=patience)


@pytest.mark.spec("V5")
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    times=st.tuples(TIMES, TIMES, TIMES),
    wanted=st.integers(1, 20),
    patience=st.integers(0, 30),
    puts=st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from(Priority)), min_size=1, max_size=12),
)
@pytest.mark.thorough
def test_scripts_and_rules_agree(
    redis_url: str,
    times: tuple[list[int], list[int], list[int]],
    wanted: int,
    patience: int,
    puts: list[tuple[str, Priority]],
) -> None:
    """Which executions leave first, for equal ranks too; and in which stream an execution is put, once."""

    async def compare() -> None:
        async with Redis.from_url(redis_url, protocol=2) as redis:
            await redis.flushdb()
            queue = a_queue(redis, timedelta(milliseconds=patience))
            for (priority, stream), some in zip(STREAMS.items(), times, strict=True):
                for at in some:
                    await redis.xadd(stream, {"id": f"{priority}-{at}"}, id=f"{at}-0")
            found = await queue._lease(queue._keys, [GROUP, "worker", wanted, *queue._order])
            assert [name.decode() for name in found[::2]] == choose(times, wanted, timedelta(milliseconds=patience))

            await redis.flushdb()
            first = dict(reversed(puts))
            for execution_id, priority in puts:
                is_new = not await redis.hexists("crawler:jobs:known", execution_id)
                assert await queue.put([Queued(execution_id, priority)]) == is_new
            depths = await queue.depth()
            for priority, stream in STREAMS.items():
                entries: Any = await redis.xrange(stream)
                ids = {fields[b"id"].decode() for _, fields in entries}
                assert ids == {name for name, chosen in first.items() if chosen is priority}
                assert depths[priority] == len(ids)

    asyncio.run(compare())
