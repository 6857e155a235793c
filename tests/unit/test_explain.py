"""One sentence about why a job is not running."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from floodmark.model.execution import Execution, Hold, State
from floodmark.model.job import NEVER, Job, Priority, ScheduleType, When
from floodmark.rules.explain import ExpectedPoll, Explanation, JobView, Limit, explain

NOW = datetime(2026, 3, 10, 14, 6, 0, tzinfo=UTC)
SOON = NOW + timedelta(seconds=40)


def a_job(**changes: Any) -> Job:
    when = changes.pop("when", When(schedule_type=ScheduleType.INTERVAL, interval_seconds=900))
    basics = {"job_id": "j", "name": "news", "source": "python", "target": "t", "stream": "s", "next_run": SOON}
    return Job(**{**basics, "when": when, **changes})


def run(state: State, **changes: Any) -> Execution:
    basics = {
        "execution_id": "e",
        "job_id": "j",
        "job_name": "news",
        "scheduled_for": NOW,
        "priority": Priority.NORMAL,
        "attempt": 0,
    }
    return Execution(**{**basics, "state": state, **changes})


def told(*active: Execution, job: Job | None = None, **changes: Any) -> Explanation:
    healthy = {"leader": "host-1", "workers": 1}
    return explain(JobView(job=job or a_job(), now=NOW, active=active, **{**healthy, **changes}))


IMMEDIATE = When(schedule_type=ScheduleType.IMMEDIATE)
DONE = run(State.DONE, completed_at=NOW - timedelta(minutes=1))
NOTED = run(State.DONE, completed_at=NOW, result={"notes": ["a page has no text", "a sitemap is broken"]})
DEAD = run(State.DEAD, completed_at=NOW - timedelta(minutes=1), error_message="channel is gone\ntrace")
RETRY = run(State.WAITING, attempt=2, not_before=SOON, reason="boom", error_message="boom")
SNOOZED = run(State.WAITING, not_before=SOON, reason="FloodWait on account 1", error_message="an older error")


@pytest.mark.parametrize(
    ("explanation", "code", "sentence"),
    [
        (told(job=a_job(scheduler_version=1)), "old_scheduler", "old scheduler (scheduler_version 1)"),
        (told(job=a_job(paused=True, pause_reason="too loud")), "paused", "paused: too loud; resume it with: "),
        (told(job=a_job(paused=True)), "paused", "paused; resume it"),
        (told(job=a_job(schedule_enabled=False)), "disabled", "schedule_enabled is false"),
        (told(job=a_job(invalid_reason="bad minute '61'")), "invalid", "makes no sense: bad minute '61'"),
        (told(job=a_job(when=When(schedule_type=ScheduleType.EVENT))), "event", "when triggered: floodmark run news"),
        (told(job=a_job(when=IMMEDIATE, next_run=NEVER), last=DONE), "finished", "ran at 14:05:00 UTC and is not due"),
        (told(job=a_job(next_run=NEVER)), "finished", "no further run"),
        (told(job=a_job(next_run=NEVER), last=DEAD), "dead", "failed permanently at 14:05:00 UTC: channel is gone"),
        (told(last=DEAD), "dead", "floodmark dlq retry news; next run at 14:06:40 UTC, in 40 s"),
        (told(leader=None), "no_leader", "due at 14:06:40 UTC, in 40 s, but no scheduler is running"),
        (told(leader=None, job=a_job(next_run=None)), "no_leader", "no scheduler is running"),
        (told(job=a_job(next_run=None)), "unplanned", "plans it at its next step"),
        (told(job=a_job(next_run=NOW)), "due", "due since 14:06:00 UTC"),
        (told(), "not_due", "not due: next run at 14:06:40 UTC, in 40 s"),
        (told(last=DONE), "not_due", "not due"),
        (told(last=NOTED), "not_due", "note of the last run: a page has no text (1 more: floodmark history --id e)"),
        (told(RETRY), "retry", "attempt 2 of 4 failed: boom; tries again at 14:06:40 UTC, in 40 s"),
        (told(SNOOZED), "limit", "FloodWait on account 1; continues at 14:06:40 UTC, in 40 s"),
        (told(run(State.WAITING, not_before=SOON)), "jitter", "starts at 14:06:40 UTC"),
        (told(run(State.WAITING, not_before=NOW)), "due", "its time has come: the scheduler is about to"),
        (told(run(State.WAITING, not_before=NOW), leader=None), "no_leader", "no scheduler is running"),
        (told(run(State.WAITING, hold=Hold.OVERLAP)), "overlap", "an earlier execution is unfinished"),
        (told(run(State.WAITING, hold=Hold.OVERLAP, reason="waits for e1")), "overlap", "waiting: waits for e1"),
        (told(run(State.WAITING, hold=Hold.DEPENDENCY), waits_for=("a", "b")), "dependency", "until a, b succeed"),
        (told(run(State.WAITING, hold=Hold.DEPENDENCY), waits_for=("a",)), "dependency", "until a succeeds"),
        (told(run(State.WAITING, hold=Hold.DEPENDENCY)), "due", "have succeeded: the scheduler is about to"),
        (told(run(State.WAITING, hold=Hold.PAUSED), job=a_job(paused=True)), "paused", "paused; resume it"),
        (told(run(State.WAITING, hold=Hold.PAUSED)), "due", "it was paused: the scheduler is about to"),
        (told(run(State.QUEUED)), "queued", "first in the queue"),
        (told(run(State.QUEUED), ahead=1), "queued", "queued behind 1 other"),
        (told(run(State.QUEUED), ahead=7), "queued", "queued behind 7 others"),
        (told(run(State.QUEUED), workers=0), "no_worker", "no worker is running; start one with: floodmark up"),
        (told(run(State.QUEUED), is_draining=True), "draining", "told to take no more work"),
        (told(run(State.QUEUED), job=a_job(paused=True)), "paused", "paused"),
        (told(run(State.QUEUED, trigger="manual"), job=a_job(paused=True)), "queued", "first in the queue"),
        (
            told(run(State.QUEUED), limit=Limit(key="k", until=SOON, reason="FloodWait")),
            "limit",
            "FloodWait; continues at 14:06:40 UTC",
        ),
        (
            told(run(State.WAITING, not_before=SOON, reason="FloodWait until 14:06:40, continues at message 4812")),
            "limit",
            "FloodWait until 14:06:40 UTC, in 40 s, continues at message 4812",
        ),
        (
            told(RETRY, run(State.RUNNING, started_at=NOW - timedelta(seconds=90), worker="w7")),
            "running",
            "running since 14:04:30 UTC, for 1 min 30 s, on worker w7",
        ),
        (
            told(run(State.RUNNING, started_at=NOW + timedelta(milliseconds=1), worker="w7")),
            "running",
            "running since 14:06:00 UTC, for 0 s, on worker w7",
        ),
        (
            told(run(State.RUNNING, lease_until=NOW - timedelta(seconds=1), worker="w7")),
            "silent",
            "worker w7 has gone silent while running it; it is handed to another",
        ),
    ],
)  # fmt: skip
@pytest.mark.spec("G5", "V8")
def test_the_sentence_names_what_has_to_go_first(explanation: Explanation, code: str, sentence: str) -> None:
    assert explanation.code == code
    assert sentence in explanation.sentence
    assert "\n" not in explanation.sentence


def test_what_changes_by_itself_says_when() -> None:
    assert told().until == SOON
    assert told(RETRY).until == SOON
    assert told(SNOOZED).until == SOON
    assert told(job=a_job(paused=True)).until is None


def test_times_are_those_of_the_jobs_own_clock() -> None:
    berlin = When(schedule_type=ScheduleType.CRON, cron_expression="0 3 * * *", timezone="Europe/Berlin")
    tomorrow = datetime(2026, 3, 11, 2, 0, tzinfo=UTC)
    sentence = told(job=a_job(when=berlin, next_run=tomorrow)).sentence
    assert "at 2026-03-11 03:00:00 Europe/Berlin, in 11 h 54 min" in sentence


def test_a_zone_that_does_not_exist_is_explained_all_the_same() -> None:
    nowhere = When(schedule_type=ScheduleType.INTERVAL, interval_seconds=60, timezone="Mars/Base")
    assert "14:06:40 UTC" in told(job=a_job(when=nowhere)).sentence


def test_a_long_error_is_cut() -> None:
    explanation = told(run(State.WAITING, attempt=1, not_before=SOON, reason="x" * 999, error_message="x" * 999))
    assert len(explanation.sentence) < 300


ADAPTIVE = When(schedule_type=ScheduleType.ADAPTIVE)
LOOKED = NOW - timedelta(minutes=11)
IN_FOUR_MINUTES = NOW + timedelta(minutes=4)


def adaptive(*active: Execution, poll: ExpectedPoll | None = None, **changes: Any) -> Explanation:
    """The explanation of an adaptive job that was polled 11 minutes ago."""
    usual = {"source": "telegram", "when": ADAPTIVE, "budget": "news", "next_run": IN_FOUR_MINUTES}
    more = {name: changes.pop(name) for name in ("leader", "last") if name in changes}
    return told(*active, job=a_job(**{**usual, **changes}), poll=poll or a_poll(), **more)


def a_poll(**changes: Any) -> ExpectedPoll:
    return ExpectedPoll(**{"budget": "news", "next_free": NOW, "items": 2.4, "polled_at": LOOKED, **changes})


NEVER_POLLED = a_poll(items=None, polled_at=None)
USED_UP = a_poll(next_free=NOW + timedelta(minutes=40))
RUNNING = run(State.RUNNING, scheduled_for=NOW, started_at=NOW, worker="w7")
LOOK = "2.4 new posts expected, 11 min since the last look"


@pytest.mark.parametrize(
    ("explanation", "code", "sentence"),
    [
        (adaptive(), "not_due", f"about {LOOK}, due in 4 min at today's budget"),
        (adaptive(source="feed"), "not_due", "about 2.4 new items expected, 11 min since the last look, due in 4 min"),
        (adaptive(poll=a_poll(items=0.03)), "not_due", "less than 0.1 new posts expected, 11 min since"),
        (adaptive(poll=a_poll(items=1234.5)), "not_due", "about 1,234 new posts expected"),
        (adaptive(poll=a_poll(is_dated=False)), "not_due", "about 2.4 changes expected"),
        (adaptive(next_run=NOW), "due", f"about {LOOK}, due: it runs when its budget news has a free request"),
        (adaptive(poll=NEVER_POLLED), "not_due", "never polled yet, due in 4 min at today's budget"),
        (adaptive(poll=NEVER_POLLED, next_run=NOW), "due", "never polled yet, due: it runs when its budget news has"),
        (
            adaptive(hinted_at=NOW - timedelta(seconds=2)),
            "due",
            "hinted 2 s ago: first in line when its budget news has a free request",
        ),
        (
            adaptive(poll=USED_UP),
            "not_due",
            f"{LOOK}, but its budget news is used up: the next request is free at 14:46:00 UTC, in 40 min",
        ),
        (adaptive(poll=USED_UP, hinted_at=NOW), "due", "hinted 0 s ago, but its budget news is used up"),
        (adaptive(leader=None), "no_leader", "due at 14:10:00 UTC, in 4 min, but no scheduler is running"),
        (adaptive(next_run=None), "unplanned", "plans it at its next step"),
        (adaptive(paused=True), "paused", "paused"),
        (adaptive(last=NOTED), "not_due", "at today's budget; note of the last run: a page has no text"),
        (adaptive(RUNNING), "running", f"on worker w7; why now: about {LOOK}"),
        (adaptive(run(State.QUEUED)), "queued", f"as soon as it has room; why now: about {LOOK}"),
    ],
)
@pytest.mark.spec("B4", "T14")
def test_an_adaptive_job_says_what_is_expected_and_when_it_is_due(
    explanation: Explanation, code: str, sentence: str
) -> None:
    assert explanation.code == code
    assert sentence in explanation.sentence


@pytest.mark.spec("B4")
def test_an_adaptive_job_says_when_that_changes() -> None:
    assert adaptive().until == IN_FOUR_MINUTES
    assert adaptive(poll=USED_UP).until == USED_UP.next_free
    assert adaptive(hinted_at=NOW).until is None


@pytest.mark.spec("B4")
def test_a_run_that_was_asked_for_or_has_found_something_gives_no_reason() -> None:
    """The first batch of the poll is stored: from then on the expectation is that of the next one."""
    assert "why now" not in adaptive(RUNNING, poll=a_poll(polled_at=NOW, items=0.0)).sentence
    assert "why now" not in adaptive(run(State.QUEUED, trigger="manual")).sentence
    assert "why now" not in told(RUNNING).sentence
