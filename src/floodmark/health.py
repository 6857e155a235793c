"""Is everything well? One answer for `/health`, the CLI and the dashboard."""

from typing import Any

from redis.exceptions import RedisError

from .errors import Unavailable
from .parts import Parts
from .store.fleet import Fleet


async def health_of(parts: Parts) -> dict[str, Any]:
    """`ok`, `degraded` while Redis is away (the database serves instead), `down` without the database."""
    try:
        await parts.database.ping()
    except Unavailable as error:
        return {"status": "down", "instance": parts.name, "database": str(error)}
    redis = await _redis(parts)
    leader = await parts.leases.holder(parts.settings.scheduler_leader_key)
    workers = [info for info in await Fleet(parts.database, parts.clock).workers() if info.role == "worker"]
    return {
        "status": "degraded" if redis not in ("ok", "not configured") else "ok",
        "instance": parts.name,
        "database": "ok",
        "redis": redis,
        "leader": leader,
        "workers": sum(info.alive for info in workers),
    }


async def _redis(parts: Parts) -> str:
    if parts.redis is None:
        return "not configured"
    try:
        await parts.redis.ping()
    except (RedisError, OSError, TimeoutError) as error:
        return str(error) or type(error).__name__
    return "ok"
