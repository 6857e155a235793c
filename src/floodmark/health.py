"""Is everything well? One answer for `/health`, the CLI and the dashboard."""

import math
import re
from datetime import datetime
from typing import Any, Literal

from .errors import Unavailable
from .parts import Parts
from .redis_errors import redis_errors
from .store.fleet import Fleet, Tick, WorkerInfo

SchedulerStatus = Literal["ok", "stale", "down"]

# How many intervals a tick may be late before the scheduler is called stale, and how many before it is called down.
_STALE, _DOWN = 2, 5
_RANDOM_ID = re.compile(r"-[0-9a-f]{8}$")


async def health_of(parts: Parts) -> dict[str, Any]:
    """`ok`, `degraded` while Redis is away (the database serves instead), `down` without the database."""
    try:
        await parts.database.ping()
    except Unavailable as error:
        return {"status": "down", "instance": parts.name, "database": str(error)}
    redis, fleet = await _redis(parts), Fleet(parts.database, parts.clock)
    leader = await parts.leases.holder(parts.settings.scheduler_leader_key)
    workers = [info for info in await fleet.workers() if info.role == "worker"]
    return {
        "status": "degraded" if redis not in ("ok", "not configured") else "ok",
        "instance": parts.name,
        "database": "ok",
        "redis": redis,
        "leader": leader,
        "workers": sum(info.alive for info in workers),
        "scheduler": _scheduler(*await fleet.last_tick_and_now(), leader),
    }


async def health_details(parts: Parts) -> dict[str, Any]:
    """The same with what is behind it: the scheduler by its last tick, the workers one by one.

    Also `degraded` while no scheduler ticks or no worker is there: what is due waits.
    """
    report = await health_of(parts)
    if report["status"] == "down":
        return {**report, "redis": None, "leader": None, "workers": [], "draining": False, "scheduler": _scheduler()}
    fleet = Fleet(parts.database, parts.clock)
    workers = await fleet.workers()
    is_well = report["scheduler"]["status"] == "ok" and report["workers"] > 0
    return {
        **report,
        "status": report["status"] if is_well else "degraded",
        "draining": await fleet.is_draining(),
        "workers": [worker_shape(info, report["leader"]) for info in workers],
    }


def scheduler_status(tick: Tick | None, now: datetime) -> SchedulerStatus:
    """By the age of the last tick: ok, stale after two intervals, down after five or if there was none."""
    if tick is None:
        return "down"
    late = (now - tick.at).total_seconds() / max(tick.interval, 0.001)
    return "ok" if late <= _STALE else "stale" if late <= _DOWN else "down"


def worker_shape(info: WorkerInfo, leader: str | None) -> dict[str, Any]:
    """A process of the fleet as JSON."""
    shape = {name: getattr(info, name) for name in WorkerInfo.__struct_fields__}
    return {**shape, "leader": info.worker == leader}


def _scheduler(tick: Tick | None = None, now: datetime | None = None, leader: str | None = None) -> dict[str, Any]:
    return {
        "last_tick_ts": None if tick is None else tick.at,
        "interval_sec": None if tick is None else math.ceil(tick.interval),
        "lock_owner": None if leader is None else _hostname_of(leader),
        "status": "down" if now is None else scheduler_status(tick, now),
    }


def _hostname_of(instance: str) -> str:
    """The HOSTNAME of a process, which is named by it and a random id."""
    return _RANDOM_ID.sub("", instance)


async def _redis(parts: Parts) -> str:
    if parts.redis is None:
        return "not configured"
    try:
        await parts.redis.ping()
    except redis_errors() as error:
        return str(error) or type(error).__name__
    return "ok"
