"""Faults of the server. A fault selects calls, starts after a number of them, and applies a number of times."""

import math
import time
from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass, field
from datetime import datetime
from typing import ClassVar, Literal

When = Literal["before", "during", "after"]
_FAULTS_KEPT = 1_000


@dataclass(slots=True)
class Call:
    """A recorded call to the server with its client and result.

    `at` is `time.monotonic()` and `time` the wall clock when it arrived. `result` is `ok`, the name of an error,
    `hang`, `drop` or `half-close`, and `pending` until there is a response. `sent_at` is when the client sent it, by
    the server's clock.
    """

    at: float
    time: datetime
    account: str | None
    method: str
    channel: int | None
    offset_id: int | None
    connection: int
    sent_at: float = 0.0
    result: str = "pending"
    takeout_id: int | None = None


@dataclass(frozen=True, slots=True)
class FaultAnswer:
    """The effect of a fault on a call. `error` replaces the normal response."""

    result: str
    error: tuple[int, str] | None = None
    is_violation: bool = False


@dataclass(kw_only=True)
class Filter:
    """Selects the calls of one `method`, to one `channel`, by one `account`; None matches all."""

    method: str | None = None
    channel: int | None = None
    account: str | None = None

    def fits(self, call: Call) -> bool:
        """Return whether a call matches."""
        return (
            self.method in (None, call.method)
            and self.channel in (None, call.channel)
            and self.account in (None, call.account)
        )


@dataclass(kw_only=True)
class Fault(Filter, ABC):
    """Applies to matching calls, starting after `after` of them. `times` is how often, None for always."""

    after: int = 0
    times: int | None = 1
    met: int = field(default=0, init=False)

    def is_over(self, now: float) -> bool:
        """Return whether it will never apply again."""
        return self.times is not None and self.met >= self.times

    @abstractmethod
    def meet(self, call: Call, now: float) -> FaultAnswer | None:
        """Return the effect on this call, which is handled at `now` (`time.monotonic()`); None if there is none."""


@dataclass(kw_only=True)
class CountedFault(Fault):
    """A fault that depends only on the number of calls. `result` becomes `Call.result`."""

    result: ClassVar[str] = "ok"
    _seen: int = field(default=0, init=False, repr=False)

    def meet(self, call: Call, now: float) -> FaultAnswer | None:
        """Return the effect if it is this call's turn."""
        if self.is_over(now):
            return None
        self._seen += 1
        if self._seen <= self.after:
            return None
        self.met += 1
        return self.answer()

    def answer(self) -> FaultAnswer:
        """Return the effect."""
        return FaultAnswer(self.result)


@dataclass(kw_only=True)
class Failure(CountedFault):
    """Responds with an error."""

    name: str
    code: int = 400

    def answer(self) -> FaultAnswer:
        """Return the error."""
        return FaultAnswer(self.name, (self.code, self.name))


@dataclass(kw_only=True)
class Drop(CountedFault):
    """Breaks the connection before the call is processed, in the middle of the response, or after it."""

    when: When = "before"

    def answer(self) -> FaultAnswer:
        """Return the effect: a broken connection."""
        return FaultAnswer("drop" if self.when == "before" else f"drop-{self.when}")


@dataclass(kw_only=True)
class Hang(CountedFault):
    """Never responds, and leaves the connection open."""

    result = "hang"


@dataclass(kw_only=True)
class HalfClose(CountedFault):
    """Closes the sending side of the connection, but keeps reading."""

    result = "half-close"


@dataclass(kw_only=True)
class Delay(CountedFault):
    """Responds normally, but late."""

    seconds: float
    times: int | None = None


@dataclass(slots=True)
class _Hold:
    seen: int = 0
    count: int = 0
    until: float = -math.inf
    sent_at: float = 0.0


@dataclass(kw_only=True)
class Flood(Fault):
    """A flood wait, as the real server does it: the call after `after` others gets a wait of `seconds`, and until the
    wait is over every matching call gets the remaining time and is recorded as a violation.

    Every account counts and waits separately. `holds` makes the wait end sooner than announced. `in_flight`: network
    latency, so that a call that was sent before the client could read the wait is not a violation.
    """

    seconds: float
    holds: float | None = None
    in_flight: float = 0.1
    name: str = "FLOOD_WAIT"
    _holds: dict[str | None, _Hold] = field(default_factory=dict, init=False, repr=False)

    def until(self, account: str) -> float:
        """Return when the wait of an account ends, by `time.monotonic()`; minus infinity if there is no wait."""
        return self._holds.get(account, _Hold()).until

    def is_over(self, now: float) -> bool:
        """Return True only for a fault of a single account: otherwise another account may still call."""
        hold = self._holds.get(self.account)
        return self.account is not None and hold is not None and hold.count == self.times and hold.until <= now

    def meet(self, call: Call, now: float) -> FaultAnswer | None:
        """Return the wait, if there is one or if this call causes one."""
        hold = self._holds.setdefault(call.account, _Hold())
        if now < hold.until:
            left = math.ceil(hold.until - now)
            return self._wait(left, is_violation=call.sent_at > hold.sent_at + self.in_flight)
        if self.times is not None and hold.count >= self.times:
            return None
        hold.seen += 1
        if hold.seen <= self.after:
            return None
        hold.count, hold.seen, self.met = hold.count + 1, 0, self.met + 1
        hold.until = now + (self.seconds if self.holds is None else self.holds)
        hold.sent_at = call.sent_at + (now - call.at)
        return self._wait(math.ceil(self.seconds))

    def _wait(self, seconds: int, *, is_violation: bool = False) -> FaultAnswer:
        name = f"{self.name}_{seconds}"
        return FaultAnswer(name, (420, name), is_violation=is_violation)


class Faults:
    """All active faults, and the calls that violated a wait."""

    def __init__(self, kept: int) -> None:
        self._faults: deque[Fault] = deque(maxlen=_FAULTS_KEPT)
        self.violations: deque[Call] = deque(maxlen=kept)

    def add(self, fault: Fault) -> None:
        """Add a fault, and remove those that are over."""
        now = time.monotonic()
        self._faults = deque((kept for kept in self._faults if not kept.is_over(now)), maxlen=_FAULTS_KEPT)
        self._faults.append(fault)

    def remove(self, fault: Fault) -> None:
        """Remove a fault if it is active."""
        self._faults = deque((kept for kept in self._faults if kept is not fault), maxlen=_FAULTS_KEPT)

    def clear(self) -> None:
        """Remove all faults."""
        self._faults.clear()

    def meet(self, call: Call) -> tuple[float, FaultAnswer | None]:
        """Return the delay and the effect of the first matching fault; None means the normal response."""
        fitting = [fault for fault in self._faults if fault.fits(call)]
        seconds = sum(fault.seconds for fault in fitting if isinstance(fault, Delay) and fault.meet(call, 0.0))
        # A wait begins when the client gets it, which is after every delay.
        answered_at = time.monotonic() + seconds
        for fault in fitting:
            answer = None if isinstance(fault, Delay) else fault.meet(call, answered_at)
            if answer is None:
                continue
            if answer.is_violation:
                self.violations.append(call)
            return seconds, answer
        return seconds, None
