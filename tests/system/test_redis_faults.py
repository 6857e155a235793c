"""A Redis that is slow, silent, read-only, or replaced by a copy that is behind: the database knows better."""

import os
import time
from datetime import timedelta
from urllib.parse import urlsplit

import pytest
from redis.asyncio import Redis

from backends import opening
from faulty_proxy import DOWN, FaultyProxy
from floodmark.model.execution import State
from floodmark.model.outcome import Done
from floodmark.testing.eventually import eventually
from floodmark.testing.factories import given_queued, requeue, settle, state_of, take
from servers import Valkey

pytest_plugins = ("backends",)

# Steps may take a third of a lease.
SHORT = {"execution_lease": timedelta(seconds=9), "scheduler_leader_ttl": timedelta(seconds=9)}


@pytest.mark.spec("G2", "G9")
async def test_a_slow_or_silent_redis_keeps_no_work_from_being_done(sqlite_copy: str, redis_url: str) -> None:
    """Every answer takes two seconds; then none comes, on open connections and on new ones."""
    with FaultyProxy(redis_url) as proxy:
        async with opening(sqlite_copy, proxy.url)(**SHORT) as resources:
            for is_silent in (False, True):
                if is_silent:
                    proxy.swallow(new=True)
                else:
                    proxy.delay(2.0, DOWN, new=True)
                began = time.monotonic()
                wanted = set(await given_queued(resources, 2))
                while wanted:
                    for lease in await take(resources):
                        assert await settle(resources, lease, Done())
                        wanted.discard(lease.execution_id)
                    assert time.monotonic() - began < 60
                proxy.heal()
                proxy.reset()


@pytest.mark.spec("G2", "G3")
async def test_a_replica_that_is_behind_hands_out_nothing_twice(sqlite_copy: str) -> None:
    """While it may only be read, the database serves; promoted, it tells of work that was done meanwhile."""
    with Valkey.start(own=True) as primary, Valkey.start(own=True) as replica:
        async with opening(sqlite_copy, primary.url)() as resources, Redis.from_url(replica.url) as copy:
            done, waiting = await given_queued(resources, 2)
            await copy.replicaof("127.0.0.1", urlsplit(primary.url).port)

            async def is_copied() -> bool:
                info = await copy.info("replication")
                return bool(info["master_link_status"] == "up" and await copy.dbsize())

            await eventually(is_copied)

            async with opening(sqlite_copy, replica.url)() as reading:
                [only_in_sql] = await given_queued(reading)
                leases = {lease.execution_id: lease for lease in await take(reading)}
                assert set(leases) == {done, waiting, only_in_sql}
                await settle(reading, leases[only_in_sql], Done())

            # From here on the copy is behind: it does not hear of the end of the first one.
            await copy.replicaof("NO", "ONE")
            assert await settle(resources, leases[done], Done())
            await settle(resources, leases[waiting], Done())
            later = await given_queued(resources, 2)

        async with opening(sqlite_copy, replica.url)() as promoted:
            await requeue(promoted)
            assert {lease.execution_id for lease in await take(promoted)} == set(later)


@pytest.mark.spec("G2", "G3")
async def test_a_cut_append_only_file_loses_and_doubles_nothing(sqlite_copy: str) -> None:
    """A crash that costs Redis its last writes: it forgets what was put, and that something was settled."""
    with Valkey.start(persist=True) as server:
        async with opening(sqlite_copy, server.url)() as resources:
            [done] = await given_queued(resources)
            [lease] = await take(resources)
            [log] = server.home.glob("appendonlydir/*.incr.aof")
            kept = log.stat().st_size
            assert await settle(resources, lease, Done())
            later = await given_queued(resources, 2)
        server.kill()
        assert log.stat().st_size > kept
        # In the middle of a command, as a power cut leaves it.
        os.truncate(log, kept + 7)
        server.start_again()

        async with opening(sqlite_copy, server.url)() as resources:
            await requeue(resources)
            assert {lease.execution_id for lease in await take(resources)} == set(later)
            assert await state_of(resources, done) is State.DONE
