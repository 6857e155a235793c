"""A process dies, or fails, exactly between two steps of the protocol: the next one goes on, and nothing shows.

A victim is killed at a fail-point (or meets an error there, and lives); a survivor finishes; then everything must be
there once.

Starting processes and waiting for leases is most of the work. So in the normal run the victims of the same stores
follow each other, each one continues the work of the one before, and one survivor finishes: a chain. After each death
the store must be consistent, so a fault shows at its own point; after the survivor everything must be there. With
`--release` each case has stores and a survivor of its own besides.
"""

import asyncio
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple
from uuid import uuid4

import pytest
import redis

from chaos.fleet import Fleet, Probe, Zygote, eventually
from chaos.invariants import check_all, check_stored, come_to_rest, passed_on, prepare, wait_for_items
from chaos.numbered import Plan
from chaos.process import Order
from floodmark.process.failpoints import POINTS
from servers import Postgres, Valkey

AT_ONCE = 8
# Seconds. The machine may be busy with other tests.
PATIENCE, IN_ALL = 180.0, 500.0
PLAN = Plan(items=300, streams=2, batch=50, pause=0.02, slow_down=True)
# Of a chain: so slow that there are numbers left for the victims that are killed while they keep them.
SLOW_PLAN = Plan(items=240, streams=2, batch=10, pause=0.6, slow_down=True)

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
STOPPED = Case("keep.begun", "stop", "servers")
CASES += [STOPPED]

# The victims of the normal run, in an order in which each one meets its point.
ON_SERVERS = (
    # Numbers that are read for the first time ask for a pause, and only those.
    "wake.committed",
    "keep.before",
    # It finds what the one before left running.
    "rescue.committed",
    "keep.begun",
    "keep.written",
    "keep.after",
    "settle.before",
    "settle.committed",
    "settle.acked",
    "lease.claimed",
    "queue.read",
    "fire.put",
    "fire.committed",
    # It finds what the one before stored and did not put.
    "requeue.read",
    "relay.published",
    "leader.acquired",
)
# The last one, so that nobody but its survivor sends anything again.
LAST = Case("deliver.sent", "kill", "servers")
CHAINS: dict[str, list[Case]] = {
    # The steps that move items and executions: those with transactions of their own.
    "sqlite": [Case(point, "kill", "sqlite") for point in HITS],
    "servers": [*(Case(point, "kill", "servers") for point in ON_SERVERS), STOPPED, LAST],
}
CHAINED = [case for chain in CHAINS.values() for case in chain]


class Stores:
    """A database, and on servers a share of Valkey, for each case."""

    def __init__(self, folder: Path, migrated: Path, postgres: Postgres, template: str, valkey: Valkey) -> None:
        self.folder, self._migrated = folder, migrated
        self._postgres, self._template, self._valkey = postgres, template, valkey

    def settings(self, kind: str) -> dict[str, Any]:
        """What the processes of a case, or of a chain, are told."""
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
        if kind == "sqlite":
            return {**usual, "database_url": f"sqlite:///{shutil.copy(self._migrated, self.folder / f'{name}.db')}"}
        url = self._postgres.create_database(name, template=self._template)
        return {**usual, "database_url": url, "redis_url": self._valkey.url}

    def drop(self, settings: dict[str, Any]) -> None:
        """A server with a database for each case would take long to end."""
        if "redis_url" in settings:
            self._postgres.drop_database(settings["database_url"].rpartition("/")[2])


@pytest.fixture(scope="module")
def stores(
    postgres: Postgres, valkey: Valkey, migrated_sqlite: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stores]:
    template = f"template_{uuid4().hex[:12]}"
    asyncio.run(prepare(postgres.create_database(template)))
    yield Stores(tmp_path_factory.mktemp("failpoints"), migrated_sqlite, postgres, template, valkey)
    valkey.flush()


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest, zygote: Zygote, stores: Stores) -> dict[Case, BaseException | None]:
    """How each case with stores of its own went."""
    wanted = asked_for(request, test_nothing_is_lost_or_doubled_by_a_fault_at)

    async def everything() -> list[BaseException | None]:
        turns = asyncio.Semaphore(AT_ONCE)

        async def one(case: Case) -> None:
            async with turns:
                await asyncio.wait_for(run(case, stores, Fleet(zygote, stores.folder / str(case))), IN_ALL)

        return await asyncio.gather(*map(one, wanted), return_exceptions=True)

    return dict(zip(wanted, asyncio.run(everything()), strict=True))


