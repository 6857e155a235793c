"""Lua scripts, stored next to the adapters that use them."""

from collections.abc import Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from redis.asyncio import Redis


class Script:
    """One `.lua` file in the folder `lua` of a package, sent to Redis once and then called by its digest."""

    def __init__(self, redis: "Redis", package: str, name: str) -> None:
        from redis.exceptions import NoScriptError  # noqa: PLC0415 - see `redis_errors`

        self._redis, self._unknown = redis, NoScriptError
        self._text = (files(package) / "lua" / f"{name}.lua").read_text()
        self._digest: str | None = None

    async def __call__(self, keys: Sequence[str], arguments: Sequence[Any]) -> Any:
        """Run the script. Its text is sent again to a Redis that was restarted or flushed."""
        if self._digest is None:
            self._digest = await self._redis.script_load(self._text)
        try:
            return await self._redis.evalsha(self._digest, len(keys), *keys, *arguments)
        except self._unknown:
            self._digest = await self._redis.script_load(self._text)
            return await self._redis.evalsha(self._digest, len(keys), *keys, *arguments)
