"""The client for asyncio."""

from collections.abc import AsyncIterator
from datetime import timedelta
from types import TracebackType
from typing import Any, Literal, Self

import msgspec

from floodmark.operations.declaration import Operation
from floodmark.operations.declared import AsyncOperations

from .decoding import decode, result_of
from .requests import request_of
from .transport import Transport

Kind = Literal["execution", "item", "limit", "breaker", "worker"]


class News(msgspec.Struct, frozen=True):
    """An event of the live feed: `kind` says what `data` is. Items have a position."""

    kind: str
    data: dict[str, Any]
    position: int | None = None


class Client(AsyncOperations):
    """The operations of a server, for as long as the `async with` block runs.

    Jobs are named by name or id, or the beginning of one; streams also by a job's name. A refused operation raises the
    same `FloodmarkError` as it does on the server, with a hint; `Unavailable` if the server cannot be reached,
    `Denied` if the token is not enough. Reads are retried when the connection fails.
    """

    def __init__(self, url: str, token: str | None = None, *, timeout: timedelta = timedelta(seconds=30)) -> None:
        self._transport = Transport(url, token, timeout=timeout)
        self.url = self._transport.url

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._transport.close()

    async def call(self, operation: Operation[Any, Any], arguments: dict[str, Any]) -> Any:
        """Send an operation and return its result."""
        if operation.is_private:
            self._transport.require_private("the session of an account")
        return result_of(operation, await self._transport.send(request_of(operation, arguments)))

    async def live(self, *only: Kind, after: int | None = None) -> AsyncIterator[News]:
        """Yield what happens in the whole fleet, until the server stops or the connection breaks.

        With `after`, the items since that position come first: keep the last `position` to continue from it.
        """
        headers = {} if after is None else {"Last-Event-ID": str(after)}
        async with self._transport.events("/live", {"only": only}, headers) as events:
            async for event in events:
                if not event.data:
                    # Only the time after which to reconnect.
                    continue
                position = int(event.id) if event.event == "item" and event.id else None
                yield News(kind=event.event, data=decode(event.data.encode(), dict[str, Any]), position=position)
