"""A process that died is noticed by the locks it held; one that lives is not, or loses nothing by it."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
from redis.asyncio import Redis
from sqlalchemy import select, text

from floodmark.model.execution import Lease
from floodmark.model.outcome import Done
from floodmark.process.lock_files import FileLock, is_free, machine
from floodmark.queue.redis_streams import GROUP
from floodmark.repositories.fleet import FleetRepository
from floodmark.runtime.scheduler_role import SchedulerRole, death_watch
from floodmark.scheduler.dead_processes import DeadProcesses
from floodmark.scheduler.death_watch import DeathWatch
from floodmark.security.vault import Vault
from floodmark.sources.telegram.accounts import Accounts
from floodmark.store.tables import workers
from floodmark.testing.eventually import eventually
from floodmark.testing.factories import Opened, given_queued, settle, take
from floodmark.wiring.resources import Resources

# So long that nothing in these tests happens because a lease has ended.
LONG = timedelta(hours=1)
NORMAL = "crawler:jobs:normal"


@pytest.fixture(params=["sqlite", "postgres_only", "redis_on_postgres", "redis_on_sqlite"])
def opened(request: pytest.FixtureRequest) -> Opened:
    """Opens one more process on the same stores."""
    found: Opened = request.getfixturevalue(request.param)
    return found


@pytest.fixture
async def survivor(postgres_only: Opened) -> AsyncIterator[Resources]:
    async with postgres_only() as resources:
        yield resources


async def present(resources: Resources) -> None:
    """As a role does every two seconds."""
    await FleetRepository(resources.database, resources.clock).record_presence(
        resources.name, role="worker", hostname="box", pid=1, slots=4, busy=0, draining=False, ttl=LONG,
        lock_file=resources.lock.file, lock_key=resources.lock.key,
    )  # fmt: skip


async def locks_of(resources: Resources, name: str) -> tuple[str | None, int | None]:
    async with resources.database.reading() as connection:
        query = select(workers.c.lock_file, workers.c.lock_key).where(workers.c.worker == name)
        return tuple((await connection.execute(query)).one())


async def rescued(resources: Resources) -> list[Lease]:
    """What can be taken after the leader has swept up."""
    found = await resources.upkeep.rescue(limit=10, rescue_max=3)
    await resources.queue.put(found.queued, again=True)
    return await take(resources, worker="other")


@pytest.mark.spec("B16")
async def test_the_work_of_a_dead_process_and_its_leadership_are_free_at_once(opened: Opened) -> None:
    """By the lock file: the kernel has freed it, so there is no doubt and nothing to wait for."""
    async with opened() as living, opened() as dying:
        dying.lock.take()
        await present(dying)
        ids = await given_queued(dying, 3)
        leases = await take(dying, 2, worker=dying.name, ttl=LONG)
        leader = living.settings.scheduler_leader_key
        assert await dying.leases.acquire(leader, holder=dying.name, ttl=LONG)
        if dying.redis is not None:
            # Read by the worker that died before it could claim it.
            await dying.redis.xreadgroup(GROUP, dying.name, {NORMAL: ">"})
        watch = death_watch(living)
        assert await watch.step() == 0, "it lives"
        file, _ = await locks_of(living, dying.name)
        assert file is not None
        descriptor = dying.lock._file._descriptor
        assert descriptor is not None
        # What the kernel does with every descriptor of a process that dies.
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, descriptor, inheritable=False)
        os.close(nothing)

        assert await watch.step() == 1
        assert await watch.step() == 0, "each death counts once"

        assert is_free(file) is None, "the file is gone"
        assert await living.leases.acquire(leader, holder=living.name, ttl=LONG)
        again = await rescued(living)
        assert {lease.execution_id for lease in again} == set(ids)
        assert not await settle(dying, leases[0], Done()), "the fence: its word no longer counts"
        for lease in again:
            assert await settle(living, lease, Done())


@pytest.mark.spec("B16", "G3")
async def test_a_missing_session_lock_means_death_only_after_a_while(
    survivor: Resources, postgres_only: Opened
) -> None:
    """As seen from another machine, where there is no lock file to look at."""
    watch = death_watch(survivor)
    async with postgres_only() as dying:
        await eventually_locked(dying)
        await present(dying)
        assert (await locks_of(survivor, dying.name))[0] is None, "no role was started, so no file was locked"
        [execution] = await given_queued(dying)
        [lease] = await take(dying, worker=dying.name, ttl=LONG)
        await server_is_old(survivor)
        for _ in range(3):
            assert await watch.step() == 0, "it lives"

        await dying.signals.stop()

        assert await watch.step() == 0, "a connection that was just lost may come back"
        await eventually(lambda: stepped(watch))
        [again] = await rescued(survivor)
        assert again.execution_id == execution == lease.execution_id


@pytest.mark.spec("B16", "G3")
async def test_a_living_process_that_lost_its_connection_is_not_taken_for_dead(
    survivor: Resources, postgres_only: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes the same lock again; from then on the time without the lock does not count."""
    # On a busy machine it may take longer to connect again.
    monkeypatch.setattr("floodmark.scheduler.death_watch._MISSING", LONG)
    async with postgres_only() as living:
        await eventually_locked(living)
        await present(living)
        await server_is_old(survivor)
        watch, before = death_watch(survivor), living.lock.key
        [lost] = await holders_of(survivor, before)
        async with survivor.database.writing() as connection:
            await connection.execute(text("SELECT pg_terminate_backend(:pid)"), {"pid": lost})

        async def is_locked_again() -> bool:
            assert await watch.step() == 0
            return bool(await holders_of(survivor, before) - {lost})

        await eventually(is_locked_again)
        monkeypatch.setattr("floodmark.scheduler.death_watch._MISSING", timedelta())
        assert await watch.step() == 0
        assert living.lock.key == before, "it has taken the same lock again"


