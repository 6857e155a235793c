"""An execution: one due run of a job, the states it passes through, and the legal moves between them."""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any

from msgspec import Struct

from .batch import Watermark
from .job import Priority, Work


class State(StrEnum):
    """Where an execution stands."""

    QUEUED = "queued"
    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    DEAD = "dead"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"


ACTIVE = (State.QUEUED, State.WAITING, State.RUNNING)
ENDED = (State.DONE, State.DEAD, State.CANCELLED, State.SKIPPED)

# queued -> running is a claim, running -> queued a rescue or a release, running -> waiting a snooze or a retry.
MOVES: Mapping[State, tuple[State, ...]] = {
    State.QUEUED: (State.RUNNING, State.WAITING, State.CANCELLED),
    State.WAITING: (State.QUEUED, State.CANCELLED),
    State.RUNNING: (State.DONE, State.WAITING, State.QUEUED, State.DEAD, State.CANCELLED),
    State.DONE: (),
    State.DEAD: (State.QUEUED, State.CANCELLED),
    State.CANCELLED: (),
    State.SKIPPED: (),
}


class Hold(StrEnum):
    """What a waiting execution waits for, when it is not a point in time."""

    OVERLAP = "overlap"
    DEPENDENCY = "dependency"
    PAUSED = "paused"


class Queued(Struct, frozen=True, gc=False):
    """What the queue needs to know of an execution: nothing but where it stands in line. Its trace travels along."""

    execution_id: str
    priority: Priority = Priority.NORMAL
    traceparent: str | None = None


class Lease(Struct, frozen=True, kw_only=True, gc=False):
    """An execution in a worker's hands, with everything needed to run it."""

    execution_id: str
    job: Work
    scheduled_for: datetime
    attempt: int
    worker: str
    fence: int
    watermark: Watermark | None = None
    trigger: str = "schedule"
    params: Mapping[str, Any] | None = None
    waited: float | None = None
    """Seconds it stood in line before this lease."""
    traceparent: str | None = None
    """What it goes on from in its trace, if it is traced."""
    result: Any = None
    """What its earlier slices and attempts reported."""


class Execution(Struct, frozen=True, kw_only=True):
    """One row of `executions`, as the history shows it."""

    execution_id: str
    job_id: str
    job_name: str
    scheduled_for: datetime
    state: State
    priority: Priority
    attempt: int
    rescues: int = 0
    coalesced: int = 0
    trigger: str = "schedule"
    reason: str | None = None
    hold: Hold | None = None
    not_before: datetime | None = None
    lease_until: datetime | None = None
    worker: str | None = None
    started_at: datetime | None = None
    completed_at: datetime | None = None
    duration_seconds: float | None = None
    items_new: int = 0
    items_changed: int = 0
    items_known: int = 0
    error_message: str | None = None
    error_details: Any = None
    result: Any = None
    created_at: datetime | None = None
