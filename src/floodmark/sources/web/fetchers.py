"""The tasks that fetch the pages of a crawl at the same time."""

import asyncio
from collections.abc import Callable, Coroutine

# How often a stop of the worker is noticed while no page arrives.
_POLL_SECONDS = 0.5


class Fetchers:
    """Runs up to `most` tasks and wakes the crawl when one ends or reports work."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._tasks: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()
        self.error: BaseException | None = None
        """The first error of a task."""

    @property
    def are_running(self) -> bool:
        """Whether tasks are running."""
        return bool(self._tasks)

    @property
    def free(self) -> int:
        """How many more tasks may run."""
        return self._most - len(self._tasks)

    def start(self, count: int, fetch: Callable[[], Coroutine[None, None, None]]) -> None:
        """Run `fetch` in up to `count` more tasks."""
        for _ in range(min(count, self.free)):
            task = asyncio.create_task(fetch())
            self._tasks.add(task)
            task.add_done_callback(self._end)

    def _end(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            self.error = self.error or task.exception()
        self._wake.set()

    def report_work(self) -> None:
        """Wake the crawl: a batch is due, or the queue is short."""
        self._wake.set()

    async def wait_for_work(self) -> None:
        """Wait until a task ends or reports work, but not for long."""
        timer = asyncio.get_running_loop().call_later(_POLL_SECONDS, self._wake.set)
        await self._wake.wait()
        timer.cancel()
        self._wake.clear()

    async def cancel(self) -> None:
        """Cancel all tasks and wait until they have ended."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
