"""The part that all signals received over a connection share: a task that listens and reconnects."""

import asyncio
import time
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import ClassVar

from floodmark.observability.events import Events, StepFailed
from floodmark.process.tasks import end_tasks

from .port import Bell, Bells, Topic

_START_SECONDS = 5.0
_RECONNECT_SECONDS = 1.0


class ListeningSignals(ABC):
    """Listens in a task of its own. An adapter provides `notify`, `_listen_until_lost` and its connection errors."""

    _lost_errors: ClassVar[tuple[type[Exception], ...]]

    def __init__(self, events: Events) -> None:
        self._events, self._bells = events, Bells()
        self._listener: asyncio.Task[None] | None = None
        self._tried = asyncio.Event()

    async def start(self) -> None:
        """Start to listen. Returns once connected, or after the first failure to connect."""
        self._listener = asyncio.create_task(self._listen(), name="signals")
        with suppress(TimeoutError):
            async with asyncio.timeout(_START_SECONDS):
                await self._tried.wait()

    def bell(self, topic: Topic) -> Bell:
        """Return a new bell that rings for `topic`."""
        return self._bells.add(topic)

    async def stop(self) -> None:
        """Stop listening."""
        if self._listener is not None:
            await end_tasks(self._listener)

    async def _listen(self) -> None:
        while True:
            began = time.monotonic()
            try:
                await self._listen_until_lost()
            except self._lost_errors as error:
                self._report(error)
            # `start` does not wait for a server that is down.
            self._tried.set()
            # Reconnect at once after a connection that lasted: signals, and the process lock, are missing until then.
            await asyncio.sleep(max(0.0, began + _RECONNECT_SECONDS - time.monotonic()))

    @abstractmethod
    async def _listen_until_lost(self) -> None:
        """Connect, call `_mark_connected`, and pass messages to `_receive` until the connection is lost."""

    def _mark_connected(self) -> None:
        # A signal may have been missed before the connection was there.
        self._bells.ring_all()
        self._tried.set()

    def _receive(self, topic: str) -> None:
        with suppress(ValueError):  # a topic that only a newer version knows
            self._bells.ring(Topic(topic))

    def _report(self, error: Exception) -> None:
        self._events.emit(StepFailed(step="signals", error=str(error) or type(error).__name__))
