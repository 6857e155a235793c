"""How long a fetch has been without an answer from Telegram, and when it gives up."""

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
    """Gives up after `limit` without an answer, counted from the last answer or the start of the call that failed.

    A rate limit is an answer: a fetch waits for its end, however long that takes.
    """

    def __init__(self, limit: timedelta, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._limit, self._monotonic = limit, monotonic
        self._since: float | None = None
        self._away: float | None = None
        self._reason, self._is_deaf = "", True

    def listen(self, events: Events) -> list[Callable[[], None]]:
        """Follow the calls of this process; the results end that."""
        self._is_deaf = False
        return [
            events.listen(ExecutionStarted, lambda _: self._begin()),
            events.listen(ExecutionSettled, lambda _: self._rest()),
            events.listen(FetchTimed, lambda _: self._answered()),
            events.listen(BatchKept, lambda _: self._answered()),
            events.listen(RateLimited, self._limited),
            events.listen(CallRetried, self._retried),
            events.listen(BreakerMoved, self._moved),
        ]

    def look(self, execution: Execution) -> None:
        """Take notice of an execution, which may run elsewhere."""
        if execution.state is State.WAITING and (execution.reason or "").startswith(_BREAKER):
            self._failed(str(execution.reason))
        elif self._is_deaf and execution.state in (State.WAITING, State.DONE) and execution.error_message is None:
            self._away = self._since = None

    @property
    def warning(self) -> str | None:
        """Return what is wrong while there is still hope; None if nothing is."""
        if self._away is None:
            return None
        return f"Telegram does not answer ({self._reason}): gives up after {format_duration(self._limit)}"

    @property
    def verdict(self) -> str | None:
        """Return why to give up, None if there is no reason to."""
        if self._away is None or self._monotonic() - self._away < self._limit.total_seconds():
            return None
        return f"Telegram has not answered for {format_duration(self._limit)}: {self._reason}"

    def _begin(self) -> None:
        if self._since is None:
            self._since = self._monotonic()

    def _rest(self) -> None:
        if self._away is None:
            self._since = None

    def _answered(self) -> None:
        self._away, self._since = None, self._monotonic()

    def _failed(self, reason: str) -> None:
        if self._away is None:
            self._away = self._monotonic() if self._since is None else self._since
        self._reason = reason

    def _limited(self, event: RateLimited) -> None:
        if event.scope.startswith(_SCOPE):
            self._away = self._since = None

    def _retried(self, event: CallRetried) -> None:
        if event.scope.startswith(_SCOPE):
            self._failed(event.reason)

    def _moved(self, event: BreakerMoved) -> None:
        if event.domain.startswith(_SCOPE) and event.state == BreakerState.OPEN.value:
            self._failed(event.reason or "its circuit breaker is open")
