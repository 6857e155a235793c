"""Services: the recurring tasks of a process, declared as values and run by one runner."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

from msgspec import Struct

from floodmark.observability.events import Events, StepFailed
from floodmark.rules.backoff import backoff

from .signals.port import Bell

# Returns the time until its next call; None for the usual interval.
Step = Callable[[], Awaitable[timedelta | None]]

# When a process stops: the time for running steps to end, and for each `close`.
LAST_STEP = timedelta(seconds=3)
# The time for a cancelled task to release its connections.
CANCELLING = timedelta(seconds=1)
# A process that does not lead looks again this soon: leadership can lapse during a slow renewal and return silently.
_LEADER_AGAIN = timedelta(seconds=1)
_PAUSE, _SHORTEST_CAP, _LONGEST_CAP = timedelta(seconds=0.5), timedelta(seconds=0.2), timedelta(seconds=15)


class Service(Struct, frozen=True):
    """A step that runs repeatedly: after `interval`, after the shorter time it returned, or when `bell` rings.

    leader_only    run the step only on the leader
    interrupt      called when the process stops: ends a wait inside the step
    close          called after the last step of every service, in reverse order of declaration
    """

    name: str
    step: Step
    interval: timedelta
    bell: Bell | None = None
    leader_only: bool = False
    interrupt: Callable[[], object] | None = None
    close: Callable[[], Awaitable[None]] | None = None


@asynccontextmanager
async def run_services(
    services: Sequence[Service],
    events: Events,
    *,
    is_leader: Callable[[], bool] = lambda: True,
    patience: timedelta = LAST_STEP,
) -> AsyncIterator[None]:
    """Run the services during the block. Then stop all, wait up to `patience` for their last steps, and close them."""
    loops = [_Loop(service, events, is_leader) for service in services]
    tasks = [asyncio.create_task(loop.run(), name=loop.service.name) for loop in loops]
    try:
        yield
    finally:
        for loop in loops:
            loop.stop()
        if tasks:
            await _end(tasks, patience)
        for service in reversed(services):
            if service.close is not None:
                await attempt(service.close(), events)


async def _end(tasks: "Sequence[asyncio.Task[None]]", patience: timedelta) -> None:
    """Wait for running steps and cancel those that take too long: every step may be cancelled at any point."""
    done, late = await asyncio.wait(tasks, timeout=patience.total_seconds())
    for task in late:
        task.cancel()
    if late:
        await asyncio.wait(late, timeout=CANCELLING.total_seconds())
    await asyncio.gather(*done)


async def attempt(work: Awaitable[None], events: Events) -> None:
    """Await work at shutdown, bounded in time. A failure is only reported: others notice our end later anyway."""
    try:
        async with asyncio.timeout(LAST_STEP.total_seconds()):
            await work
    except Exception as error:  # noqa: BLE001 - no failure keeps a process from stopping; it is reported
        events.emit(StepFailed(step="leave", error=f"{type(error).__name__}: {error}"))


class _Loop:
    """Runs one service. A step that raises is reported and repeated after a growing pause; only `stop` ends it."""

    def __init__(self, service: Service, events: Events, is_leader: Callable[[], bool]) -> None:
        self.service, self._events, self._is_leader = service, events, is_leader
        self._bell = service.bell or Bell()
        self._stopping = False

    async def run(self) -> None:
        """Run steps until stopped."""
        failures, interval = 0, self.service.interval
        while not self._stopping:
            pause = interval
            try:
                asked = await self._step()
                pause, failures = min(interval, asked if asked is not None else pause), 0
            except Exception as error:  # noqa: BLE001 - a service survives every failure of its step; it is reported
                failures += 1
                self._events.emit(StepFailed(step=self.service.name, error=f"{type(error).__name__}: {error}"))
                # Never longer than usual: a heartbeat or a leader that pauses too long loses its leases.
                longest = min(_LONGEST_CAP, max(_SHORTEST_CAP, interval))
                pause = backoff(failures, base=_PAUSE, longest=longest)
            if not self._stopping:
                await self._bell.wait(max(pause, timedelta()))

    async def _step(self) -> timedelta | None:
        if not self.service.leader_only:
            return await self.service.step()
        asked = await self.service.step() if self._is_leader() else None
        return asked if self._is_leader() else _LEADER_AGAIN

    def stop(self) -> None:
        """End after the current step."""
        self._stopping = True
        self._bell.ring()
        if self.service.interrupt is not None:
            self.service.interrupt()
