"""Rows into which someone has typed nonsense: told by the name of the column, and never a reason to stop."""

from typing import Any

import pytest

from floodmark.store.rows import DUE_COLUMNS, JOB_COLUMNS, WORK_COLUMNS, due_job_from_row, job_from_row, work_from_row

pytestmark = pytest.mark.spec("E4", "G9")

SOUND = {
    "job_id": "1",
    "name": "news",
    "source": "python",
    "target": "feed",
    "params": "{}",
    "tags": "[]",
    "schedule_type": "interval",
    "interval_seconds": 60.0,
    "timezone": "UTC",
    "priority": 2,
    "timeout_seconds": 5.0,
    "retry_max": 3,
    "overlap": "skip",
    "max_instances": 1,
    "coalesce": 1,
    "misfire_grace_seconds": 300.0,
    "catch_up": "one",
    "jitter_seconds": 0.0,
    "schedule_enabled": 1,
    "paused": 0,
    "scheduler_version": 2,
    "version": 1,
    "created_at": "2026-06-01 12:00:00.000000+00:00",
    "updated_at": "2026-06-01 12:00:00.000000+00:00",
}


def row(columns: tuple[str, ...], **nonsense: Any) -> tuple[Any, ...]:
    return tuple({**SOUND, **nonsense}.get(column) for column in columns)


NONSENSE = [
    ("schedule_type", "often"),
    ("time_config", "{"),
    ("overlap", "perhaps"),
    ("misfire_grace_seconds", "soon"),
    ("jitter_seconds", float("nan")),
    ("catch_up", "some"),
    ("priority", 9),
    ("created_at", "yesterday"),
]


def test_a_sound_row_is_read() -> None:
    assert job_from_row(row(JOB_COLUMNS)).invalid_reason is None
    assert work_from_row(row(WORK_COLUMNS)).unreadable is None
    due = due_job_from_row(row(DUE_COLUMNS), 2, ["other"])
    assert (due.invalid_reason, due.active, due.waits_for) == (None, 2, ("other",))


@pytest.mark.parametrize(("column", "value"), [*NONSENSE, ("params", "{"), ("tags", "a, b")])
def test_a_job_with_nonsense_names_the_column(column: str, value: Any) -> None:
    job = job_from_row(row(JOB_COLUMNS, **{column: value}))
    assert (job.name, job.stream) == ("news", "python:feed")
    assert job.invalid_reason == job.unreadable == f"{column} has a value of the wrong kind, {str(value)!r}"


@pytest.mark.parametrize(("column", "value"), NONSENSE)
def test_a_due_job_with_nonsense_is_left_alone_and_says_why(column: str, value: Any) -> None:
    due = due_job_from_row(row(DUE_COLUMNS, **{column: value}), 0, ())
    assert (due.job_id, due.name) == ("1", "news")
    told = f"{column} has a value of the wrong kind, {str(value)!r}; correct it, then pause and resume the job"
    assert due.invalid_reason == told


@pytest.mark.parametrize(("column", "value"), [("params", "{"), ("timeout_seconds", "soon"), ("priority", None)])
def test_work_with_nonsense_names_the_column(column: str, value: Any) -> None:
    work = work_from_row(row(WORK_COLUMNS, **{column: value}))
    assert (work.source, work.target, work.stream) == ("python", "feed", "python:feed")
    assert work.unreadable == f"{column} has a value of the wrong kind, {str(value)!r}"
