"""The client without asyncio."""

import asyncio
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Iterator
from datetime import timedelta
from types import TracebackType
from typing import Any, Self, TypeVar, cast

from floodmark.operations.declaration import BlockingCaller
from floodmark.operations.declared import Operations

from .client import Client, Kind, News

T = TypeVar("T")

_END = object()


async def _close(found: AsyncGenerator[Any, None]) -> None:
    await found.aclose()


async def _next(found: AsyncIterator[T]) -> "T | object":
    return await anext(found, _END)


class SyncClient(Operations, BlockingCaller):
    """The operations of a server, for as long as the `with` block runs; each returns when it is done.

    It has an event loop in its own thread, so it also works where a loop is already running.
    """

    client: Client

    def __init__(self, url: str, token: str | None = None, *, timeout: timedelta = timedelta(seconds=30)) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="floodmark client", daemon=True)
        self._thread.start()
        try:
            self.client = self.wait(_open(url, token, timeout))
        except BaseException:
            self._stop()
            raise
        self.url = self.client.url

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def is_closed(self) -> bool:
        """Whether it was closed."""
        return self._loop.is_closed()

    def close(self) -> None:
        """Close the connections and end the thread. A second call does nothing."""
        if not self.is_closed:
            self.wait(self.client.close())
            self._stop()

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run this on the loop of the client; return what it returns."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            # For example Ctrl-C: stop work that nobody waits for.
            future.cancel()
            raise

    def iterate(self, found: AsyncIterator[T]) -> Iterator[T]:
        """Yield what `found` yields; its connection is closed when the iterator is."""
        try:
            while (item := self.wait(_next(found))) is not _END:
                yield cast("T", item)
        finally:
            if isinstance(found, AsyncGenerator) and not self.is_closed:
                self.wait(_close(found))

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def live(self, *only: Kind, after: int | None = None) -> Iterator[News]:
        """Yield what happens in the whole fleet; see `Client.live`."""
        return self.iterate(self.client.live(*only, after=after))


async def _open(url: str, token: str | None, timeout: timedelta) -> Client:
    return Client(url, token, timeout=timeout)