@pytest.fixture(scope="module")
def in_chains(request: pytest.FixtureRequest, zygote: Zygote, stores: Stores) -> dict[Case, BaseException | None]:
    """How each case of the chains went."""
    wanted = asked_for(request, test_nothing_is_lost_or_doubled_by_a_chain_of_faults_with)
    outcomes: dict[Case, BaseException | None] = {}

    async def everything() -> None:
        chains = [(kind, [case for case in cases if case in wanted]) for kind, cases in CHAINS.items()]
        await asyncio.gather(
            *(
                run_chain(cases, outcomes, stores, Fleet(zygote, stores.folder / f"chain-{kind}"))
                for kind, cases in chains
                if cases
            )
        )

    asyncio.run(everything())
    return outcomes


def asked_for(request: pytest.FixtureRequest, test: Callable[..., None]) -> list[Case]:
    """Return the cases of a test that this run is to have."""
    return [
        item.callspec.params["case"]  # type: ignore[misc]  # a parameter may be anything
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.function is test
    ]


@pytest.mark.spec("G1", "G2", "G3", "G4", "E1", "V6")
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("case", CHAINED, ids=str)
def test_nothing_is_lost_or_doubled_by_a_chain_of_faults_with(
    case: Case, in_chains: dict[Case, BaseException | None]
) -> None:
    """Each victim continues the work of the one before."""
    error = in_chains[case]
    if error is not None:
        raise error


def test_a_process_is_killed_at_each_point_of_the_protocol() -> None:
    assert {case.point for case in CHAINED if case.action == "kill"} == set(POINTS)


@pytest.mark.spec("G1", "G2", "G3", "G4", "E1", "V6")
@pytest.mark.release
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_nothing_is_lost_or_doubled_by_a_fault_at(case: Case, outcomes: dict[Case, BaseException | None]) -> None:
    """Whichever step it hits."""
    error = outcomes[case]
    if error is not None:
        raise error


async def run_chain(
    cases: Sequence[Case], outcomes: dict[Case, BaseException | None], stores: Stores, fleet: Fleet
) -> None:
    """Run the cases of a chain, one after the other, then a survivor. Cases after one that failed fail as well."""
    settings = stores.settings(cases[0].stores)
    probe, repeated = Probe(settings["database_url"]), 0
    told: list[Case] = []
    start = partial(order, settings=settings, fleet=fleet, plan=SLOW_PLAN)
    try:
        for case in cases:
            told = [case]
            await let_fail(case, start, settings, fleet, probe)
            await check_stored(probe, SLOW_PLAN)
            repeated = repeats(settings) if case.stores == "servers" else 0
            outcomes[case] = None
        # Whoever it was: nothing shows before the end.
        told = list(cases)
        fleet.start(start("survivor"))
        await wait_for_items(probe, SLOW_PLAN, seconds=PATIENCE)
        until = await come_to_rest(probe, seconds=PATIENCE)
        await check_all(probe, SLOW_PLAN, until, settings)
        if cases[0].stores == "servers":
            await check_relayed(settings, probe)
        if LAST in cases:
            assert repeats(settings) > repeated, "no event was sent twice"
    except BaseException as error:
        error.add_note(f"In the chain {', '.join(map(str, cases))}\nat {', '.join(map(str, told))}:")
        error.add_note(await seen(fleet, probe))
        after = cases[cases.index(told[-1]) + 1 :]
        outcomes.update(dict.fromkeys(told, error))
        outcomes.update({case: AssertionError(f"not reached: {told[-1]} failed before") for case in after})
        if not isinstance(error, Exception):
            raise
    finally:
        fleet.stop_all()
        stores.drop(settings)


async def let_fail(
    case: Case, start: Callable[..., Order], settings: dict[str, Any], fleet: Fleet, probe: Probe
) -> None:
    """One victim of a chain; nobody is left at the end."""
    if case.point == "requeue.read":
        await let_put_again(probe)
    victim = start("victim", failpoint=case.failpoint, worker=case.point != "requeue.read")
    fleet.start(victim)
    if case.action == "stop":
        await commit_late(fleet, probe, start("replacement"))
        fleet.stop_all()
    else:
        assert await fleet.ended("victim", PATIENCE) == SIGKILLED, fleet.tails()


