"""The phases of an execution on a line of time."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from floodmark.dashboard.pages.executions import spans_of
from floodmark.dashboard.phases import phases_of
from floodmark.model.execution import Execution, State
from floodmark.model.job import Priority

pytestmark = pytest.mark.spec("B10")

DUE = datetime(2026, 6, 1, 12, tzinfo=UTC)


def after(seconds: float) -> datetime:
    return DUE + timedelta(seconds=seconds)


def an_execution(state: State, **columns: Any) -> Execution:
    usual = {"execution_id": "e", "job_id": "j", "job_name": "news", "priority": Priority.NORMAL, "attempt": 1}
    return Execution(**{**usual, "scheduled_for": DUE, "created_at": after(1), "state": state, **columns})


def titles(execution: Execution, now: datetime) -> list[str]:
    return [phase.title for phase in phases_of(execution, now)]


def test_a_finished_run_was_due_queued_and_running() -> None:
    run = an_execution(State.DONE, started_at=after(3), completed_at=after(8), duration_seconds=5.0, worker="w")
    assert titles(run, after(60)) == ["Due", "Queued", "Running", "Ended: done"]
    assert [phase.length.total_seconds() for phase in phases_of(run, after(60))] == [1, 2, 5, 0]


def test_failed_attempts_are_moments_between_waits() -> None:
    failed = ((1, 2), (2, 5))
    details = [{"at": after(at).isoformat(), "attempt": n, "worker": "w", "error": "boom"} for n, at in failed]
    run = an_execution(State.WAITING, attempt=2, error_details=details, reason="boom", not_before=after(20))
    assert titles(run, after(10)) == [
        "Due",
        "Queued, then attempt 1",
        "Attempt 1 failed",
        "Waiting, then attempt 2",
        "Attempt 2 failed",
        "Waiting",
        "Remaining wait",
    ]


def test_an_interrupted_run_has_earlier_slices() -> None:
    run = an_execution(State.RUNNING, started_at=after(100), duration_seconds=40.0, worker="w")
    assert titles(run, after(110)) == ["Due", "Earlier slices and waits", "Running"]


def test_a_queued_and_a_skipped_one() -> None:
    assert titles(an_execution(State.QUEUED), after(5)) == ["Due", "Queued"]
    assert phases_of(an_execution(State.SKIPPED), after(5)) == []


def test_spans_fill_the_line_and_moments_come_last() -> None:
    details = [{"at": after(5).isoformat(), "attempt": 1, "worker": "w", "error": "boom"}]
    run = an_execution(State.DONE, error_details=details, started_at=after(8), completed_at=after(10), attempt=2)
    spans = spans_of(phases_of(run, after(60)))
    assert (min(span.begin for span in spans), max(span.end for span in spans)) == (0.0, 1.0)
    assert [span.kind for span in spans[-2:]] == ["failed", "done"]
    assert spans_of([]) == []


def test_details_of_any_form_break_nothing() -> None:
    for details in ("text", [1, None, {"at": "never"}], {"error": "x"}, [{"at": 5, "attempt": None}]):
        assert titles(an_execution(State.DEAD, error_details=details, completed_at=after(9)), after(10))
