"""The leader hears of an outcome from the store, and may act on it before the worker has told Redis."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import timedelta

import pytest
from redis.asyncio import Redis

from floodmark.errors import NotFound
from floodmark.model.audit import Actor
from floodmark.model.execution import Lease, Queued
from floodmark.model.outcome import Dead, Done, Released, Snooze
from floodmark.operations.executions import Letters
from floodmark.operations.local import LocalOperations
from floodmark.queue.redis_streams import GROUP, RedisStreamsQueue
from floodmark.queue.sql import SqlQueue
from floodmark.scheduler.requeuer import Waker
from floodmark.store.port import Extended, Leasing, Offer, Settled, Settlement
from floodmark.testing.eventually import eventually
from floodmark.testing.factories import AT_ONCE, TTL, Opened, given_executions, given_job, given_queued, settle, take
from floodmark.wiring.resources import Resources

NORMAL, KNOWN = "crawler:jobs:normal", "crawler:jobs:known"


class SlowToTell:
    """The store, and after each of its commits a moment in which others act."""

    def __init__(self, leasing: Leasing, meanwhile: Callable[[], Awaitable[object]]) -> None:
        self._leasing, self._meanwhile = leasing, meanwhile

    async def prepare(self) -> None:
        await self._leasing.prepare()

    async def claim(self, ids: Sequence[str], *, worker: str, ttl: timedelta) -> list[Lease]:
        leases = await self._leasing.claim(ids, worker=worker, ttl=ttl)
        await self._meanwhile()
        return leases

    async def claim_next(self, limit: int, *, worker: str, ttl: timedelta) -> list[Lease]:
        return await self._leasing.claim_next(limit, worker=worker, ttl=ttl)

    async def offer(self, offers: Sequence[Offer], *, within: timedelta) -> list[bool]:
        offered = await self._leasing.offer(offers, within=within)
        await self._meanwhile()
        return offered

    async def claim_offers(self, limit: int, *, worker: str, ttl: timedelta, within: timedelta) -> list[Lease]:
        return await self._leasing.claim_offers(limit, worker=worker, ttl=ttl, within=within)

    async def extend(self, leases: Sequence[Lease], *, ttl: timedelta) -> Extended:
        return await self._leasing.extend(leases, ttl=ttl)

    async def settle(self, settlements: Sequence[Settlement]) -> Settled:
        settled = await self._leasing.settle(settlements)
        await self._meanwhile()
        return settled


class OutOfReach(SlowToTell):
    """The store, of which this worker gets no answer."""

    async def claim(self, ids: Sequence[str], *, worker: str, ttl: timedelta) -> list[Lease]:
        raise ConnectionError("the database is restarting")


@pytest.fixture
async def resources(redis_on_sqlite: Opened) -> AsyncIterator[Resources]:
    async with redis_on_sqlite() as resources:
        yield resources


@pytest.fixture
def redis(resources: Resources) -> Redis:
    assert resources.redis is not None
    return resources.redis


def slow(
    resources: Resources, meanwhile: Callable[[], Awaitable[object]], store: type[SlowToTell] = SlowToTell
) -> RedisStreamsQueue:
    """The queue of a worker that is slow to tell Redis what it told the store."""
    assert resources.redis is not None
    leasing, patience = store(resources.leasing, meanwhile), resources.settings.queue_patience
    fallback = SqlQueue(resources.database, leasing, resources.signals, resources.events)
    prefix = resources.settings.scheduler_queue_prefix
    return RedisStreamsQueue(resources.redis, leasing, fallback, resources.events, prefix=prefix, patience=patience)


def waker_of(resources: Resources) -> Waker:
    return Waker(resources.upkeep, resources.queue)


async def snoozed_and_woken(resources: Resources) -> str:
    """An execution that was queued anew while its worker had yet to take the old entry away."""
    waker = waker_of(resources)
    worker = slow(resources, waker.step)
    [execution_id] = await given_queued(resources)
    [lease] = await worker.lease(1, worker="a", ttl=TTL, wait=AT_ONCE)
    snooze = Snooze(after=timedelta(), reason="busy")
    assert await worker.settle([Settlement(lease=lease, outcome=snooze, duration=0.1)]) == [True]
    return execution_id


@pytest.mark.spec("G2", "E7")
async def test_one_that_is_woken_before_its_entry_is_gone_can_be_taken(resources: Resources, redis: Redis) -> None:
    execution_id = await snoozed_and_woken(resources)

    [lease] = await take(resources)

    assert lease.execution_id == execution_id
    assert await settle(resources, lease, Done())
    assert await redis.xlen(NORMAL) == 0
    assert await redis.hlen(KNOWN) == 0


@pytest.mark.spec("G2", "T15")
async def test_an_offer_that_ends_before_its_entry_is_gone_can_be_taken(resources: Resources, redis: Redis) -> None:
    worker = slow(resources, waker_of(resources).step)
    [execution_id] = await given_queued(resources)
    [lease] = await worker.lease(1, worker="a", ttl=TTL, wait=AT_ONCE)
    assert await worker.offer([Offer(lease=lease, worker="b")], within=timedelta()) == [True]

    [lease] = await take(resources)

    assert lease.execution_id == execution_id
    assert await settle(resources, lease, Done())
    assert await redis.xlen(NORMAL) == 0
    assert await redis.hlen(KNOWN) == 0


@pytest.mark.spec("G2", "V2")
async def test_a_late_acknowledgement_leaves_the_newer_entry_known(resources: Resources, redis: Redis) -> None:
    """What nobody knows is swept away: it would be lost with a worker that dies between reading and claiming."""
    execution_id = await snoozed_and_woken(resources)
    await redis.xreadgroup(GROUP, "dead", {NORMAL: ">"})

    [lease] = await eventually(lambda: take(resources, ttl=timedelta(milliseconds=20)))

    assert lease.execution_id == execution_id


@pytest.mark.spec("G2", "E7")
async def test_one_that_is_parked_and_woken_at_once_can_be_taken(resources: Resources, redis: Redis) -> None:
    """The second of one job has to wait for the first, which may end very soon."""
    waker, job_id = waker_of(resources), await given_job(resources)
    [first] = await given_executions(resources, [job_id])
    [second] = await given_executions(resources, [job_id])
    [running] = await take(resources, 1)
    assert running.execution_id == first

    async def meanwhile() -> None:
        await settle(resources, running, Done())
        await waker.step()

    assert await slow(resources, meanwhile).lease(1, worker="b", ttl=TTL, wait=AT_ONCE) == []

    [lease] = await take(resources)
    assert lease.execution_id == second
    assert await settle(resources, lease, Done())
    assert await redis.xlen(NORMAL) == 0
    assert await redis.hlen(KNOWN) == 0


@pytest.mark.spec("G2", "T13")
async def test_a_dead_letter_that_is_retried_before_its_entry_is_gone_can_be_taken(
    resources: Resources, redis: Redis
) -> None:
    operations = LocalOperations(resources, Actor(who="test"))
    [execution_id] = await given_queued(resources)

    async def meanwhile() -> None:
        with suppress(NotFound):
            await operations.retry_letters(Letters(ids=(execution_id,)))

    worker = slow(resources, meanwhile)
    [lease] = await worker.lease(1, worker="a", ttl=TTL, wait=AT_ONCE)
    assert await worker.settle([Settlement(lease=lease, outcome=Dead(error="gone"), duration=0.1)]) == [True]

    [again] = await take(resources)
    assert again.execution_id == execution_id
    assert await settle(resources, again, Done())
    assert await redis.xlen(NORMAL) == 0


@pytest.mark.spec("G2", "G7")
async def test_one_that_is_handed_back_while_another_worker_finds_it_taken_can_be_taken(
    resources: Resources, redis: Redis
) -> None:
    """Two entries of one execution: the leader put it again after all, as one may that was slow."""
    [execution_id] = await given_queued(resources)
    [running] = await take(resources, 1)
    await resources.queue.put([Queued(execution_id)], again=True)

    async def meanwhile() -> None:
        await settle(resources, running, Released())

    assert await slow(resources, meanwhile).lease(1, worker="b", ttl=TTL, wait=AT_ONCE) == []

    [lease] = await take(resources)
    assert lease.execution_id == execution_id
    assert await settle(resources, lease, Done())
    assert await redis.xlen(NORMAL) == 0
    assert await redis.hlen(KNOWN) == 0


@pytest.mark.spec("G2")
async def test_what_was_read_but_could_not_be_claimed_can_be_taken(resources: Resources, redis: Redis) -> None:
    """By whoever asks next, not only when it has lain there for the length of a lease."""
    ids = await given_queued(resources, 3)
    worker = slow(resources, resources.leasing.prepare, OutOfReach)
    with pytest.raises(ConnectionError):
        await worker.lease(5, worker="a", ttl=TTL, wait=AT_ONCE)

    leases = await take(resources, worker="b")

    assert {lease.execution_id for lease in leases} == set(ids)
    for lease in leases:
        assert await settle(resources, lease, Done())
    assert await redis.xlen(NORMAL) == 0
    assert await redis.hlen(KNOWN) == 0
