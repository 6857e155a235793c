"""Everything is killed, at random moments: nothing is lost, nothing is there twice, no instant is missed.

The moments come from a seed, which is printed; FLOODMARK_CHAOS_SEED repeats them. A run in which one of the
faults did not happen proves nothing about it, and fails. FLOODMARK_CHAOS_KILLS sets how often the embedded process is
killed; what there is to collect, and the time for it, grow with that.
"""

import asyncio
import os
import random
import signal
import time
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

import pytest
import redis

from chaos.fleet import Fleet, Probe, eventually, shown_at_the_end
from chaos.invariants import check_all, come_to_rest, passed_on, prepare, wait_for_items
from chaos.numbered import Plan
from chaos.process import Order
from conftest import started
from servers import Postgres, Valkey

SERVER_KILLS, USUAL_KILLS = 40, 24
EMBEDDED_KILLS = int(os.environ.get("FLOODMARK_CHAOS_KILLS", str(USUAL_KILLS)))
TIMES_LONGER = max(1, EMBEDDED_KILLS // USUAL_KILLS)
LEASE_SECONDS = 2.0
PREFIX = "chaos"
LEADER_KEY = "chaos-leader"
_LEADER_NOW = f"name = '{LEADER_KEY}' AND lease_until >= clock_timestamp()"

STREAMS = tuple(f"{PREFIX}:jobs:{priority}" for priority in ("high", "normal", "low"))

WORKERS = ("worker-1", "worker-2", "worker-3")
SCHEDULERS = ("scheduler-1", "scheduler-2")
FROZEN = "worker-frozen"

_REPLACED = ("BatchRefused", "LeaseLost")

_DELIVER = """
local entries = {}
for i, id in ipairs(ARGV) do
    entries[i] = '2:' .. redis.call('XADD', KEYS[2], '*', 'id', id)
    redis.call('HSET', KEYS[1], id, entries[i])
end
return entries
"""

SETTINGS = {
    "execution_lease": f"{LEASE_SECONDS}",
    "scheduler_leader_ttl": f"{LEASE_SECONDS}",
    "scheduler_leader_key": LEADER_KEY,
    "scheduler_queue_prefix": PREFIX,
    "execution_retry_base": "0.2",
    "execution_retry_max": "1",
    # So often killed for no fault of its own, an execution must not be taken for what kills its workers.
    "execution_rescue_max": 1000,
    "job_coalesce": False,
    "job_catch_up": "all",
}


# In every run `test_failpoints` kills at each step, and `test_deaths` kills whole processes.
pytestmark = [pytest.mark.release, pytest.mark.timeout(1200 * TIMES_LONGER)]


@pytest.mark.spec("G1", "G2", "G3", "G4", "G8", "T6")
async def test_an_embedded_process_killed_again_and_again_loses_nothing(
    fleet: Fleet, chance: random.Random, sqlite_url: str
) -> None:
    """One process on SQLite does everything, and seldom lives for longer than its leases."""
    plan, probe = Plan(pause=0.5, items=20_000 * TIMES_LONGER), Probe(sqlite_url)
    settings = {**SETTINGS, "database_url": sqlite_url, "execution_lease": "1", "scheduler_leader_ttl": "1"}
    up = Order(
        name="up",
        settings=settings,
        plan=plan,
        folder=str(fleet.folder),
        scheduler=True,
        worker=True,
        seconds=140 * TIMES_LONGER,
    )
    running_when_killed = []
    with shown_at_the_end(fleet, {"kills": EMBEDDED_KILLS}):
        fleet.start(up)
        await fleet.ready("up")
        for _ in range(EMBEDDED_KILLS):
            await asyncio.sleep(chance.uniform(0.2, 2.5))
            running_when_killed.append(await running(probe))
            fleet.kill("up")
            fleet.start_again("up")
        await wait_for_items(probe, plan, seconds=180 * TIMES_LONGER)
        until = await come_to_rest(probe, seconds=120)
        await check_all(probe, plan, until, settings)
        happened = fleet.counts()
        assert sum(map(bool, running_when_killed)) >= EMBEDDED_KILLS // 3, running_when_killed
        assert happened["ExecutionsRescued"] > 0
        assert fleet.fallen == [], fleet.tails()


@pytest.mark.spec("G1", "G2", "G3", "G4", "E1", "T6", "V2", "V6")
async def test_workers_schedulers_and_servers_killed_at_random_lose_nothing(
    fleet: Fleet, chance: random.Random
) -> None:
    """Two schedulers and three workers on PostgreSQL and Valkey, none of which is spared."""
    with started(lambda: Postgres.start(own=True)) as postgres, started(lambda: Valkey.start(own=True)) as valkey:
        url = postgres.create_database("chaos")
        await prepare(url)
        plan = Plan(pause=1.2)
        chaos = Chaos(fleet, chance, postgres=postgres, valkey=valkey, url=url, plan=plan, kills=SERVER_KILLS)
        with shown_at_the_end(fleet, chaos.done):
            await chaos.run()
            await chaos.check_that_all_of_it_happened()


class Chaos:
    """One run on servers: the faults, in an order given by chance, and what each was seen to do."""

    def __init__(
        self,
        fleet: Fleet,
        chance: random.Random,
        *,
        postgres: Postgres,
        valkey: Valkey,
        url: str,
        plan: Plan,
        kills: int,
    ) -> None:
        self._fleet, self._chance, self._plan, self._probe = fleet, chance, plan, Probe(url)
        self._postgres, self._valkey, self._kills = postgres, valkey, kills
        self._settings = {**SETTINGS, "database_url": url, "redis_url": valkey.url}
        self._redelivered: dict[str, tuple[Any, ...]] = {}
        self._absent: set[str] = set()
        self.done: Counter[str] = Counter()

    async def run(self) -> None:
        """All faults; then peace, and a look at what is there."""
        for name in (*SCHEDULERS, *WORKERS):
            self._start(name)
        await self._fleet.ready(*self._fleet.children)
        async with asyncio.TaskGroup() as group:
            tending = group.create_task(self._tend())
            late = group.create_task(self._commit_late())
            for fault in self._faults():
                await asyncio.sleep(self._chance.uniform(0.05, 0.7))
                await fault()
            for _ in range(5):
                if not self.done["flushes of a full queue"]:
                    await self._flush()
            for _ in range(5):
                if not any(self._fleet.happened("ExecutionsRequeued")):
                    await self._forget()
                    await self._requeued()
            await late
            await wait_for_items(self._probe, self._plan, seconds=180)
            until = await come_to_rest(self._probe, seconds=120)
            tending.cancel()
        await check_all(self._probe, self._plan, until, self._settings)

    async def check_that_all_of_it_happened(self) -> None:
        """A fault that did not happen was not survived either."""
        happened = self._fleet.counts()
        expected = {
            "kills": self._kills,
            "kills under load": self._kills // 2,
            "flushes of a full queue": 1,
            "entries lost without a trace": 1,
            "restarts of PostgreSQL under load": 1,
            "leaders frozen": 1,
            "leaders deposed": 1,
            "redeliveries dropped": 1,
            "stale commits refused": 1,
        }
        missing = {what: (self.done[what], least) for what, least in expected.items() if self.done[what] < least}
        assert not missing, f"did not happen often enough (times, least): {missing}"
        kinds = "ExecutionsRescued ExecutionsRequeued BatchRefused QueueDegraded QueueRestored LeaderChanged"
        never = [kind for kind in kinds.split() if not happened[kind]]
        assert not never, f"never happened: {never}"
        for execution_id, before in self._redelivered.items():
            assert await self._settled(execution_id) == before, f"{execution_id} was done, and ran again"

    def _faults(self) -> list[Callable[[], Awaitable[None]]]:
        kills = [self._kill_worker] * (self._kills // 2) + [self._kill_valkey] * (self._kills // 7)
        kills += [self._kill_scheduler] * (self._kills - len(kills))
        others = [self._flush, self._forget, self._restart_postgres, self._redeliver] * 2
        others += [self._freeze_leader, self._depose_leader]
        faults: list[Callable[[], Awaitable[None]]] = [*kills, *others]
        self._chance.shuffle(faults)
        return faults

    def _start(self, name: str, *, failpoint: str = "") -> int:
        is_scheduler = name in SCHEDULERS
        return self._fleet.start(
            Order(
                name=name,
                settings=self._settings,
                plan=self._plan,
                folder=str(self._fleet.folder),
                scheduler=is_scheduler,
                worker=not is_scheduler,
                failpoint=failpoint,
                seconds=190,
            )
        )

    async def _tend(self) -> None:
        """Whoever is killed comes back, sometimes later; whoever falls because a server was away, too."""
        while True:
            await asyncio.sleep(self._chance.uniform(0.05, 0.5))
            self._fleet.tend()
            while self._absent:
                self._fleet.start_again(self._absent.pop())

    async def _kill_worker(self) -> None:
        await self._kill_one_of(WORKERS)

    async def _kill_scheduler(self) -> None:
        await self._kill_one_of(SCHEDULERS)

    async def _kill_one_of(self, names: Sequence[str]) -> None:
        async def alive() -> list[str]:
            return [one for one in names if one in self._fleet.children]

        # Those that were killed a moment ago may not be back yet, on a busy machine none of them.
        name = self._chance.choice(
            await eventually(alive, bool, seconds=180, what=f"one of {', '.join(names)} is back")
        )
        under_load = await running(self._probe)
        self._fleet.kill(name)
        self._absent.add(name)
        self._killed(name.partition("-")[0], under_load)

    async def _kill_valkey(self) -> None:
        under_load = await running(self._probe)
        self._valkey.kill()
        self._killed("valkey", under_load)
        await asyncio.sleep(self._chance.uniform(0, 0.8))
        self._valkey.start_again()

    def _killed(self, what: str, under_load: int) -> None:
        self.done["kills"] += 1
        self.done[f"kills of a {what}"] += 1
        self.done["kills under load"] += bool(under_load)

    async def _flush(self) -> None:
        """FLUSHALL, with entries on the streams that nobody has read."""
        async with self._unread_entries() as (client, unread):
            client.flushall()
        self.done["flushes"] += 1
        self.done["flushes of a full queue"] += bool(unread)

    async def _forget(self) -> None:
        """Lose unread entries in silence: no error tells the workers, only the requeuer can know."""
        async with self._unread_entries() as (client, unread):
            for stream in STREAMS:
                client.xtrim(stream, maxlen=0, approximate=False)
            client.delete(f"{PREFIX}:jobs:known")
        self.done["entries lost without a trace"] += unread

    @asynccontextmanager
    async def _unread_entries(self) -> AsyncIterator[tuple[redis.Redis, int]]:
        """Hold the workers until something waits on the streams that nobody has read, and how much that is.

        For less than a lease: nothing else shall bring it back.
        """
        deadline = time.monotonic() + LEASE_SECONDS * 0.7
        with self._client() as client, self._stopped([name for name in WORKERS if name in self._fleet.children]):
            for blocked in client.client_list():
                if "b" in blocked["flags"]:
                    # A worker that waits would be handed the next entry even while it stands still.
                    client.client_unblock(int(blocked["id"]))
            while not (unread := _unread(client)) and time.monotonic() < deadline:  # noqa: ASYNC110 - Valkey has no event
                await asyncio.sleep(0.05)
            yield client, unread

    async def _requeued(self) -> None:
        deadline = time.monotonic() + 8
        while not any(self._fleet.happened("ExecutionsRequeued")) and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.1)

    async def _restart_postgres(self) -> None:
        await self._something_runs()
        under_load = await running(self._probe)
        self._postgres.restart("immediate")
        self.done["restarts of PostgreSQL under load"] += bool(under_load)

    async def _freeze_leader(self) -> None:
        """SIGSTOP of the leader for longer than its lease: another leads, and the old one does no harm."""
        leader = await self._leader()
        child = self._fleet.children[leader]
        with self._stopped([leader]):

            async def successor() -> str:
                return await self._leader()

            await eventually(successor, lambda name: name != leader, seconds=180, what=f"a leader other than {leader}")
        assert self._fleet.children[leader] == child
        self.done["leaders frozen"] += 1

    async def _depose_leader(self) -> None:
        """End the leader's lease again and again: for a while both lead."""
        await self._leader()
        ended = f"UPDATE leases SET lease_until = 'epoch' WHERE {_LEADER_NOW} RETURNING 1"
        for _ in range(10):
            self.done["leaders deposed"] += len(await self._probe.rows(ended))
            await asyncio.sleep(0.1)

    async def _redeliver(self) -> None:
        """Deliver what is done or running once more."""
        await self._something_runs()
        newest = "SELECT execution_id FROM executions WHERE state = '{}' ORDER BY execution_id DESC LIMIT 5"
        done = [row[0] for row in await self._probe.rows(newest.format("done"))]
        other = [row[0] for row in await self._probe.rows(newest.format("running"))]
        known = f"{PREFIX}:jobs:known"
        with self._client() as client:
            # At once: a worker may be done with an entry before we have said that it is known.
            entries = client.eval(_DELIVER, 2, known, STREAMS[1], *done, *other)
            ours = dict(zip(done + other, entries, strict=True))

            async def left() -> list[str]:
                # What runs may be rescued and put again meanwhile: that entry is not ours.
                return [one for one, entry in ours.items() if client.hget(known, one) == entry]

            # A worker that has just found Redis away leaves it alone for a while.
            await eventually(left, lambda ids: not ids, seconds=180, what="redeliveries taken from the queue")
        self._redelivered.update({one: await self._settled(one) for one in done})
        self.done["redeliveries dropped"] += len(done + other)

    async def _settled(self, execution_id: str) -> tuple[Any, ...]:
        [row] = await self._probe.rows(
            f"SELECT state, attempt, worker, completed_at FROM executions WHERE execution_id = '{execution_id}'"
        )
        return row

    async def _commit_late(self) -> None:
        """Until it has come to a stale commit: a worker may also learn in time that it was replaced."""
        for _ in range(5):
            if not self.done["stale commits refused"]:
                await self._freeze_worker()

    async def _freeze_worker(self) -> None:
        """SIGSTOP a worker with a batch in its hands, let another take over, SIGCONT: the batch is refused."""
        self._start(FROZEN, failpoint="keep.begun:stop@2")
        # Not necessarily the process we started: that may have fallen before, and been started again.
        note = await self._fleet.stopped(FROZEN, 60)
        await passed_on(self._probe, note["worker"], seconds=180)
        self._fleet.send(FROZEN, signal.SIGCONT)

        async def told() -> list[str]:
            return [found["kind"] for found in self._fleet.happened(child=note["child"]) if found["kind"] in _REPLACED]

        if "BatchRefused" in await eventually(told, bool, seconds=180, what=f"{FROZEN} learns that it was replaced"):
            refused = await asyncio.to_thread(_metric, note["port"], "floodmark_stale_commits_refused_total")
            self.done["stale commits refused"] += int(refused)
        self._fleet.kill(FROZEN)
        self._killed("worker", await running(self._probe))

    async def _leader(self) -> str:
        """The name of the process that leads, as soon as there is one that lives."""

        async def look() -> str | None:
            names = {note["worker"]: note for note in self._fleet.happened("ready")}
            for [holder] in await self._probe.rows(f"SELECT holder FROM leases WHERE {_LEADER_NOW}"):
                note = names.get(holder)
                if note and self._fleet.children.get(note["process"]) == note["child"]:
                    return str(note["process"])
            return None

        leader = await eventually(look, lambda name: name is not None, seconds=180, what="a leader")
        assert leader is not None
        return leader

    async def _something_runs(self) -> None:
        await eventually(lambda: running(self._probe), bool, seconds=180, what="a running execution", every=0.02)

    @contextmanager
    def _stopped(self, names: Sequence[str]) -> Iterator[None]:
        """They stand still for the length of the block."""
        for name in names:
            self._fleet.send(name, signal.SIGSTOP)
        try:
            yield
        finally:
            for name in names:
                if name in self._fleet.children:
                    self._fleet.send(name, signal.SIGCONT)

    def _client(self) -> redis.Redis:
        return redis.Redis.from_url(self._valkey.url, decode_responses=True, socket_timeout=60)


async def running(probe: Probe) -> int:
    """How many executions run at this moment."""
    return int(await probe.value("SELECT count(*) FROM executions WHERE state = 'running'"))


def _unread(client: redis.Redis) -> int:
    """Entries on the streams that no worker has read."""
    unread = 0
    for stream in STREAMS:
        with suppress(redis.ResponseError):  # no such stream
            read = [group["last-delivered-id"] for group in client.xinfo_groups(stream)]
            unread += len(client.xrange(stream, min=f"({read[0]}" if read else "-") or ())
    return unread


def _metric(port: int, name: str) -> float:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith(f"{name} ")))
