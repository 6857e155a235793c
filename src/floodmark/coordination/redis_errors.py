"""What a client of Redis raises when it is away, for modules that also serve where there is none.

The client itself is imported only where there is a Redis: with all it brings along that takes a third of a second.
"""

from functools import cache


@cache
def redis_errors() -> tuple[type[Exception], ...]:
    """To be caught; time-outs are among them."""
    from redis.exceptions import RedisError  # noqa: PLC0415 - see above

    return RedisError, OSError
