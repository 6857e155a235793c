"""A worker that was silent for too long may be handed the very execution that was taken from it."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import select, update

from floodmark import Batch, Context, Item, Settings, Target, Watermark
from floodmark.observability.events import BatchRefused, Events, LeaseLost
from floodmark.rules.retries import Retries
from floodmark.sinks.sql import SqlSink
from floodmark.store.tables import job_executions, watermarks
from floodmark.testing.eventually import eventually
from floodmark.testing.factories import LONG_AGO, given_executions, given_job
from floodmark.wiring.resources import Resources, open_resources
from floodmark.worker.executor import Executor
from floodmark.worker.worker import Worker

SECOND = timedelta(seconds=1)
TTL = 60 * SECOND


class Gated:
    """Yields one item, each time it is asked for once the test says so."""

    kind = "test"

    def __init__(self) -> None:
        self.begun = asyncio.Semaphore(0)
        self.gates = [asyncio.Event() for _ in range(3)]
        self._calls = 0

    async def collect(self, target: Target, since: Watermark | None, context: Context) -> AsyncIterator[Batch]:
        call, self._calls = self._calls, self._calls + 1
        self.begun.release()
        await self.gates[call].wait()
        yield Batch([Item("one", {"call": call})])

    def check(self, target: str, params: Mapping[str, Any]) -> None:
        """Everything can be collected."""


@pytest.mark.spec("G3", "E1")
@pytest.mark.timeout(1200)
async def test_what_was_rescued_from_a_worker_can_be_leased_by_it_again(sqlite_url: str) -> None:
    """The earlier run ends, whatever it does; the later one keeps its lease, its heartbeat and its slot."""
    source, happened = Gated(), list[object]()
    events = Events()
    events.listen(LeaseLost, happened.append)
    events.listen(BatchRefused, happened.append)
    async with open_resources(Settings(database_url=sqlite_url), events=events) as resources:
        retries = Retries(base=SECOND, longest=SECOND)
        executor = Executor({"test": source}, SqlSink(resources.keeping, events), retries, asyncio.Event())
        worker = Worker(resources.queue, executor, events, name="w", slots=2, batch=10, ttl=TTL)
        [execution_id] = await given_executions(resources, [await given_job(resources)])
        working = asyncio.create_task(worker.run())
        await asyncio.wait_for(source.begun.acquire(), 60)
        await leases_end(resources, LONG_AGO)
        await resources.queue.put((await resources.upkeep.rescue(limit=10, rescue_max=5)).queued, again=True)
        await asyncio.wait_for(source.begun.acquire(), 60)
        # The earlier run is free to go on, if it still can.
        source.gates[0].set()
        await eventually(lambda: happened)

        soon = datetime.now(UTC) + TTL / 2
        await leases_end(resources, soon)
        await worker.heartbeat()
        assert (await row_of(resources, execution_id))["lease_until"] > soon + SECOND, (
            "the heartbeat forgot the later lease"
        )
        source.gates[1].set()
        worker.stop()
        await asyncio.wait_for(working, 60)
        settled = await row_of(resources, execution_id)
        assert (settled["state"], settled["items_new"]) == ("done", 1)


@pytest.mark.spec("V3")
@pytest.mark.timeout(1200)
async def test_a_long_execution_leaves_the_other_slots_to_others(sqlite_url: str) -> None:
    """A slot that is free takes what comes, however long its neighbour is busy."""
    source, events = Gated(), Events()
    async with open_resources(Settings(database_url=sqlite_url), events=events) as resources:
        executor = Executor(
            {"test": source}, SqlSink(resources.keeping, events), Retries(base=SECOND, longest=SECOND), asyncio.Event()
        )
        worker = Worker(resources.queue, executor, events, name="w", slots=3, batch=50, ttl=TTL)
        working = asyncio.create_task(worker.run())
        try:
            for _ in range(3):
                await given_executions(resources, [await given_job(resources)])
                await asyncio.wait_for(source.begun.acquire(), 60)
        finally:
            for gate in source.gates:
                gate.set()
            worker.stop()
            await asyncio.wait_for(working, 60)


async def leases_end(resources: Resources, when: datetime) -> None:
    async with resources.database.writing() as connection:
        await connection.execute(update(job_executions).values(lease_until=when))
        await connection.execute(update(watermarks).values(lease_until=when))


async def row_of(resources: Resources, execution_id: str) -> Mapping[str, Any]:
    async with resources.database.reading() as connection:
        query = select(job_executions).where(job_executions.c.execution_id == execution_id)
        return dict((await connection.execute(query)).mappings().one())
