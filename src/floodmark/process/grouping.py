"""Calls that are made at the same time and carried out together, as one step for all of them."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

Request = TypeVar("Request")
Answer = TypeVar("Answer")


class GroupedCalls(Generic[Request, Answer]):
    """Carries out calls in groups of up to `most`, one group at a time.

    A call that comes alone is carried out at once. Calls that come during a step form the next group.
    """

    def __init__(
        self, work: Callable[[Sequence[Request]], Awaitable[Sequence[Answer | Exception]]], *, most: int
    ) -> None:
        self._work, self._most = work, most
        self._waiting: list[tuple[Request, asyncio.Future[Answer]]] = []
        self._running: asyncio.Task[None] | None = None

    async def call(self, request: Request) -> Answer:
        """Return the answer to this request, or raise the exception that is its answer.

        A call that is cancelled before its group begins has no effect.
        """
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((request, future))
        self._start()
        return await future

    async def call_all(self, requests: Sequence[Request]) -> list[Answer | Exception]:
        """Return the answer to each request, or the exception that is its answer."""
        loop = asyncio.get_running_loop()
        calls = [(request, loop.create_future()) for request in requests]
        self._waiting += calls
        self._start()
        return [await _settled(future) for _, future in calls]

    async def close(self) -> None:
        """Wait for the calls that are being carried out."""
        while self._running is not None:
            await asyncio.wait([self._running])

    def _start(self) -> None:
        if self._running is None:
            # A task of its own: the first caller may be cancelled, and the others must not be.
            self._running = asyncio.create_task(self._run(), name="grouped calls")

    async def _run(self) -> None:
        try:
            while self._waiting:
                group = [one for one in self._waiting[: self._most] if not one[1].done()]
                del self._waiting[: self._most]
                if group:
                    await self._run_group(group)
        finally:
            self._running = None
            for _, future in self._waiting:
                future.cancel()
            self._waiting.clear()

    async def _run_group(self, group: Sequence[tuple[Request, "asyncio.Future[Answer]"]]) -> None:
        try:
            answers = await self._work([request for request, _ in group])
        except Exception as error:  # noqa: BLE001 - raised by each call
            answers = [error] * len(group)
        except BaseException:
            for _, future in group:
                future.cancel()
            raise
        for (_, future), answer in zip(group, answers, strict=True):
            if future.done():
                continue
            if isinstance(answer, Exception):
                future.set_exception(answer)
            else:
                future.set_result(answer)


async def _settled(future: "asyncio.Future[Answer]") -> Answer | Exception:
    try:
        return await future
    except Exception as error:  # noqa: BLE001 - it is the answer
        return error
