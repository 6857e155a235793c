"""The health of the installation, for `/health`, the CLI and the dashboard."""

import math
import re
from datetime import datetime
from typing import Any

from msgspec.structs import asdict

from floodmark.coordination.redis_errors import redis_errors
from floodmark.errors import Unavailable
from floodmark.model.fleet import SchedulerStatus, WorkerInfo
from floodmark.store.fleet import Tick
from floodmark.watches.checkup import failing_channels
from floodmark.wiring.resources import Resources

# The intervals without a tick after which the scheduler is stale, and down.
_STALE, _DOWN = 2, 5
_RANDOM_ID = re.compile(r"-[0-9a-f]{8}$")


async def health_of(resources: Resources) -> dict[str, Any]:
    """Return the `status` and a list of `problems`.

    `degraded`: everything due is collected, but Redis is away and the database replaces it, or a channel of watches
    fails. `down`: something due is not collected, because the database does not answer or cannot be written, the last
    tick of the scheduler is too old, or no worker is alive.
    """
    try:
        await resources.database.ping()
    except Unavailable as error:
        return {"status": "down", "instance": resources.name, "database": str(error), "problems": [str(error)]}
    redis, fleet = await _redis(resources), resources.repositories.fleet
    unwritable = await resources.write_check.problem()
    leader = await resources.leases.holder(resources.settings.scheduler_leader_key)
    workers = sum(info.alive for info in await fleet.workers() if info.role == "worker")
    scheduler = _scheduler(*await fleet.last_tick_and_now(), leader)
    database = "ok" if unwritable is None else f"cannot be written: {unwritable}"
    fatal = {
        f"the database {database}": unwritable is not None,
        "no scheduler ticks; start one with: floodmark scheduler": scheduler["status"] != "ok",
        "no worker is alive; start one with: floodmark worker": not workers,
    }
    tolerable = {f"Redis does not answer: {redis}": redis not in ("ok", "not configured")}
    tolerable |= {
        f"watches cannot notify over {channel.name}: {channel.error}": True
        for channel in await failing_channels(resources.database)
    }
    return {
        "status": "down" if any(fatal.values()) else "degraded" if any(tolerable.values()) else "ok",
        "instance": resources.name,
        "database": database,
        "redis": redis,
        "leader": leader,
        "workers": workers,
        "scheduler": scheduler,
        "problems": [problem for problem, is_present in (fatal | tolerable).items() if is_present],
    }


async def health_details(resources: Resources) -> dict[str, Any]:
    """Return the health with every process of the fleet."""
    report = await health_of(resources)
    if "scheduler" not in report:
        return {**report, "redis": None, "leader": None, "workers": [], "draining": False, "scheduler": _scheduler()}
    fleet = resources.repositories.fleet
    workers = [worker_shape(info, report["leader"]) for info in await fleet.workers()]
    return {**report, "draining": await fleet.is_draining(), "workers": workers}


async def readiness_of(resources: Resources) -> dict[str, Any]:
    """Return whether this process can answer requests: `ok`, or `down` without its database."""
    try:
        await resources.database.ping()
    except Unavailable:
        return {"status": "down"}
    return {"status": "ok"}


def scheduler_status(tick: Tick | None, now: datetime) -> SchedulerStatus:
    """Return ok, stale after two intervals without a tick, or down after five or if there was none."""
    if tick is None:
        return "down"
    late = (now - tick.at).total_seconds() / max(tick.interval, 0.001)
    return "ok" if late <= _STALE else "stale" if late <= _DOWN else "down"


def worker_shape(info: WorkerInfo, leader: str | None) -> dict[str, Any]:
    """Return the JSON form of a process of the fleet."""
    return {**asdict(info), "leader": info.worker == leader}


def _scheduler(tick: Tick | None = None, now: datetime | None = None, leader: str | None = None) -> dict[str, Any]:
    return {
        "last_tick_ts": None if tick is None else tick.at,
        "interval_sec": None if tick is None else math.ceil(tick.interval),
        "lock_owner": None if leader is None else _hostname_of(leader),
        "status": "down" if now is None else scheduler_status(tick, now),
    }


def _hostname_of(instance: str) -> str:
    """Return the HOSTNAME in the name of a process."""
    return _RANDOM_ID.sub("", instance)


async def _redis(resources: Resources) -> str:
    if resources.redis is None:
        return "not configured"
    try:
        await resources.redis.ping()
    except redis_errors() as error:
        return str(error) or type(error).__name__
    return "ok"