@pytest.mark.spec("B16", "G3", "G4")
async def test_a_false_alarm_costs_nothing_but_a_fetch_and_happens_once(opened: Opened) -> None:
    async with opened() as living, opened() as other:
        living.lock.take()
        await present(living)
        await given_queued(living, 2)
        kept, lost = await take(living, 2, worker=living.name, ttl=LONG)
        deaths = DeadProcesses(other.database, other.clock)

        assert await deaths.record_death(living.name, is_certain=False)
        assert not await deaths.record_death(living.name, is_certain=False)

        extended = await living.queue.extend([kept], ttl=LONG)
        assert not extended.lost, "its next heartbeat makes up for the mistake"
        [again] = await rescued(other)
        assert again.execution_id == lost.execution_id
        assert not await settle(living, lost, Done())
        assert await settle(living, kept, Done())
        await present(living)
        assert await locks_of(other, living.name) == (None, None), "from now on its leases alone count"
        assert await death_watch(other).step() == 0


@pytest.mark.spec("B16", "T8")
async def test_an_account_is_free_early_only_when_its_holder_is_certainly_dead(opened: Opened) -> None:
    """A session that is used twice is revoked for good, so a missing connection is not enough."""
    async with opened() as resources:
        deaths = DeadProcesses(resources.database, resources.clock)
        accounts = Accounts(resources.database, resources.clock, Vault.of(resources.settings), resources.events)
        await accounts.add("reader", api_id=1, api_hash="h", session="s")
        assert await accounts.lease("reader", holder="gone", ttl=LONG)
        await FleetRepository(resources.database, resources.clock).record_presence(
            "gone", role="worker", hostname="box", pid=1, slots=1, busy=0, draining=False, ttl=LONG, lock_key=7
        )

        assert await deaths.record_death("gone", is_certain=False)
        assert not await accounts.lease("reader", holder="next", ttl=LONG)

        assert await deaths.record_death("gone", is_certain=True)
        assert await accounts.lease("reader", holder="next", ttl=LONG)


