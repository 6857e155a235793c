"""Who is there, and what they have been told."""

from datetime import timedelta

import pytest

from floodmark.errors import InvalidInput
from floodmark.model.clock import SystemClock
from floodmark.repositories.fleet import FleetRepository
from system.stores import AnyDatabase


@pytest.fixture
def fleet(database: AnyDatabase) -> FleetRepository:
    return FleetRepository(database, SystemClock())


async def see(fleet: FleetRepository, worker: str, *, busy: int = 0, ttl: timedelta = timedelta(seconds=30)) -> None:
    await fleet.record_presence(
        worker, role="worker", hostname="box", pid=1, slots=4, busy=busy, draining=busy == 0, ttl=ttl
    )  # fmt: skip


@pytest.mark.spec("T6", "V8")
async def test_a_worker_is_alive_for_as_long_as_it_says(fleet: FleetRepository) -> None:
    await see(fleet, "silent", ttl=timedelta(seconds=-1))
    await see(fleet, "here")
    first = next(worker for worker in await fleet.workers() if worker.worker == "here")
    await see(fleet, "here", busy=3)

    here, silent = await fleet.workers()

    assert (here.worker, here.alive, here.busy, here.draining) == ("here", True, 3, False)
    assert (silent.worker, silent.alive) == ("silent", False)
    assert here.started_at == first.started_at
    assert here.seen_until >= first.seen_until
    await fleet.remove("here")
    await fleet.remove("here")
    assert [worker.worker for worker in await fleet.workers()] == ["silent"]


async def test_a_fact_is_kept_changed_and_forgotten(fleet: FleetRepository) -> None:
    assert await fleet.get_fact("colour") is None
    await fleet.set_fact("colour", {"red": [1, 2.5, None]})
    assert await fleet.get_fact("colour") == {"red": [1, 2.5, None]}
    await fleet.set_fact("colour", "blue")
    assert await fleet.get_fact("colour") == "blue"
    await fleet.set_fact("colour", None)
    assert await fleet.get_fact("colour") is None
    with pytest.raises(InvalidInput, match="JSON"):
        await fleet.set_fact("colour", object())


@pytest.mark.spec("V3", "V8")
async def test_draining_holds_until_resumed(fleet: FleetRepository) -> None:
    assert not await fleet.is_draining()
    await fleet.drain()
    await fleet.drain()
    assert await fleet.is_draining()
    await fleet.resume()
    assert not await fleet.is_draining()


@pytest.mark.spec("T8")
async def test_the_last_tick_says_when_and_by_whom(fleet: FleetRepository) -> None:
    assert await fleet.last_tick() is None
    await fleet.tick("host-1", timedelta(seconds=60))
    tick = await fleet.last_tick()
    assert tick is not None
    assert (tick.holder, tick.interval) == ("host-1", 60.0)
    assert abs(SystemClock().now() - tick.at) < timedelta(minutes=2)
