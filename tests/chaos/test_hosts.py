"""Three hosts with a worker each, cut off from PostgreSQL, from Redis, and from everything: nothing is lost."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from chaos.fleet import Fleet, Probe, eventually
from chaos.invariants import check_all, come_to_rest, passed_on, prepare, wait_for_items
from chaos.numbered import Plan
from chaos.process import Order
from faulty_proxy import FaultyProxy
from hosts import Hosts, require_namespaces

PATIENCE = 180.0
USUAL: dict[str, Any] = {
    "execution_lease": "4",
    "execution_rescue_max": 100,
    "job_coalesce": False,
    "job_catch_up": "all",
    "job_misfire_grace_time": "600",
    "scheduler_worker_pool_size": 4,
}


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    require_namespaces()
    with Hosts(3) as made:
        yield made


@pytest.mark.spec("G1", "G2", "G3")
@pytest.mark.thorough
async def test_workers_on_hosts_that_are_cut_off_lose_nothing(
    fleet: Fleet, hosts: Hosts, pg_url: str, redis_url: str
) -> None:
    """Others go on with what a host held that lost PostgreSQL, or vanished; one that lost only Redis works on."""
    settings = {**USUAL, "database_url": pg_url, "redis_url": redis_url}
    await prepare(pg_url)
    probe, folder = Probe(pg_url), str(fleet.folder)
    enough = fleet.folder / "enough"
    plan = Plan(items=480, streams=6, batch=4, pause=1.0, until=str(enough))
    fleet.start(Order(name="s", settings=settings, plan=plan, folder=folder, scheduler=True, worker=False))
    with ExitStack() as stack:
        sql = stack.enter_context(FaultyProxy(pg_url, host=hosts.address("sql"))).url
        redis = stack.enter_context(FaultyProxy(redis_url, host=hosts.address("redis"))).url
        names = ["a", "b", "c"]
        for name, namespace in zip(names, hosts.names, strict=True):
            there = {**settings, "database_url": sql, "redis_url": redis, "hostname": f"host-{name}"}
            fleet.start(
                Order(
                    name=name,
                    settings=there,
                    plan=plan,
                    folder=folder,
                    scheduler=False,
                    worker=True,
                    namespace=namespace,
                )
            )
        await fleet.ready("s", *names)
        workers = [_worker(fleet, name) for name in names]

        cut = await _busy(probe, workers)
        hosts.cut(cut, "sql")
        await passed_on(probe, workers[cut], seconds=PATIENCE)
        hosts.mend(cut, "sql")

        cut = await _busy(probe, workers)
        hosts.cut(cut, "redis")
        before = await _ended_by(probe, workers[cut])
        await eventually(
            lambda: _ended_by(probe, workers[cut]), lambda now: now > before, seconds=PATIENCE, what="it works on"
        )
        hosts.mend(cut, "redis")

        cut = await _busy(probe, workers)
        hosts.cut(cut, "sql", "redis")
        await passed_on(probe, workers[cut], seconds=PATIENCE)
        enough.touch()
        await wait_for_items(probe, plan, seconds=PATIENCE)
        fleet.kill(names[cut])
        until = await come_to_rest(probe, seconds=PATIENCE)
        await check_all(probe, plan, until, settings)
        fleet.stop_all()


def _worker(fleet: Fleet, name: str) -> str:
    [note] = fleet.happened("ready", child=fleet.children[name])
    return str(note["worker"])


async def _busy(probe: Probe, workers: list[str]) -> int:
    """Wait until one of them runs an execution that takes long; which of them."""
    running = (
        "SELECT e.worker FROM executions e JOIN jobs j USING (job_id)"
        " WHERE e.state = 'running' AND j.schedule_type = 'immediate' ORDER BY e.started_at DESC"
    )
    rows = await eventually(lambda: probe.rows(running), bool, seconds=PATIENCE, what="a long execution runs")
    return workers.index(rows[0][0])


async def _ended_by(probe: Probe, worker: str) -> int:
    return int(await probe.value(f"SELECT count(*) FROM executions WHERE worker = '{worker}' AND state = 'done'"))
