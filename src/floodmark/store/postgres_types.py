"""Descriptions of PostgreSQL's built-in types, read once per process."""

from collections.abc import Collection
from typing import Any

import asyncpg

# Types with smaller numbers are part of PostgreSQL and the same on every server.
_FIRST_OID_OF_USERS = 16384
_BUILT_IN_TYPES: dict[frozenset[int], Any] = {}


class TypeCachingConnection(asyncpg.Connection):
    """Asks for the description of built-in types once per process.

    asyncpg asks once per connection about every array type that a statement uses, such as `bigint[]`. The query takes
    10 ms of the server's CPU. If asyncpg renames the method, the connection asks as often as before.
    """

    async def _introspect_types(self, typeoids: Collection[int], timeout: float) -> Any:
        key = frozenset(typeoids)
        if key not in _BUILT_IN_TYPES:
            found = await super()._introspect_types(typeoids, timeout)  # type: ignore[misc]  # not in the stubs
            if max(key) >= _FIRST_OID_OF_USERS:
                return found
            _BUILT_IN_TYPES[key] = found
        return _BUILT_IN_TYPES[key]
