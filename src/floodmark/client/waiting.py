"""The client for programs without asyncio: every verb of `Client`, waited for."""

import asyncio
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from datetime import timedelta
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, cast

from floodmark.operations.declaration import BlockingCaller
from floodmark.operations.declared import Operations

from .client import Client

P = ParamSpec("P")
T = TypeVar("T")

_END = object()


class _Waited(Generic[P, T]):
    """A verb of `Client` that returns when it is done."""

    def __init__(self, verb: Callable[Concatenate[Client, P], Coroutine[Any, Any, T]]) -> None:
        self._verb = verb
        self.__doc__ = verb.__doc__

    def __get__(self, owner: "SyncClient", _: type["SyncClient"]) -> Callable[P, T]:
        def waited(*args: P.args, **kwargs: P.kwargs) -> T:
            return owner.wait(self._verb(owner.client, *args, **kwargs))

        waited.__doc__ = self.__doc__
        return waited


class _Each(Generic[P, T]):
    """A verb of `Client` that goes through pages, one thing after the other."""

    def __init__(self, verb: Callable[Concatenate[Client, P], AsyncIterator[T]]) -> None:
        self._verb = verb
        self.__doc__ = verb.__doc__

    def __get__(self, owner: "SyncClient", _: type["SyncClient"]) -> Callable[P, Iterator[T]]:
        def each(*args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
            return owner.iterate(self._verb(owner.client, *args, **kwargs))

        each.__doc__ = self.__doc__
        return each


async def _next(found: AsyncIterator[T]) -> "T | object":
    return await anext(found, _END)


async def _ended(found: AsyncGenerator[Any, None]) -> None:
    await found.aclose()


class SyncClient(Operations, BlockingCaller):
    """A server of Floodmark, for as long as the `with` block runs. `Client` says what its verbs do.

    It keeps an event loop in a thread of its own, so that it can also be used where one is running already.
    """

    client: Client

    def __init__(self, url: str, token: str | None = None, *, timeout: timedelta = timedelta(seconds=30)) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="floodmark client", daemon=True)
        self._thread.start()
        try:
            self.client = self.wait(_made(url, token, timeout))
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
        """Whether it can be used no more."""
        return self._loop.is_closed()

    def close(self) -> None:
        """Let go of the connections and of the thread. Closing twice does no harm."""
        if not self.is_closed:
            self.wait(self.client.close())
            self._stop()

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Do this on the loop of the client; what it returns or raises."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            # Ctrl-C, say: what nobody waits for any more is not to go on.
            future.cancel()
            raise

    def iterate(self, found: AsyncIterator[T]) -> Iterator[T]:
        """Yield what `found` yields; its connection is closed when the iterator is."""
        try:
            while (item := self.wait(_next(found))) is not _END:
                yield cast("T", item)
        finally:
            if isinstance(found, AsyncGenerator) and not self.is_closed:
                self.wait(_ended(found))

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    jobs = _Waited(Client.jobs)
    each_job = _Each(Client.each_job)
    job = _Waited(Client.job)
    explain = _Waited(Client.explain)
    next_runs = _Waited(Client.next_runs)
    next_of = _Waited(Client.next_of)
    add_job = _Waited(Client.add_job)
    change_job = _Waited(Client.change_job)
    replace_job = _Waited(Client.replace_job)
    remove_job = _Waited(Client.remove_job)
    pause_job = _Waited(Client.pause_job)
    resume_job = _Waited(Client.resume_job)
    cancel_job = _Waited(Client.cancel_job)
    run_job = _Waited(Client.run_job)

    live = _Each(Client.live)
    shadow = _Waited(Client.shadow)
    start_shadow = _Waited(Client.start_shadow)
    stop_shadow = _Waited(Client.stop_shadow)
    step_shadow = _Waited(Client.step_shadow)
    shadow_report = _Waited(Client.shadow_report)
    migrate_jobs = _Waited(Client.migrate_jobs)
    import_jobs = _Waited(Client.import_jobs)


async def _made(url: str, token: str | None, timeout: timedelta) -> Client:
    return Client(url, token, timeout=timeout)
