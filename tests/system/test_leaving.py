"""A worker leaves within its grace, also when nobody answers any more."""

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from floodmark.app import Floodmark
from floodmark.model.audit import Actor
from floodmark.observability.events import Events, ExecutionStarted, StepFailed
from floodmark.operations.local import LocalOperations
from floodmark.repositories.jobs import Jobs
from floodmark.runtime import worker_role
from floodmark.settings import Settings
from floodmark.store.database import open_database
from floodmark.store.migrate import migrate
from floodmark.testing.eventually import eventually
from floodmark.wiring.resources import open_resources
from floodmark.worker.worker import Worker
from servers import Postgres


@pytest.mark.spec("G7")
@pytest.mark.thorough
async def test_a_worker_leaves_while_the_database_is_away() -> None:
    """What it could not write down is taken back when its lease ends."""
    with Postgres.start(own=True) as postgres:
        url = postgres.create_database("leaving")
        database = open_database(url, events=Events())
        await migrate(database)
        await database.close()
        app = Floodmark(Settings(database_url=url, shutdown_grace=timedelta(seconds=1)))
        started, stop, failed = asyncio.Event(), asyncio.Event(), list[str]()
        app.internal_events.listen(ExecutionStarted, lambda event: started.set())
        app.internal_events.listen(StepFailed, lambda event: failed.append(event.step))

        @app.collector(once=True, key="id")
        async def endless() -> AsyncIterator[dict[str, int]]:
            await asyncio.sleep(3600)
            yield {"id": 1}

        serving = asyncio.create_task(app.serve(port=0, stop=stop))
        await asyncio.wait_for(started.wait(), 120)
        postgres.kill()

        stop.set()
        began = time.monotonic()
        await asyncio.wait_for(serving, 60)

        assert time.monotonic() - began < 30
        assert "leave" in failed


@pytest.mark.spec("G7")
@pytest.mark.thorough
async def test_a_long_collection_is_handed_back_at_a_good_place(sqlite_url: str) -> None:
    """Half of the grace to finish, the other half to stop after a batch; the next worker goes on from there."""
    settings = Settings(database_url=sqlite_url, shutdown_grace=timedelta(seconds=1))
    app, stop, done = Floodmark(settings), asyncio.Event(), asyncio.Event()
    seen: list[int] = []

    @app.collector(once=True, key="id", watermark="id", batch_size=1)
    async def slow(since: int | None) -> AsyncIterator[dict[str, int]]:
        for number in range((since or 0) + 1, 1000):
            seen.append(number)
            if number == 3:
                stop.set()
            if since is not None:
                done.set()
            yield {"id": number}
            await asyncio.sleep(0.05 if number >= 3 else 0)

    await app.serve(port=0, stop=stop)
    first = len(seen)
    assert 3 <= first < 999

    again = Floodmark(settings)
    again.collectors.update(app.collectors)
    async with again.open() as resources:
        job = await Jobs(resources.database, resources.clock).get("slow")
    assert job.last_status is None
    await again.serve(port=0, stop=done)

    assert seen[first] in (first, first + 1)
    assert sorted(set(seen)) == list(range(1, max(seen) + 1))


@pytest.mark.spec("G7")
async def test_a_worker_that_fails_takes_its_process_along(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rather no process than one that does nothing: whoever watches it starts a new one."""

    async def broken(self: Worker) -> None:
        raise RuntimeError("a fault of our own")

    monkeypatch.setattr(Worker, "run", broken)

    with pytest.raises(RuntimeError, match="a fault of our own"):
        await asyncio.wait_for(Floodmark(Settings(database_url=sqlite_url)).serve(port=0), 120)


@pytest.mark.spec("V8")
async def test_a_worker_is_told_to_drain_before_it_looks_by_itself(
    migrated_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_role, "_PRESENCE", timedelta(hours=1))
    settings, stop = Settings(database_url=migrated_url), asyncio.Event()
    async with open_resources(settings) as here, open_resources(settings) as elsewhere:
        role, operations = worker_role.WorkerRole(here, {}), LocalOperations(elsewhere, Actor(who="ada", via="api"))
        running = asyncio.create_task(role.run(stop))

        async def is_there() -> bool:
            return bool((await operations.fleet()).workers)

        await eventually(is_there)
        for tell, is_draining in ((operations.drain, True), (operations.undrain, False)):
            await tell()

            async def is_shown(wanted: bool = is_draining) -> bool:
                [worker] = (await operations.fleet()).workers
                return role.worker.is_draining is worker.draining is wanted

            await eventually(is_shown)
        stop.set()
        await running
