"""A call that met a passing fault is made again, after pauses that grow and are drawn at random (full jitter).

This is the lower of two levels: a call, within seconds (`RETRY_*`, `BACKOFF_*`). A whole execution is tried again by
the worker, within minutes (`PARSER_RETRY_MAX`).
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeVar

from msgspec import Struct
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_random_exponential

from floodmark.errors import Transient
from floodmark.observability.events import CallRetried, Events

PASSING: tuple[type[Exception], ...] = (Transient, TimeoutError, ConnectionError, OSError)

T = TypeVar("T")
Sleep = Callable[[float], Awaitable[None]]


class RetryPolicy(Struct, frozen=True, kw_only=True, gc=False):
    """How often a call is made, for how long, and the pauses in between: up to `base`, then doubled up to `longest`."""

    attempts: int = 5
    elapsed: timedelta = timedelta(seconds=120)
    base: timedelta = timedelta(seconds=0.5)
    longest: timedelta = timedelta(seconds=10)


class Retrying:
    """Makes calls again that failed by a passing fault; any other error is raised at once, as it is.

    `passing` are the faults that pass. `is_over` ends the trying early: no further attempt after it says so.
    """

    def __init__(
        self,
        policy: RetryPolicy,
        events: Events,
        *,
        sleep: Sleep = asyncio.sleep,
        monotonic: Callable[[], float] = time.monotonic,
        passing: tuple[type[Exception], ...] = PASSING,
        is_over: Callable[[], bool] = lambda: False,
    ) -> None:
        self._policy, self._events, self._sleep, self._monotonic = policy, events, sleep, monotonic
        self._passing, self._is_over = passing, is_over
        self._retry = retry_if_exception_type(passing)
        self._wait = wait_random_exponential(multiplier=policy.base.total_seconds(), max=policy.longest.total_seconds())

    async def call(
        self, attempt: Callable[[], Awaitable[T]], *, target: str, method: str, scope: str | None = None
    ) -> T:
        """Make the call until it succeeds or there is no point in going on; then its last error is raised."""
        began = self._monotonic()
        try:
            return await attempt()
        except self._passing as error:
            first: Exception | None = error

        async def once() -> T:
            # The first attempt was made above: most calls go well, and tenacity costs three times what they do.
            nonlocal first
            if first is not None:
                failure, first = first, None
                raise failure
            return await attempt()

        def tell(state: RetryCallState) -> None:
            self._tell(state, target, method, scope or target)

        retrying = AsyncRetrying(
            sleep=self._sleep,
            stop=lambda state: self._is_enough(state, began),
            wait=self._wait,
            retry=self._retry,
            before_sleep=tell,
            reraise=True,
        )
        return await retrying(once)

    def _is_enough(self, state: RetryCallState, began: float) -> bool:
        elapsed = self._monotonic() - began + state.upcoming_sleep
        return (
            state.attempt_number >= self._policy.attempts
            or elapsed >= self._policy.elapsed.total_seconds()
            or self._is_over()
        )

    def _tell(self, state: RetryCallState, target: str, method: str, scope: str) -> None:
        error = state.outcome.exception() if state.outcome is not None else None
        assert error is not None
        self._events.emit(
            CallRetried(
                target=target,
                method=method,
                attempt=state.attempt_number,
                delay=state.upcoming_sleep,
                reason=name_of(error),
                scope=scope,
            )
        )


def name_of(error: BaseException) -> str:
    """The kind of an error, as one word: what a source made of a library's error is told by the library's name."""
    cause = error.__cause__ if isinstance(error, Transient) else None
    return type(cause or error).__name__
