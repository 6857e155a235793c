"""An execution: one due run of a job, its states, and the allowed transitions between them."""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

from msgspec import Meta, Struct

from .batch import Watermark
from .job import Priority, Work


class State(StrEnum):
    """The state of an execution."""

    QUEUED = "queued"
    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    DEAD = "dead"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"


ACTIVE = (State.QUEUED, State.WAITING, State.RUNNING)
ENDED = (State.DONE, State.DEAD, State.CANCELLED, State.SKIPPED)

# queued -> running is a claim, running -> queued a rescue or a release, running -> waiting a snooze, a retry or an
# offer to another worker, waiting -> running the claim of an offer.
MOVES: Mapping[State, tuple[State, ...]] = {
    State.QUEUED: (State.RUNNING, State.WAITING, State.CANCELLED),
    State.WAITING: (State.QUEUED, State.RUNNING, State.CANCELLED),
    State.RUNNING: (State.DONE, State.WAITING, State.QUEUED, State.DEAD, State.CANCELLED),
    State.DONE: (),
    State.DEAD: (State.QUEUED, State.CANCELLED),
    State.CANCELLED: (),
    State.SKIPPED: (),
}


class Hold(StrEnum):
    """What a waiting execution waits for, other than a point in time."""

    OVERLAP = "overlap"
    DEPENDENCY = "dependency"
    PAUSED = "paused"


class Queued(Struct, frozen=True, gc=False):
    """The fields of an execution that the queue needs: its id and priority, and its trace context."""

    execution_id: str
    priority: Priority = Priority.NORMAL
    traceparent: str | None = None


class Lease(Struct, frozen=True, kw_only=True, gc=False):
    """An execution that a worker has leased, with everything needed to run it."""

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
    """Seconds in the queue before this lease."""
    traceparent: str | None = None
    """The trace context that it continues, if it is traced."""
    result: Any = None
    """The result of its earlier slices and attempts."""
    was_offered: bool = False
    """Whether it was offered to a preferred worker since it was last queued."""


class Execution(Struct, frozen=True, kw_only=True):
    """One due run of a job."""

    execution_id: str
    job_id: str
    job_name: str
    scheduled_for: Annotated[datetime, Meta(description="The instant that was due, not the time at which it ran.")]
    state: State
    priority: Priority
    attempt: Annotated[int, Meta(description="Number of attempts so far.")]
    rescues: Annotated[int, Meta(description="How often it was taken back from a worker that stopped responding.")] = 0
    coalesced: Annotated[int, Meta(description="Number of other instants that were merged into it.")] = 0
    trigger: Annotated[str, Meta(description="What started it: schedule, manual, webhook, ...")] = "schedule"
    params: Annotated[Mapping[str, Any] | None, Meta(description="Params of this run only, over those of the job.")] = (
        None
    )
    reason: Annotated[str | None, Meta(description="Why it waits, was skipped or was cancelled.")] = None
    hold: Annotated[Hold | None, Meta(description="What it waits for, other than a time.")] = None
    not_before: Annotated[datetime | None, Meta(description="When its wait ends, if it waits for a time.")] = None
    lease_until: Annotated[
        datetime | None,
        Meta(description="A running execution is taken back if its worker does not renew the lease until then."),
    ] = None
    worker: str | None = None
    started_at: datetime | None = None
    completed_at: datetime | None = None
    duration_seconds: float | None = None
    items_new: int = 0
    items_changed: int = 0
    items_known: Annotated[int, Meta(description="Items that were found again, unchanged.")] = 0
    error_message: str | None = None
    error_details: Annotated[Any, Meta(description="Every failed attempt.")] = None
    result: Any = None
    traceparent: Annotated[
        str | None, Meta(description="Its trace context, as in the header `traceparent`; null if it is not traced.")
    ] = None
    created_at: datetime | None = None

    @property
    def trace_id(self) -> str | None:
        """The id of its trace, if it is traced."""
        parts = (self.traceparent or "").split("-")
        return parts[1] if len(parts) == 4 else None


class ExecutionMark(Struct, frozen=True, kw_only=True):
    """An execution in a chart: how it ended, how long it took, and what it found."""

    execution_id: str
    job_id: str
    scheduled_for: Annotated[datetime, Meta(description="The instant that was due, not the time at which it ran.")]
    state: State
    duration_seconds: float | None
    items_new: int
    items_changed: int


class Statistics(Struct, frozen=True, kw_only=True):
    """Counts and durations of executions. Durations are in seconds, null if no execution has ended."""

    total_executions: Annotated[int, Meta(description="All executions except skipped ones, which never ran.")]
    successful: int
    failed: int
    cancelled: Annotated[int, Meta(description="By a person, or by a later instant of a job with overlap=replace.")]
    success_rate: Annotated[float, Meta(description="Percentage of successes among those that succeeded or failed.")]
    avg_duration: float | None
    min_duration: float | None
    max_duration: float | None
