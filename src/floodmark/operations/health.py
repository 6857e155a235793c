"""The health of the installation, for `/health`, the CLI and the dashboard."""

import math
import re
from datetime import datetime, timedelta
from typing import Any

from msgspec.structs import asdict

from floodmark.coordination.redis_errors import redis_errors
from floodmark.errors import Unavailable
from floodmark.model.durations import format_duration
from floodmark.model.fleet import SchedulerStatus, WorkerInfo
from floodmark.model.search import IndexStatus
from floodmark.model.sinks import SinkRow
from floodmark.repositories.fleet import Tick
from floodmark.rules.sinks import is_stuck
from floodmark.watches.checkup import failing_channels
from floodmark.wiring.resources import Resources

# The intervals without a tick after which the scheduler is stale, and down.
_STALE, _DOWN = 2, 5
_UNKNOWN: dict[str, Any] = {
    "redis": None,
    "leader": None,
    "workers": [],
    "draining": False,
    "sinks": [],
    "search": None,
}
_RANDOM_ID = re.compile(r"-[0-9a-f]{8}$")


async def health_of(resources: Resources) -> dict[str, Any]:
    """Return the `status` and a list of `problems`.

    `degraded`: everything due is collected, but Redis is away and the database replaces it, a sink does not get its
    events, or a channel of watches fails. `down`: something due is not collected, because the database does not answer
    or cannot be written, the last tick of the scheduler is too old, or no worker is alive.
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
    sinks = await resources.repositories.sinks.rows()
    tolerable |= {describe_stuck(sink): True for sink in sinks if is_stuck(sink)}
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
        return {**report, **_UNKNOWN, "scheduler": _scheduler()}
    fleet = resources.repositories.fleet
    workers = [worker_shape(info, report["leader"]) for info in await fleet.workers()]
    search = await search_status(resources, is_followed=report["leader"] is not None)
    sinks = await resources.repositories.sinks.rows()
    found = {"draining": await fleet.is_draining(), "workers": workers, "sinks": sinks, "search": search}
    return {**report, **found}


async def search_status(resources: Resources, *, is_followed: bool) -> IndexStatus:
    """Return how complete the search index is. `is_followed`: a scheduler is running."""
    from floodmark.search.status import OFF, read_status  # noqa: PLC0415 - few commands search

    if not resources.settings.search_enabled:
        return OFF
    return await read_status(resources.search.index, resources.search.items, is_followed=is_followed)


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


def describe_stuck(sink: SinkRow) -> str:
    """Return a sentence about a sink whose events have been waiting for too long."""
    waits = format_duration(timedelta(seconds=sink.lag_seconds))
    what = "1 event" if sink.lag_events == 1 else f"{sink.lag_events:,} events, the oldest"
    why = f": {sink.error}" if sink.error else ""
    return f"the sink {sink.name} has not got {what} of {waits} ago{why}"


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