async def run(case: Case, stores: Stores, fleet: Fleet) -> None:
    """One case from an empty store to a full one."""
    settings = stores.settings(case.stores)
    probe = Probe(settings["database_url"])
    start = partial(order, settings=settings, fleet=fleet, plan=PLAN)
    try:
        await arrange(case, start, fleet, probe)
        has_worker = case.point != "requeue.read"
        fleet.start(start("victim", failpoint=case.failpoint, worker=has_worker))
        if case.action == "kill":
            assert await fleet.ended("victim", PATIENCE) == SIGKILLED, fleet.tails()
        if case.action == "stop":
            await commit_late(fleet, probe, start("survivor"))
        if case.action == "raise":
            met = partial(fleet.has_noted, "fail-point")
            await eventually(met, bool, seconds=PATIENCE, what="the fail-point is met")
        if case.action == "kill" or not has_worker:
            fleet.start(start("survivor"))
        await wait_for_items(probe, PLAN, seconds=PATIENCE)
        until = await come_to_rest(probe, seconds=PATIENCE)
        await check_all(probe, PLAN, until, settings)
        if case.stores == "servers":
            await check_relayed(settings, probe)
        if case.point == "deliver.sent":
            # Anywhere else a kill may hit the delivery just there, too; here it must.
            assert repeats(settings) > 0, "no event was sent twice"
    except BaseException as error:
        error.add_note(f"{case}: {await seen(fleet, probe)}\n{error!r}")
        raise
    finally:
        fleet.stop_all()
        stores.drop(settings)


async def seen(fleet: Fleet, probe: Probe) -> str:
    """What there is to see when something went wrong."""
    where, unfinished = await fleet.where(), await probe.rows(UNFINISHED)
    return f"{where}\n{dict(fleet.counts())}\n{fleet.failures()}\n{unfinished}"


async def commit_late(fleet: Fleet, probe: Probe, replacement: Order) -> None:
    """The victim stands still with a batch in its hands until another has taken over: its commit is refused."""
    note = await fleet.stopped("victim", PATIENCE)
    fleet.start(replacement)
    await passed_on(probe, note["worker"], seconds=PATIENCE)
    fleet.send("victim", signal.SIGCONT)

    async def told() -> list[str]:
        # Or, if its heartbeat was quicker, a lost lease: then it does not even try.
        return [found["kind"] for found in fleet.happened(child=note["child"]) if found["kind"] in REPLACED]

    await eventually(told, bool, seconds=PATIENCE, what="the victim learns that it was replaced")


async def arrange(case: Case, start: Callable[..., Order], fleet: Fleet, probe: Probe) -> None:
    """Some points are met only after another mishap."""
    if case.point == "rescue.committed":
        fleet.start(start("dead", failpoint="keep.before:kill@2"))
        assert await fleet.ended("dead", PATIENCE) == SIGKILLED, fleet.tails()
    if case.point == "requeue.read":
        fleet.start(start("dead", failpoint="fire.committed:kill", worker=False))
        assert await fleet.ended("dead", PATIENCE) == SIGKILLED, fleet.tails()
        await let_put_again(probe)


async def let_put_again(probe: Probe) -> None:
    """Let what was fired and not put on the queue be as old as it must be to be put again."""
    await probe.rows("UPDATE executions SET queue_rank = queue_rank - interval '20 s' WHERE state = 'queued'")


def order(
    name: str, *, settings: dict[str, Any], fleet: Fleet, plan: Plan, failpoint: str = "", worker: bool = True
) -> Order:
    return Order(
        name=name,
        settings=settings,
        plan=plan,
        folder=str(fleet.folder),
        scheduler=True,
        worker=worker,
        failpoint=failpoint,
        seconds=IN_ALL + 30,
    )


async def check_relayed(settings: dict[str, Any], probe: Probe) -> None:
    """Everyone who reads the event stream gets each event, and by its id can tell a second copy."""
    outbox = await probe.rows("SELECT stream, key, revision FROM outbox")
    expected = {f"{stream}/{key}/{revision}" for stream, key, revision in outbox}

    async def read() -> Counter[str]:
        return sent(settings)

    copies = await eventually(read, lambda found: len(found) >= len(expected), seconds=PATIENCE, what="all are sent")
    assert copies.keys() == expected


def repeats(settings: dict[str, Any]) -> int:
    """How many copies were sent of events that had been sent before."""
    copies = sent(settings)
    return copies.total() - len(copies)


def sent(settings: dict[str, Any]) -> Counter[str]:
    """How often each event was sent."""
    with redis.Redis.from_url(settings["redis_url"], decode_responses=True) as client:
        entries = client.xrange(f"{settings['scheduler_queue_prefix']}:events")
    return Counter(fields["event_id"] for _, fields in entries)
