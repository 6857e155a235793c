"""Retries of one call after a transient error, within seconds (`RETRY_*`, `BACKOFF_*`).

This is the lower of two levels. The worker retries a whole execution, within minutes (`PARSER_RETRY_MAX`).
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import TypeVar

from msgspec import Struct
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, stop_after_attempt, stop_before_delay

from floodmark.errors import Transient
from floodmark.observability.events import CallRetried, Events
from floodmark.rules.backoff import backoff

PASSING: tuple[type[Exception], ...] = (Transient, TimeoutError, ConnectionError, OSError)

T = TypeVar("T")
Sleep = Callable[[float], Awaitable[None]]


class RetryPolicy(Struct, frozen=True, kw_only=True, gc=False):
    """At most `attempts` within `elapsed`. Pauses are random; their maximum doubles from `base` to `longest`."""

    attempts: int = 5
    elapsed: timedelta = timedelta(seconds=120)
    base: timedelta = timedelta(seconds=0.5)
    longest: timedelta = timedelta(seconds=10)


class Retrying:
    """Retries calls that fail with one of `passing`. Any other error is raised at once, unchanged."""

    def __init__(
        self,
        policy: RetryPolicy,
        events: Events,
        *,
        sleep: Sleep = asyncio.sleep,
        passing: tuple[type[Exception], ...] = PASSING,
    ) -> None:
        self._policy, self._events = policy, events
        self._retrying = AsyncRetrying(
            sleep=sleep,
            stop=stop_after_attempt(policy.attempts) | stop_before_delay(policy.elapsed),
            wait=self._pause,
            retry=retry_if_exception_type(passing),
            reraise=True,
        )

    async def call(
        self, attempt: Callable[[], Awaitable[T]], *, target: str, method: str, scope: str | None = None
    ) -> T:
        """Return the answer of the first attempt that succeeds, or raise the error of the last one."""
        report = partial(self._report, target=target, method=method, scope=scope or target)
        # A copy: calls that run at the same time must not share tenacity's state.
        answer: T = await self._retrying.copy(before_sleep=report)(_make, attempt)
        return answer

    def _pause(self, state: RetryCallState) -> float:
        return backoff(state.attempt_number, base=self._policy.base, longest=self._policy.longest).total_seconds()

    def _report(self, state: RetryCallState, *, target: str, method: str, scope: str) -> None:
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


async def _make(attempt: Callable[[], Awaitable[T]]) -> T:
    # tenacity awaits only coroutine functions, and an attempt may be a lambda.
    return await attempt()


def name_of(error: BaseException) -> str:
    """Return the class name of an error, or that of the library error a source made it from."""
    cause = error.__cause__ if isinstance(error, Transient) else None
    return type(cause or error).__name__
