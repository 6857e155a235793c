"""Wake-ups between stages and processes: a hint that there is something to do, never the truth about it."""

import asyncio
from collections import defaultdict
from contextlib import suppress
from datetime import timedelta
from enum import StrEnum
from typing import Protocol


class Topic(StrEnum):
    """What a wake-up is about."""

    JOBS = "jobs"
    QUEUE = "queue"
    CANCEL = "cancel"
    WORKERS = "workers"


class Signals(Protocol):
    """Everyone who waits is woken. A signal nobody waits for is remembered for the next wait of each bell."""

    async def start(self) -> None:
        """Begin to listen."""
        ...

    async def notify(self, topic: Topic) -> None:
        """Wake those who wait for `topic`, here and in other processes. Losing one must do no harm."""
        ...

    def bell(self, topic: Topic) -> "Bell":
        """Something to wait on."""
        ...

    async def stop(self) -> None:
        """Cease to listen."""
        ...


class Bell:
    """Rings once for any number of signals since the last wait."""

    def __init__(self) -> None:
        self._rung = asyncio.Event()

    def ring(self) -> None:
        """Wake whoever waits, or the next who will."""
        self._rung.set()

    async def wait(self, timeout: timedelta) -> bool:
        """Until it rings, or the time is up. Whether it rang."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._rung.wait(), timeout.total_seconds())
        rang = self._rung.is_set()
        self._rung.clear()
        return rang


class Bells:
    """The bells of one process, by topic."""

    def __init__(self) -> None:
        self._bells: defaultdict[Topic, list[Bell]] = defaultdict(list)

    def add(self, topic: Topic) -> Bell:
        """A new bell."""
        bell = Bell()
        self._bells[topic].append(bell)
        return bell

    def ring(self, topic: Topic) -> None:
        """Ring all bells of a topic."""
        for bell in self._bells[topic]:
            bell.ring()

    def ring_all(self) -> None:
        """Ring everything: we may have missed something."""
        for topic in Topic:
            self.ring(topic)
