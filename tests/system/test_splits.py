"""Two schedulers, one of them cut off from PostgreSQL, from Redis, or from both: the other fires soon.

The two processes stay for all splits: each split cuts off the one that leads, so the next one shows that the one that
was cut off before has recovered.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import datetime
from uuid import uuid4

import pytest
from redis import Redis

from backends import opening
from command_line import CommandLine
from command_line import eventually as sooner_or_later
from faulty_proxy import FaultyProxy
from floodmark.coordination.signals.port import Topic
from floodmark.observability.events import Events
from floodmark.store.database import open_database
from floodmark.store.migrate import migrate
from floodmark.store.tables import job_executions, workers
from floodmark.testing.eventually import eventually
from floodmark.testing.factories import given_job, rows_of
from floodmark.wiring.resources import Resources
from servers import Postgres, Valkey

TTL = 4.0
PREFIX, LEADER = "splits", "splits-leader"


class Member:
    """A scheduler with a network of its own."""

    def __init__(self, name: str, cli: CommandLine, postgres: FaultyProxy, valkey: FaultyProxy) -> None:
        self.name, self.cli, self.postgres, self.valkey = name, cli, postgres, valkey


class Cluster:
    """Two schedulers, and what is needed to look at their database from outside."""

    def __init__(self, database_url: str, redis_url: str, members: list[Member]) -> None:
        self.database_url, self.redis_url, self.members = database_url, redis_url, members

    async def leader(self, resources: Resources) -> Member | None:
        holder = await resources.leases.holder(LEADER)
        # A holder is named after its host, with a random id behind it.
        found = [member for member in self.members if (holder or "").startswith(f"{member.name}-")]
        return found[0] if found else None

    async def fires(self, resources: Resources) -> str:
        """Make a job that is due now; the id of its execution, once it is fired."""
        job_id = await given_job(resources, schedule_type="immediate")
        await resources.signals.notify(Topic.JOBS)
        rows = await eventually(lambda: rows_of(resources, job_executions, job_id=job_id))
        return str(rows[0]["execution_id"])


@pytest.fixture(scope="module")
def cluster(postgres: Postgres, valkey: Valkey, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    name = f"splits_{uuid4().hex[:8]}"
    url = postgres.create_database(name)
    asyncio.run(_migrated(url))
    with ExitStack() as stack:
        members = []
        for host in ("one", "two"):
            proxies = [stack.enter_context(FaultyProxy(address)) for address in (url, valkey.url)]
            cli = CommandLine(tmp_path_factory.mktemp(host), **_settings(host, *proxies))
            stack.enter_context(cli.running("scheduler", "--port", "0"))
            members.append(Member(host, cli, *proxies))
        for member in members:
            sooner_or_later(lambda member=member: "is up" in member.cli.said())  # type: ignore[misc]
        yield Cluster(url, valkey.url, members)
        for member in members:
            member.postgres.heal()
            member.valkey.heal()
    postgres.drop_database(name)


def _settings(host: str, postgres: FaultyProxy, valkey: FaultyProxy) -> dict[str, str]:
    return {
        "HOSTNAME": host,
        "DATABASE_URL": postgres.url,
        "REDIS_URL": valkey.url,
        "SCHEDULER_LEADER_TTL": str(TTL),
        "SCHEDULER_LEADER_KEY": LEADER,
        "SCHEDULER_QUEUE_PREFIX": PREFIX,
        "SHUTDOWN_GRACE": "1",
    }


async def _migrated(url: str) -> None:
    database = open_database(url, events=Events())
    try:
        await migrate(database)
    finally:
        await database.close()


def refuse(proxy: FaultyProxy) -> None:
    proxy.refuse()
    proxy.reset()


def silence(proxy: FaultyProxy) -> None:
    proxy.swallow(new=True)


@pytest.mark.spec("V6", "G1", "G2")
@pytest.mark.parametrize(
    ("lost", "cut"),
    [
        pytest.param(("postgres",), silence, id="sql-silent"),
        pytest.param(("valkey",), refuse, id="redis-refused"),
        pytest.param(("postgres",), refuse, id="sql-refused", marks=pytest.mark.release),
        pytest.param(("valkey",), silence, id="redis-silent", marks=pytest.mark.release),
        pytest.param(("postgres", "valkey"), refuse, id="both-refused", marks=pytest.mark.release),
        pytest.param(("postgres", "valkey"), silence, id="both-silent", marks=pytest.mark.release),
    ],
)
@pytest.mark.thorough
async def test_another_scheduler_fires_soon(
    cluster: Cluster, lost: tuple[str, ...], cut: Callable[[FaultyProxy], None]
) -> None:
    """Soon after SCHEDULER_LEADER_TTL; what it fires is on the queue of Redis."""
    async with opening(cluster.database_url, cluster.redis_url)(scheduler_queue_prefix=PREFIX) as resources:
        before = await eventually(lambda: cluster.leader(resources))
        assert before is not None
        await cluster.fires(resources)
        for name in lost:
            cut(getattr(before, name))
        began = time.monotonic()
        try:

            async def another() -> bool:
                leader = await cluster.leader(resources)
                return leader is not None and leader is not before

            await eventually(another)
            execution_id = await cluster.fires(resources)
            took = time.monotonic() - began
            with Redis.from_url(cluster.redis_url) as redis:
                await eventually(lambda: redis.hexists(f"{PREFIX}:jobs:known", execution_id))
        finally:
            for name in lost:
                getattr(before, name).heal()
        print(f"cut off from {' and '.join(lost)}, {cut.__name__}: another fired after {took:.1f} s")
        # On a quiet machine it takes at most two seconds longer than the lease; a busy one can hold anything up.
        assert took < 30
        # The one that was cut off is back: it renews its presence in the database.
        known = await last_seen(resources, before)
        await eventually(lambda: is_later(resources, before, known))


async def last_seen(resources: Resources, member: Member) -> datetime:
    seen: list[datetime] = [row["seen_until"] for row in await rows_of(resources, workers, hostname=member.name)]
    return max(seen)


async def is_later(resources: Resources, member: Member, known: datetime) -> bool:
    return await last_seen(resources, member) > known
