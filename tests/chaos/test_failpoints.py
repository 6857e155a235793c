"""A process dies, or fails, exactly between two steps of the protocol: the next one goes on, and nothing shows.

Each case has stores of its own. A victim is killed at a fail-point (or meets an error there, and lives); a survivor
finishes; then everything must be there once. Most of a case is waiting for leases to end, so they run side by side
when the first one is asked for.
"""

import asyncio
import shutil
import signal
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple
from uuid import uuid4

import pytest
import redis

from chaos.fleet import Fleet, Probe, Zygote, eventually
from chaos.invariants import check_all, come_to_rest, passed_on, prepare, wait_for_items
from chaos.numbered import Plan
from chaos.process import Order
from floodmark.process.failpoints import POINTS
from servers import Postgres, Valkey

AT_ONCE = 8
# Seconds. The machine may be busy with other tests.
PATIENCE, IN_ALL = 180.0, 500.0
PLAN = Plan(items=300, streams=2, batch=50, pause=0.02, slow_down=True)

# In the middle of things rather than at the very first hit.
HITS = {
    "keep.before": 3,
    "keep.begun": 3,
    "keep.written": 3,
    "keep.after": 3,
    "settle.before": 2,
    "settle.committed": 2,
}

UNFINISHED = "SELECT * FROM executions WHERE state NOT IN ('done', 'skipped')"
SIGKILLED = -9
REPLACED = ("BatchRefused", "LeaseLost")


class Case(NamedTuple):
    """What happens where, on which stores."""

    point: str
    action: Literal["kill", "raise", "stop"]
    stores: Literal["sqlite", "servers"]

    def __str__(self) -> str:
        return f"{self.point}-{self.action}-{self.stores}"

    @property
    def failpoint(self) -> str:
        return f"{self.point}:{self.action}@{HITS.get(self.point, 1)}"

    @property
    def is_long_run(self) -> bool:
        """Whether it runs with `--thorough` only: an error where a process is killed as well adds little to it, and on
        SQLite the steps that move items and executions are those with transactions of their own.
        """
        return self.action == "raise" or (self.stores == "sqlite" and self.point not in HITS)


CASES = [
    Case(point, action, stores)
    for stores in ("sqlite", "servers")
    for action in ("kill", "raise")
    for point in POINTS
    # An error there is none of the protocol's: nothing but a fail-point could raise it.
    if (point, action) != ("lease.claimed", "raise")
    # On SQLite an error rolls one transaction back, as the contracts prove; there it is the kill that counts.
    and (action, stores) != ("raise", "sqlite")
    # Where the database is the queue there is nothing to put again.
    and (point, stores) != ("requeue.read", "sqlite")
    # There is no sink.
    and (point, stores) != ("deliver.sent", "sqlite")
]
# Not on SQLite: a process that stands still may do so with the write lock in its hands, and then so do all.
CASES += [Case("keep.begun", "stop", "servers")]


class Stores:
    """A database, and on servers a share of Valkey, for each case."""

    def __init__(self, folder: Path, migrated: Path, postgres: Postgres, template: str, valkey: Valkey) -> None:
        self._folder, self._migrated = folder, migrated
        self._postgres, self._template, self._valkey = postgres, template, valkey

    def settings(self, case: Case) -> dict[str, Any]:
        """What the processes of a case are told."""
        name = f"case_{uuid4().hex[:12]}"
        usual = {
            "execution_lease": "1",
            "scheduler_leader_ttl": "1",
            "scheduler_leader_key": f"{name}-leader",
            "scheduler_queue_prefix": name,
            "execution_retry_base": "0.1",
            # A busy machine may let a lease of one second run out again and again.
            "execution_rescue_max": 100,
            "job_coalesce": False,
            "job_catch_up": "all",
        }
        if case.stores == "sqlite":
            return {**usual, "database_url": f"sqlite:///{shutil.copy(self._migrated, self._folder / f'{name}.db')}"}
        url = self._postgres.create_database(name, template=self._template)
        return {**usual, "database_url": url, "redis_url": self._valkey.url}

    def drop(self, settings: dict[str, Any]) -> None:
        """A server with a database for each case would take long to end."""
        if "redis_url" in settings:
            self._postgres.drop_database(settings["database_url"].rpartition("/")[2])


