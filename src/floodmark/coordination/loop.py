"""The one loop: it owns interval, jitter, wake-ups, failures and cancellation, so that services are only a step."""

from collections.abc import Awaitable, Callable
from datetime import timedelta

from floodmark.observability.events import Events, StepFailed
from floodmark.rules.backoff import backoff

from .signals.port import Bell

_PAUSE, _SHORTEST_CAP, _LONGEST_CAP = timedelta(seconds=0.5), timedelta(seconds=0.2), timedelta(seconds=15)


# Returns how long until it wants to be called again; None for the usual interval.
Step = Callable[[], Awaitable[timedelta | None]]


class Loop:
    """Calls `step` again and again: after `interval`, after the shorter time it returns, or when the bell rings.

    A step that raises is reported and tried again after a growing pause; the loop itself ends only by `stop`.
    """

    def __init__(
        self,
        name: str,
        step: Step,
        *,
        interval: timedelta,
        events: Events,
        bell: Bell | None = None,
    ) -> None:
        self.name = name
        self._step, self._interval, self._events = step, interval, events
        self._bell = bell or Bell()
        self._stopping = False

    async def run(self) -> None:
        """Until stopped."""
        failures = 0
        while not self._stopping:
            pause = self._interval
            try:
                asked = await self._step()
                pause, failures = min(self._interval, asked if asked is not None else pause), 0
            except Exception as error:  # noqa: BLE001 - whatever a step meets, the service goes on; it is reported
                failures += 1
                self._events.emit(StepFailed(step=self.name, error=f"{type(error).__name__}: {error}"))
                # Never longer than usual: a heartbeat or a leader that rests too long has lost what it holds.
                longest = min(_LONGEST_CAP, max(_SHORTEST_CAP, self._interval))
                pause = backoff(failures, base=_PAUSE, longest=longest)
            if not self._stopping:
                await self._bell.wait(max(pause, timedelta()))

    def stop(self) -> None:
        """End after the step under way."""
        self._stopping = True
        self._bell.ring()
