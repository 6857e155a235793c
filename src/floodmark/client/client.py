"""The client for asyncio."""

from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any, Literal, Self

import msgspec

from floodmark.operations.declared import AsyncOperations

from .caller import HttpCaller
from .decoding import decoded

Kind = Literal["execution", "item", "limit", "breaker", "worker"]


class News(msgspec.Struct, frozen=True):
    """Something that has just happened: `kind` says what `data` is. Items have a position."""

    kind: str
    data: dict[str, Any]
    position: int | None = None


class Client(AsyncOperations, HttpCaller):
    """The operations of a server, for as long as the `async with` block runs.

    Jobs are named by name or id, or the beginning of one; streams also by a job's name. A refused operation raises the
    same `FloodmarkError` as it does on the server, with a hint; `Unavailable` if the server cannot be reached,
    `Denied` if the token is not enough. Reads are tried again when the connection fails.
    """

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._transport.close()

    async def live(self, *only: Kind, after: int | None = None) -> AsyncIterator[News]:
        """What happens in the whole fleet, as it happens, until the server leaves or the connection breaks.

        With `after`, items behind that position come first: keep the last `position` to go on from it.
        """
        headers = {} if after is None else {"Last-Event-ID": str(after)}
        async with self._transport.events("/live", {"only": only}, headers) as events:
            async for event in events:
                if not event.data:
                    # Only how soon to come back, should the connection break.
                    continue
                position = int(event.id) if event.event == "item" and event.id else None
                yield News(kind=event.event, data=decoded(event.data.encode(), dict[str, Any]), position=position)