@pytest.fixture(scope="module")
def outcomes(
    request: pytest.FixtureRequest,
    zygote: Zygote,
    postgres: Postgres,
    valkey: Valkey,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[dict[Case, BaseException | None]]:
    """How each case that was asked for went."""
    wanted: list[Case] = [
        item.callspec.params["case"]  # type: ignore[misc]  # a parameter may be anything
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.module is request.module
    ]
    folder, template = tmp_path_factory.mktemp("failpoints"), f"template_{uuid4().hex[:12]}"
    url = postgres.create_database(template)
    stores = Stores(folder, request.getfixturevalue("migrated_sqlite"), postgres, template, valkey)

    async def everything() -> list[BaseException | None]:
        await prepare(url)
        turns = asyncio.Semaphore(AT_ONCE)

        async def one(case: Case) -> None:
            async with turns:
                await asyncio.wait_for(run(case, stores, Fleet(zygote, folder / str(case))), IN_ALL)

        return await asyncio.gather(*map(one, wanted), return_exceptions=True)

    yield dict(zip(wanted, asyncio.run(everything()), strict=True))
    valkey.flush()


@pytest.mark.spec("G1", "G2", "G3", "G4", "E1", "V6")
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=pytest.mark.thorough if case.is_long_run else ()) for case in CASES],
    ids=str,
)
def test_nothing_is_lost_or_doubled_by_a_fault_at(case: Case, outcomes: dict[Case, BaseException | None]) -> None:
    """Whichever step it hits."""
    error = outcomes[case]
    if error is not None:
        raise error


async def run(case: Case, stores: Stores, fleet: Fleet) -> None:
    """One case from an empty store to a full one."""
    settings = stores.settings(case)
    probe = Probe(settings["database_url"])
    try:
        await arrange(case, settings, fleet, probe)
        has_worker = case.point != "requeue.read"
        fleet.start(order("victim", settings, fleet, failpoint=case.failpoint, worker=has_worker))
        if case.action == "kill":
            assert await fleet.ended("victim", PATIENCE) == SIGKILLED, fleet.tails()
        if case.action == "stop":
            await commit_late(fleet, probe, settings)
        if case.action == "raise":
            met = partial(fleet.has_noted, "fail-point")
            await eventually(met, bool, seconds=PATIENCE, what="the fail-point is met")
        if case.action == "kill" or not has_worker:
            fleet.start(order("survivor", settings, fleet))
        await wait_for_items(probe, PLAN, seconds=PATIENCE)
        until = await come_to_rest(probe, seconds=PATIENCE)
        await check_all(probe, PLAN, until, settings)
        if case.stores == "servers":
            await check_relayed(case, settings, probe)
    except BaseException as error:
        where, unfinished = await fleet.where(), await probe.rows(UNFINISHED)
        error.add_note(f"{where}\n{case}: {dict(fleet.counts())}\n{fleet.failures()}\n{unfinished}\n{error!r}")
        raise
    finally:
        fleet.stop_all()
        stores.drop(settings)


async def commit_late(fleet: Fleet, probe: Probe, settings: dict[str, Any]) -> None:
    """The victim stands still with a batch in its hands until a survivor has taken over: its commit is refused."""
    note = await fleet.stopped("victim", PATIENCE)
    fleet.start(order("survivor", settings, fleet))
    await passed_on(probe, note["worker"], seconds=PATIENCE)
    fleet.send("victim", signal.SIGCONT)

    async def told() -> list[str]:
        # Or, if its heartbeat was quicker, a lost lease: then it does not even try.
        return [found["kind"] for found in fleet.happened(child=note["child"]) if found["kind"] in REPLACED]

    await eventually(told, bool, seconds=PATIENCE, what="the victim learns that it was replaced")


async def arrange(case: Case, settings: dict[str, Any], fleet: Fleet, probe: Probe) -> None:
    """Some points are met only after another mishap."""
    if case.point == "rescue.committed":
        fleet.start(order("dead", settings, fleet, failpoint="keep.before:kill@2"))
        assert await fleet.ended("dead", PATIENCE) == SIGKILLED, fleet.tails()
    if case.point == "requeue.read":
        fleet.start(order("dead", settings, fleet, failpoint="fire.committed:kill", worker=False))
        assert await fleet.ended("dead", PATIENCE) == SIGKILLED, fleet.tails()
        await probe.rows("UPDATE executions SET queue_rank = queue_rank - interval '20 s' WHERE state = 'queued'")


def order(name: str, settings: dict[str, Any], fleet: Fleet, *, failpoint: str = "", worker: bool = True) -> Order:
    return Order(
        name=name,
        settings=settings,
        plan=PLAN,
        folder=str(fleet.folder),
        scheduler=True,
        worker=worker,
        failpoint=failpoint,
        seconds=IN_ALL + 30,
    )


async def check_relayed(case: Case, settings: dict[str, Any], probe: Probe) -> None:
    """Everyone who reads the event stream gets each event, and by its id can tell a second copy."""
    outbox = await probe.rows("SELECT stream, key, revision FROM outbox")
    expected = {f"{stream}/{key}/{revision}" for stream, key, revision in outbox}

    async def read() -> Counter[str]:
        with redis.Redis.from_url(settings["redis_url"], decode_responses=True) as client:
            entries = client.xrange(f"{settings['scheduler_queue_prefix']}:events")
        return Counter(fields["event_id"] for _, fields in entries)

    copies = await eventually(read, lambda found: len(found) >= len(expected), seconds=PATIENCE, what="all are sent")
    assert copies.keys() == expected
    if case.point == "deliver.sent":
        # Anywhere else a kill may hit the delivery just there, too; here it must.
        assert max(copies.values()) > 1, "no event was sent twice"
