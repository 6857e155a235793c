"""Trouble on demand. A fault says which calls it meets, after how many of them, how often, and what then happens."""

import math
import time
from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

When = Literal["before", "during", "after"]
_FAULTS_KEPT = 1_000


@dataclass(slots=True)
class Call:
    """One call to the server: who, what, and how it was answered.

    `at` is `time.monotonic()` and `time` the wall clock when it arrived; `result` is `ok`, the name of an error,
    `hang`, `drop` or `half-close`, and `pending` as long as there is no answer. `sent_at` is when the client made it,
    by the server's clock.
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


@dataclass(frozen=True, slots=True)
class Answer:
    """What a fault makes of a call. `error` is answered instead of the truth."""

    result: str
    error: tuple[int, str] | None = None
    is_violation: bool = False


@dataclass(kw_only=True)
class Filter:
    """The calls of one `method`, to one `channel`, by one `account`; None fits all."""

    method: str | None = None
    channel: int | None = None
    account: str | None = None

    def fits(self, call: Call) -> bool:
        """Whether it is about such a call at all."""
        return (
            self.method in (None, call.method)
            and self.channel in (None, call.channel)
            and self.account in (None, call.account)
        )


@dataclass(kw_only=True)
class Fault(Filter, ABC):
    """Meets the calls that fit, from the one after `after` on. `times` is how often, None for always."""

    after: int = 0
    times: int | None = 1
    met: int = field(default=0, init=False)

    def is_over(self, now: float) -> bool:
        """Whether it will never meet a call again."""
        return self.times is not None and self.met >= self.times

    @abstractmethod
    def meet(self, call: Call, now: float) -> Answer | None:
        """What happens to this call, which is answered at `now` (`time.monotonic()`); None if nothing."""


@dataclass(kw_only=True)
class Counted(Fault):
    """A fault that looks only at how many calls there were."""

    _seen: int = field(default=0, init=False, repr=False)

    def meet(self, call: Call, now: float) -> Answer | None:
        """What happens to the calls whose turn has come."""
        if self.is_over(now):
            return None
        self._seen += 1
        if self._seen <= self.after:
            return None
        self.met += 1
        return self.answer()

    @abstractmethod
    def answer(self) -> Answer:
        """What happens when its time has come."""


@dataclass(kw_only=True)
class Failure(Counted):
    """Answers with an error."""

    name: str
    code: int = 400

    def answer(self) -> Answer:
        """The error."""
        return Answer(self.name, (self.code, self.name))


@dataclass(kw_only=True)
class Drop(Counted):
    """Breaks the connection off before the call is looked at, in the middle of the answer, or after it."""

    when: When = "before"

    def answer(self) -> Answer:
        """The break."""
        return Answer("drop" if self.when == "before" else f"drop-{self.when}")


@dataclass(kw_only=True)
class Hang(Counted):
    """Never answers, and leaves the connection open."""

    def answer(self) -> Answer:
        """Silence."""
        return Answer("hang")


@dataclass(kw_only=True)
class HalfClose(Counted):
    """Says that it will send nothing more, but goes on listening."""

    def answer(self) -> Answer:
        """The half-closed connection."""
        return Answer("half-close")


@dataclass(kw_only=True)
class Delay(Counted):
    """Answers late."""

    seconds: float
    times: int | None = None

    def answer(self) -> Answer:
        """The truth, only later."""
        return Answer("ok")


@dataclass(slots=True)
class _Hold:
    seen: int = 0
    told: int = 0
    until: float = -math.inf
    told_at: float = 0.0


@dataclass(kw_only=True)
class Flood(Fault):
    """A flood wait, as the real server does it: on the call after `after` the client is told to wait `seconds`, and
    until that is over every fitting call is told how much is left and is recorded as a violation.

    Every account counts and waits for itself. `holds` lets the wait be over sooner than told. `in_flight`: the wire
    takes its time, so a call that was sent before the answer "wait" could be read does not break the wait.
    """

    seconds: float
    holds: float | None = None
    in_flight: float = 0.1
    name: str = "FLOOD_WAIT"
    _holds: dict[str | None, _Hold] = field(default_factory=dict, init=False, repr=False)

    def until(self, account: str) -> float:
        """When the wait of an account ends, by `time.monotonic()`; minus infinity if it has none."""
        return self._holds.get(account, _Hold()).until

    def is_over(self, now: float) -> bool:
        """Only for a single account: any other may still come."""
        hold = self._holds.get(self.account)
        return self.account is not None and hold is not None and hold.told == self.times and hold.until <= now

    def meet(self, call: Call, now: float) -> Answer | None:
        """The wait, if there is one or if this call earns one."""
        hold = self._holds.setdefault(call.account, _Hold())
        if now < hold.until:
            left = math.ceil(hold.until - now)
            return self._wait(left, is_violation=call.sent_at > hold.told_at + self.in_flight)
        if self.times is not None and hold.told >= self.times:
            return None
        hold.seen += 1
        if hold.seen <= self.after:
            return None
        hold.told, hold.seen, self.met = hold.told + 1, 0, self.met + 1
        hold.until = now + (self.seconds if self.holds is None else self.holds)
        hold.told_at = call.sent_at + (now - call.at)
        return self._wait(math.ceil(self.seconds))

    def _wait(self, seconds: int, *, is_violation: bool = False) -> Answer:
        name = f"{self.name}_{seconds}"
        return Answer(name, (420, name), is_violation=is_violation)


class Faults:
    """All the trouble there is, and the calls that broke a wait."""

    def __init__(self, kept: int) -> None:
        self._faults: deque[Fault] = deque(maxlen=_FAULTS_KEPT)
        self.violations: deque[Call] = deque(maxlen=kept)

    def add(self, fault: Fault) -> None:
        """From now on. Those that are over make room."""
        now = time.monotonic()
        self._faults = deque((kept for kept in self._faults if not kept.is_over(now)), maxlen=_FAULTS_KEPT)
        self._faults.append(fault)

    def remove(self, fault: Fault) -> None:
        """No longer; nothing if it is not there."""
        self._faults = deque((kept for kept in self._faults if kept is not fault), maxlen=_FAULTS_KEPT)

    def clear(self) -> None:
        """No more trouble."""
        self._faults.clear()

    def meet(self, call: Call) -> tuple[float, Answer | None]:
        """How long to wait before this call is answered, and what to answer; None: the truth. The first fault wins."""
        fitting = [fault for fault in self._faults if fault.fits(call)]
        seconds = sum(fault.seconds for fault in fitting if isinstance(fault, Delay) and fault.meet(call, 0.0))
        # A wait begins when the client is told of it, and that is after every delay.
        told_at = time.monotonic() + seconds
        for fault in fitting:
            answer = None if isinstance(fault, Delay) else fault.meet(call, told_at)
            if answer is None:
                continue
            if answer.is_violation:
                self.violations.append(call)
            return seconds, answer
        return seconds, None
