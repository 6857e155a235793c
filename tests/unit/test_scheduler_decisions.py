"""What the scheduler decides about one due job. Which instants are due is the planner's business."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from floodmark.model.execution import Hold, State
from floodmark.model.ids import new_id
from floodmark.model.job import NEVER, CatchUp, DueJob, Overlap, Policy, Priority, ScheduleType, When
from floodmark.scheduler.scheduler import decide_one
from floodmark.store.port import Decision, NewExecution

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)
EVERY_MINUTE = When(schedule_type=ScheduleType.INTERVAL, interval_seconds=60)
AT_ONCE = When(schedule_type=ScheduleType.IMMEDIATE)

pytestmark = pytest.mark.spec("G1", "V1")


def decided(now: datetime = NOON + MINUTE, **fields: Any) -> Decision:
    """About a job made at noon that runs every minute, unless told otherwise."""
    return decide_one(a_due_job(**fields), now)


def a_due_job(**fields: Any) -> DueJob:
    usual = {
        "job_id": new_id(),
        "name": "job",
        "source": "test",
        "when": EVERY_MINUTE,
        "created_at": NOON,
        "planned_until": NOON,
    }
    return DueJob(**{**usual, **fields})


def only(decision: Decision) -> NewExecution:
    [execution] = decision.executions
    return execution


def test_a_due_instant_is_queued() -> None:
    decision = decided(priority=Priority.HIGH)

    execution = only(decision)
    assert (execution.state, execution.priority, execution.trigger) == (State.QUEUED, Priority.HIGH, "schedule")
    assert (execution.scheduled_for, execution.hold, execution.reason) == (NOON + MINUTE, None, None)
    assert (decision.next_run, decision.planned_until) == (NOON + 2 * MINUTE, NOON + MINUTE)
    assert (decision.replace, decision.invalid_reason) == (False, None)


def test_nothing_due_is_planned_without_executions() -> None:
    decision = decided(NOON + SECOND)
    assert (decision.executions, decision.next_run) == ((), NOON + MINUTE)


# Never planned before


def test_a_new_interval_job_runs_at_once() -> None:
    decision = decided(NOON + SECOND, planned_until=None)
    assert only(decision).scheduled_for == NOON
    assert decision.next_run == NOON + MINUTE


def test_a_new_immediate_job_runs_once() -> None:
    decision = decided(NOON + SECOND, when=AT_ONCE, planned_until=None)
    assert only(decision).scheduled_for == NOON
    assert decision.next_run == NEVER
    assert decided(NOON + MINUTE, when=AT_ONCE, planned_until=decision.planned_until).executions == ()


def test_a_new_cron_job_waits_for_its_time() -> None:
    when = When(schedule_type=ScheduleType.CRON, cron_expression="0 13 * * *")
    decision = decided(NOON + SECOND, when=when, planned_until=None)
    assert (decision.executions, decision.next_run) == ((), NOON + 60 * MINUTE)


@pytest.mark.spec("V4")
def test_an_event_job_has_no_time_of_its_own() -> None:
    decision = decided(when=When(schedule_type=ScheduleType.EVENT), planned_until=None)
    assert (decision.executions, decision.next_run) == ((), NEVER)


# Dependencies


@pytest.mark.spec("V7")
def test_a_job_is_held_until_those_it_depends_on_have_succeeded() -> None:
    execution = only(decided(waits_for=("extract", "login")))
    assert (execution.state, execution.hold) == (State.WAITING, Hold.DEPENDENCY)
    assert execution.reason == "waits for extract, login to succeed"


@pytest.mark.spec("V7")
def test_a_skipped_instant_waits_for_nobody() -> None:
    execution = only(decided(active=1, waits_for=("extract",)))
    assert (execution.state, execution.hold) == (State.SKIPPED, None)


# Jitter


def test_jitter_puts_it_off() -> None:
    """By its own share of it, which is the same whenever it is asked for."""
    policy = Policy(jitter=timedelta(hours=1))
    execution = only(decided(policy=policy, job_id="a"))

    assert (execution.state, execution.hold, execution.reason) == (State.WAITING, None, None)
    assert execution.not_before is not None
    assert NOON + MINUTE < execution.not_before < NOON + 61 * MINUTE
    assert only(decided(policy=policy, job_id="a")).not_before == execution.not_before
    assert only(decided(policy=policy, job_id="b")).not_before != execution.not_before


def test_jitter_that_is_over_puts_nothing_off() -> None:
    policy = Policy(jitter=SECOND)
    execution = only(decided(NOON + MINUTE + 2 * SECOND, policy=policy))
    assert (execution.state, execution.not_before) == (State.QUEUED, None)


# Overlap


@pytest.mark.spec("E7")
def test_an_overlap_is_skipped_and_says_so() -> None:
    decision = decided(active=1)
    execution = only(decision)
    assert (execution.state, execution.reason) == (State.SKIPPED, "overlap: 1 execution unfinished")
    assert not decision.replace


@pytest.mark.spec("E7")
def test_an_overlap_can_wait_for_its_turn() -> None:
    execution = only(decided(active=1, policy=Policy(overlap=Overlap.QUEUE)))
    assert (execution.state, execution.hold) == (State.WAITING, Hold.OVERLAP)


@pytest.mark.spec("E7")
def test_an_overlap_can_replace_what_is_unfinished() -> None:
    """It waits until that has ended."""
    decision = decided(active=1, policy=Policy(overlap=Overlap.REPLACE))
    assert decision.replace
    assert (only(decision).state, only(decision).hold) == (State.WAITING, Hold.OVERLAP)
    assert not decided(active=0, policy=Policy(overlap=Overlap.REPLACE)).replace


@pytest.mark.spec("E7")
def test_several_may_run_if_the_job_says_so() -> None:
    policy = Policy(max_instances=3)
    assert only(decided(active=2, policy=policy)).state is State.QUEUED
    assert only(decided(active=3, policy=policy)).state is State.SKIPPED


# Several at once


@pytest.mark.spec("E7")
def test_many_instants_become_one() -> None:
    execution = only(decided(NOON + 5 * MINUTE))
    assert (execution.scheduled_for, execution.coalesced) == (NOON + 5 * MINUTE, 4)


def test_each_execution_has_an_id_of_its_own() -> None:
    policy = Policy(coalesce=False, catch_up=CatchUp.ALL, max_instances=100)
    decision = decided(NOON + 5 * MINUTE, policy=policy)
    assert [new.scheduled_for for new in decision.executions] == [NOON + n * MINUTE for n in range(1, 6)]
    assert len({new.execution_id for new in decision.executions}) == 5


# Mistakes


@pytest.mark.spec("G9")
@pytest.mark.parametrize(
    ("when", "told"),
    [
        (When(schedule_type=ScheduleType.CRON, cron_expression="every day"), "cron"),
        (When(schedule_type=ScheduleType.CRON), "cron_expression is missing. Set cron_expression"),
        (When(schedule_type=ScheduleType.INTERVAL, interval_seconds=0), "too short"),
        (When(schedule_type=ScheduleType.INTERVAL, interval_seconds=60, timezone="Mars/Base"), "Mars/Base"),
        (When(schedule_type=ScheduleType.CALENDAR), "frequency is missing"),
    ],
)
def test_a_job_that_makes_no_sense_is_marked_and_left(when: When, told: str) -> None:
    """With what to do about it; nothing else is changed, so that correcting it is enough."""
    decision = decided(when=when)
    assert decision.invalid_reason is not None
    assert told in decision.invalid_reason
    assert (decision.executions, decision.next_run, decision.planned_until) == ((), None, NOON)
