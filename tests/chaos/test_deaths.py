"""kill -9 of whole processes: their work goes on elsewhere, or in their successor, long before any lease ends."""

from pathlib import Path
from typing import Any

import pytest

from chaos.fleet import Fleet, Probe, eventually
from chaos.invariants import check_all, come_to_rest, prepare, wait_for_items
from chaos.numbered import Plan
from chaos.process import Order

# Leases and leadership of ten minutes: whatever goes on after a kill goes on because the death was noticed.
LEASES = {"execution_lease": "600", "scheduler_leader_ttl": "600", "execution_rescue_max": 100}
PATIENCE = 180.0
# Enough for half a minute: a process that starts on a busy machine still finds something to do.
PLAN = Plan(items=480, streams=2, batch=12, pause=2.0)


@pytest.fixture(params=["sqlite", "servers"])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    usual = {**LEASES, "job_coalesce": False, "job_catch_up": "all", "job_misfire_grace_time": "600"}
    if request.param == "sqlite":
        return {**usual, "database_url": f"sqlite:///{tmp_path}/floodmark.db"}
    url = request.getfixturevalue("pg_url")
    return {**usual, "database_url": url, "redis_url": request.getfixturevalue("redis_url")}


@pytest.mark.spec("B16", "G3", "G4")
@pytest.mark.thorough
async def test_a_killed_process_is_succeeded_at_once(fleet: Fleet, settings: dict[str, Any]) -> None:
    """`up`, killed and started again; then a scheduler and a worker, killed beside others of their kind."""
    await prepare(settings["database_url"])
    probe, folder = Probe(settings["database_url"]), str(fleet.folder)

    def order(name: str, *, scheduler: bool = True, worker: bool = True) -> Order:
        return Order(name=name, settings=settings, plan=PLAN, folder=folder, scheduler=scheduler, worker=worker)

    async def running(name: str) -> bool:
        """Whether the process holds a running execution."""
        [note] = fleet.happened("ready", child=fleet.children[name])
        rows = await probe.rows(f"SELECT 1 FROM executions WHERE state = 'running' AND worker = '{note['worker']}'")
        return bool(rows)

    async def fires(name: str) -> bool:
        return any(fleet.happened("ExecutionsFired", child=fleet.children[name]))

    async def works(name: str) -> None:
        # Often, since the queue may give it only ticks, each of which takes a few hundredths of a second.
        await eventually(lambda: running(name), bool, seconds=PATIENCE, what=f"{name} works", every=0.02)

    fleet.start(order("up"))
    await fleet.ready("up")
    await works("up")
    fleet.kill("up")
    fleet.start_again("up")
    await fleet.ready("up")
    await eventually(lambda: fires("up"), bool, seconds=PATIENCE, what="the successor fires")
    await works("up")

    fleet.start(order("standby", worker=False))
    if "redis_url" in settings:
        fleet.start(order("second", scheduler=False))
        await fleet.ready("standby", "second")
        await works("second")
        fleet.kill("second")
    fleet.kill("up")
    fleet.start(order("third", scheduler=False))
    await fleet.ready("standby", "third")
    await eventually(lambda: fires("standby"), bool, seconds=PATIENCE, what="the standby fires")

    await wait_for_items(probe, PLAN, seconds=PATIENCE)
    until = await come_to_rest(probe, seconds=PATIENCE)
    fleet.stop_all()
    await check_all(probe, PLAN, until, settings)