@pytest.mark.spec("B16")
async def test_what_a_dead_worker_had_read_from_redis_goes_to_others(redis_on_sqlite: Opened) -> None:
    async with redis_on_sqlite() as resources:
        redis = resources.redis
        assert isinstance(redis, Redis)
        ids = await given_queued(resources, 5)
        [lease] = await take(resources, 1, worker="dead", ttl=LONG)
        await redis.xreadgroup(GROUP, "dead", {NORMAL: ">"})
        assert await take(resources, 5, worker="next") == []

        await resources.queue.hand_on("dead")
        await resources.queue.hand_on("dead")

        found = await take(resources, 5, worker="next", ttl=LONG)
        assert {one.execution_id for one in found} == set(ids) - {lease.execution_id}
        consumers = await redis.xinfo_consumers(NORMAL, GROUP)
        assert b"dead" not in {consumer["name"] for consumer in consumers}


@pytest.mark.spec("B16")
def test_a_lock_file_ends_with_its_process_and_not_with_its_children(tmp_path: Path) -> None:
    """A child that was forked keeps the descriptor, and would keep the lock."""
    program = """
import os, sys, time
from pathlib import Path
from floodmark.process.lock_files import FileLock
lock = FileLock(Path(sys.argv[1]), "one")
lock.take()
told, tell = os.pipe()
child = os.fork()
if not child:
    os.write(tell, b"!")
    time.sleep(60)
    os._exit(0)
os.read(told, 1)
print(lock.identity, child, flush=True)
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        identity, _, child = process.stdout.readline().strip().rpartition(" ")
        try:
            assert is_free(identity) is False
            os.kill(process.pid, signal.SIGSTOP)
            assert is_free(identity) is False, "a process that stands still is not dead"
            process.kill()
            process.wait(30)
            assert is_free(identity) is True
        finally:
            os.kill(int(child), signal.SIGKILL)
    assert is_free(f"another-boot {tmp_path}/one.lock") is None
    assert is_free(f"{machine()} {tmp_path}/none.lock") is None
    (tmp_path / "file").write_text("")
    nowhere = FileLock(tmp_path / "file" / "below", "one")
    nowhere.take()
    assert nowhere.identity is None, "where there are no locks, leases alone count"


@pytest.mark.spec("B16")
@pytest.mark.parametrize("opened", ["postgres_only", "redis_on_postgres"], indirect=True)
async def test_a_standby_on_another_machine_leads_when_the_leader_has_died(opened: Opened) -> None:
    async with opened(scheduler_leader_ttl=LONG) as dying, opened(scheduler_leader_ttl=LONG) as standby:
        await eventually_locked(dying)
        await present(dying)
        await server_is_old(standby)
        assert await dying.leases.acquire(standby.settings.scheduler_leader_key, holder=dying.name, ttl=LONG)
        stop, role = asyncio.Event(), SchedulerRole(standby)
        running = asyncio.create_task(role.run(stop))
        try:
            await eventually(lambda: is_there(standby, standby.name))
            assert not role.leader.is_leader
            await dying.signals.stop()
            await eventually(lambda: is_led_by(role))
        finally:
            stop.set()
            await running


async def holders_of(resources: Resources, key: int | None) -> set[int]:
    """The server processes of PostgreSQL that hold a session lock."""
    query = (
        "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted"
        " AND ((classid::int8 << 32) | objid::int8) = :key"
    )
    async with resources.database.reading() as connection:
        return set((await connection.execute(text(query), {"key": key})).scalars())


async def eventually_locked(resources: Resources) -> None:
    async def locked() -> bool:
        return resources.lock.key is not None

    await eventually(locked)


async def server_is_old(resources: Resources) -> None:
    """Shortly after the start of the server nobody is declared dead."""

    async def old() -> bool:
        async with resources.database.reading() as connection:
            found = await connection.execute(
                text("SELECT pg_postmaster_start_time() < clock_timestamp() - interval '11 seconds'")
            )
            return bool(found.scalar())

    await eventually(old)


async def stepped(watch: DeathWatch) -> bool:
    return await watch.step() == 1


async def is_led_by(role: SchedulerRole) -> bool:
    return role.leader.is_leader


async def is_there(resources: Resources, name: str) -> bool:
    return name in {worker.worker for worker in await FleetRepository(resources.database, resources.clock).workers()}
