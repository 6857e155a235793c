"""The phases of an execution on a line of time: late, queued, failed attempts, running, waiting. Pure."""

from collections.abc import Iterator
from datetime import datetime, timedelta

from msgspec import Struct

from floodmark.model.execution import Execution, State
from floodmark.operations.timeline import failed_attempts, is_in_slices

_WORKING = (State.RUNNING, State.DONE, State.DEAD, State.CANCELLED)
# Phases that are shorter cannot be seen next to the others.
_SHORTEST = timedelta(milliseconds=1)


class Phase(Struct, frozen=True, kw_only=True):
    """A phase. `kind` is its colour; `is_open`: it has not ended yet; `is_mark`: a moment without a length."""

    kind: str
    title: str
    begin: datetime
    end: datetime
    text: str = ""
    is_open: bool = False
    is_mark: bool = False

    @property
    def length(self) -> timedelta:
        """How long it took."""
        return max(self.end - self.begin, timedelta())


def phases_of(execution: Execution, now: datetime) -> list[Phase]:
    """Return the phases in order. When an earlier attempt began is not stored, only when it failed."""
    found = _phases(execution, now)
    return [phase for phase in found if phase.length >= _SHORTEST or phase.is_open or phase.is_mark]


def _phases(e: Execution, now: datetime) -> Iterator[Phase]:
    fired = e.created_at or e.scheduled_for
    if e.state is State.SKIPPED:
        return
    yield Phase(kind="idle", title="Due", begin=e.scheduled_for, end=fired, text="from due to fired")
    at = fired
    for attempt in failed_attempts(e):
        if attempt.at is not None and attempt.at > at:
            before = "Queued" if at == fired else "Waiting"
            kind, title = before.lower(), f"{before}, then attempt {attempt.number}"
            yield Phase(kind=kind, title=title, begin=at, end=attempt.at, text=f"on {attempt.worker}")
            at = attempt.at
            yield _mark("failed", f"Attempt {attempt.number} failed", at, attempt.error)
    yield from _current(e, at, now)
    if e.completed_at is not None:
        yield _mark(e.state.value, f"Ended: {e.state}", e.completed_at, e.error_message or e.reason or "")


def _mark(kind: str, title: str, at: datetime, text: str) -> Phase:
    return Phase(kind=kind, title=title, begin=at, end=at, text=text, is_mark=True)


def _current(e: Execution, at: datetime, now: datetime) -> Iterator[Phase]:
    """Yield the phases after the last failed attempt."""
    if e.state is State.QUEUED:
        yield Phase(kind="queued", title="Queued", begin=at, end=now, text=e.reason or "for a worker", is_open=True)
    elif e.state is State.WAITING:
        until = e.not_before
        yield Phase(kind="waiting", title="Waiting", begin=at, end=now, text=e.reason or "", is_open=True)
        if until is not None and until > now:
            yield Phase(kind="idle", title="Remaining wait", begin=now, end=until, text=e.reason or "", is_open=True)
    elif e.started_at is not None and e.state in _WORKING:
        started = max(at, e.started_at)
        yield _before(e, at, started)
        is_open = e.state is State.RUNNING
        end = now if is_open else e.completed_at or now
        kind = "running" if is_open else e.state.value
        text = f"attempt {max(1, e.attempt)} on {e.worker or '?'}"
        yield Phase(kind=kind, title="Running", begin=started, end=max(started, end), text=text, is_open=is_open)


def _before(e: Execution, at: datetime, started: datetime) -> Phase:
    """Return the phase before the last start."""
    if is_in_slices(e):
        return Phase(kind="idle", title="Earlier slices and waits", begin=at, end=started, text="it was interrupted")
    before = "waiting" if e.error_details else "queued"
    return Phase(kind=before, title=before.capitalize(), begin=at, end=started, text="until a worker took it")
