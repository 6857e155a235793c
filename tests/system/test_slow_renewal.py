"""A leader whose renewals take their time falls silent now and then, and goes on as soon as it is renewed."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from msgspec.structs import replace

from floodmark.coordination.leases.port import Leases
from floodmark.coordination.signals.port import Topic
from floodmark.runtime.scheduler_role import SchedulerRole
from floodmark.store.tables import job_executions
from floodmark.testing.eventually import eventually
from floodmark.testing.factories import Opened, given_job, rows_of
from floodmark.wiring.resources import Resources

pytest_plugins = ("backends",)

# It acts for 3.3 s after asking, is answered after 1 s, and asks again 1.7 s later: before the next answer is there,
# its time is over, and after it there is time enough to ask once more.
TTL, ANSWER_SECONDS = timedelta(seconds=5), 1.0


class SlowLeases:
    """Real leases whose answers are late."""

    def __init__(self, leases: Leases) -> None:
        self._leases = leases

    async def acquire(self, name: str, *, holder: str, ttl: timedelta) -> bool:
        won = await self._leases.acquire(name, holder=holder, ttl=ttl)
        await asyncio.sleep(ANSWER_SECONDS)
        return won

    async def release(self, name: str, *, holder: str) -> None:
        await self._leases.release(name, holder=holder)

    async def holder(self, name: str) -> str | None:
        return await self._leases.holder(name)


@pytest.fixture
async def resources(redis_on_postgres: Opened) -> AsyncIterator[Resources]:
    async with redis_on_postgres() as resources:
        yield resources


@pytest.mark.spec("G1", "G8", "E1")
@pytest.mark.thorough
async def test_what_fell_due_while_leadership_lapsed_fires_when_it_is_back(resources: Resources) -> None:
    """Not a whole SCHEDULE_CHECK_INTERVAL later."""
    slow = resources.settings.model_copy(update={"scheduler_leader_ttl": TTL})
    role, stop = SchedulerRole(replace(resources, leases=SlowLeases(resources.leases), settings=slow)), asyncio.Event()
    running = asyncio.create_task(role.run(stop))
    try:
        await eventually(lambda: role.scheduler.last_tick)
        await eventually(lambda: not role.leader.is_leader)
        await given_job(resources, schedule_type="immediate")
        # The scheduler looks at once, and is not the leader.
        await resources.signals.notify(Topic.JOBS)

        await eventually(lambda: rows_of(resources, job_executions))
    finally:
        stop.set()
        await running
