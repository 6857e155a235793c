"""The errors of an unreachable Redis, for modules that also work without Redis.

The client is imported only when Redis is configured, because the import takes a third of a second.
"""

from functools import cache


@cache
def redis_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions to catch, time-outs included."""
    from redis.exceptions import RedisError  # noqa: PLC0415 - see above

    return RedisError, OSError
