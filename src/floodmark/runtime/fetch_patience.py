"""Decides when a fetch that gets no answer from Telegram gives up."""

import time
from collections.abc import Callable
from datetime import timedelta

from floodmark.model.durations import format_duration
from floodmark.model.execution import Execution, State
from floodmark.observability.events import (
    BatchKept,
    BreakerMoved,
    CallRetried,
    Events,
    ExecutionSettled,
    ExecutionStarted,
    FetchTimed,
    RateLimited,
)
from floodmark.rules.breaker import BreakerState, refusal_of

_SCOPE = "telegram:"
_BREAKER = refusal_of(_SCOPE).removesuffix(" is ")


class Patience:
    """Gives up after `limit` without an answer, counted from the last answer or the start of the failed call.

    A rate limit is an answer: a fetch waits for its end, however long it takes.
    """

    def __init__(self, limit: timedelta, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._limit, self._monotonic = limit, monotonic
        self._since: float | None = None
        self._away: float | None = None
        self._reason, self._is_deaf = "", True

    def listen(self, events: Events) -> list[Callable[[], None]]:
        """Follow the calls of this process. Call the returned functions to stop."""
        self._is_deaf = False
        return [
            events.listen(ExecutionStarted, lambda _: self._begin()),
            events.listen(ExecutionSettled, lambda _: self._end()),
            events.listen(FetchTimed, lambda _: self._note_answer()),
            events.listen(BatchKept, lambda _: self._note_answer()),
            events.listen(RateLimited, self._note_limit),
            events.listen(CallRetried, self._note_retry),
            events.listen(BreakerMoved, self._note_breaker),
        ]

    def look(self, execution: Execution) -> None:
        """Follow an execution, which may run in another process."""
        if execution.state is State.WAITING and (execution.reason or "").startswith(_BREAKER):
            self._note_failure(str(execution.reason))
        elif self._is_deaf and execution.state in (State.WAITING, State.DONE) and execution.error_message is None:
            self._away = self._since = None

    @property
    def warning(self) -> str | None:
        """Return the current problem; None if there is none."""
        if self._away is None:
            return None
        return f"Telegram does not answer ({self._reason}): gives up after {format_duration(self._limit)}"

    @property
    def verdict(self) -> str | None:
        """Return the reason to give up; None if there is none."""
        if self._away is None or self._monotonic() - self._away < self._limit.total_seconds():
            return None
        return f"Telegram has not answered for {format_duration(self._limit)}: {self._reason}"

    def _begin(self) -> None:
        if self._since is None:
            self._since = self._monotonic()

    def _end(self) -> None:
        if self._away is None:
            self._since = None

    def _note_answer(self) -> None:
        self._away, self._since = None, self._monotonic()

    def _note_failure(self, reason: str) -> None:
        if self._away is None:
            self._away = self._monotonic() if self._since is None else self._since
        self._reason = reason

    def _note_limit(self, event: RateLimited) -> None:
        if event.scope.startswith(_SCOPE):
            self._away = self._since = None

    def _note_retry(self, event: CallRetried) -> None:
        if event.scope.startswith(_SCOPE):
            self._note_failure(event.reason)

    def _note_breaker(self, event: BreakerMoved) -> None:
        if event.domain.startswith(_SCOPE) and event.state == BreakerState.OPEN.value:
            self._note_failure(event.reason or "its circuit breaker is open")
