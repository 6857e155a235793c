"""Wake-ups between stages and processes: hints that there is work. The store knows what the work is."""

import asyncio
from collections import defaultdict
from contextlib import suppress
from datetime import timedelta
from enum import StrEnum
from typing import Protocol


class Topic(StrEnum):
    """The subject of a wake-up."""

    JOBS = "jobs"
    QUEUE = "queue"
    CANCEL = "cancel"
    WORKERS = "workers"
    OFFERS = "offers"


class Signals(Protocol):
    """Wakes every waiting bell of a topic. A bell that is not waiting remembers the signal for its next wait."""

    async def start(self) -> None:
        """Start to listen."""
        ...

    async def notify(self, topic: Topic) -> None:
        """Ring the bells of `topic` in every process. A signal may get lost: callers must not depend on it."""
        ...

    def bell(self, topic: Topic) -> "Bell":
        """Return a new bell that rings for `topic`."""
        ...

    async def stop(self) -> None:
        """Stop listening."""
        ...


class Bell:
    """Rings once for any number of signals since the last wait."""

    def __init__(self) -> None:
        self._rung = asyncio.Event()

    def ring(self) -> None:
        """End the current wait, or the next one."""
        self._rung.set()

    async def wait(self, timeout: timedelta) -> bool:
        """Wait until the bell rings, at most for `timeout`. Returns whether it rang."""
        with suppress(TimeoutError):
            # Not `wait_for`: on Python 3.11 it loses a cancellation that comes in the moment of a signal.
            async with asyncio.timeout(timeout.total_seconds()):
                await self._rung.wait()
        rang = self._rung.is_set()
        self._rung.clear()
        return rang


class Bells:
    """The bells of one process, by topic."""

    def __init__(self) -> None:
        self._bells: defaultdict[Topic, list[Bell]] = defaultdict(list)

    def add(self, topic: Topic) -> Bell:
        """Return a new bell."""
        bell = Bell()
        self._bells[topic].append(bell)
        return bell

    def ring(self, topic: Topic) -> None:
        """Ring all bells of a topic."""
        for bell in self._bells[topic]:
            bell.ring()

    def ring_all(self) -> None:
        """Ring the bells of all topics: signals may have been missed."""
        for topic in Topic:
            self.ring(topic)
