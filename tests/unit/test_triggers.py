"""From the when-columns of a job to its trigger."""

from datetime import UTC, datetime, timedelta

import pytest

from floodmark.errors import InvalidInput
from floodmark.model.job import NEVER, Frequency, ScheduleType, When
from floodmark.triggers import between, instants, trigger_of

ANCHOR = datetime(2026, 5, 4, 9, 7, 3, tzinfo=UTC)
TICK = timedelta(microseconds=1)

pytestmark = pytest.mark.spec("V1")


@pytest.mark.parametrize(
    ("when", "first"),
    [
        (
            When(schedule_type=ScheduleType.CRON, cron_expression="0 6 * * *", timezone="Europe/Berlin"),
            datetime(2026, 5, 5, 4, tzinfo=UTC),
        ),
        (When(schedule_type=ScheduleType.INTERVAL, interval_seconds=90.5), ANCHOR + timedelta(seconds=90.5)),
        (
            When(
                schedule_type=ScheduleType.CALENDAR,
                frequency=Frequency.WEEKLY,
                time_config={"day": "monday", "hour": 2, "minute": 0},
                timezone="America/New_York",
            ),
            datetime(2026, 5, 11, 6, tzinfo=UTC),
        ),
        (When(schedule_type=ScheduleType.IMMEDIATE), None),
        (When(schedule_type=ScheduleType.EVENT), None),
    ],
)
def test_every_schedule_type_has_its_trigger(when: When, first: datetime | None) -> None:
    assert trigger_of(when, anchor=ANCHOR).after(ANCHOR) == first


def test_an_immediate_job_fires_once_at_its_anchor() -> None:
    trigger = trigger_of(When(schedule_type=ScheduleType.IMMEDIATE), anchor=ANCHOR)
    assert list(instants(trigger, ANCHOR - timedelta(days=1))) == [ANCHOR]
    assert trigger.latest(ANCHOR) == trigger.latest(NEVER) == ANCHOR
    assert trigger.latest(ANCHOR - TICK) is None


def test_an_event_job_never_fires_by_the_clock() -> None:
    trigger = trigger_of(When(schedule_type=ScheduleType.EVENT), anchor=ANCHOR)
    assert trigger.after(ANCHOR) is None
    assert trigger.latest(NEVER) is None


@pytest.mark.parametrize(
    ("when", "message", "hint"),
    [
        (When(schedule_type=ScheduleType.CRON), "cron_expression is missing", "for example '*/15 * * * *'"),
        (When(schedule_type=ScheduleType.INTERVAL), "interval_seconds is missing", "for example 900"),
        (When(schedule_type=ScheduleType.CALENDAR), "frequency is missing", "hourly or daily"),
        (When(schedule_type=ScheduleType.INTERVAL, interval_seconds=0), "too short", "1 second"),
        (When(schedule_type=ScheduleType.EVENT, timezone="Europe/Brelin"), "unknown time zone", "Europe/Berlin"),
    ],
)
def test_columns_that_do_not_fit_are_refused_with_a_hint(when: When, message: str, hint: str) -> None:
    with pytest.raises(InvalidInput, match=message) as refused:
        trigger_of(when, anchor=ANCHOR)
    assert hint in refused.value.hint


def test_columns_of_another_type_do_not_matter() -> None:
    when = When(schedule_type=ScheduleType.INTERVAL, interval_seconds=60, cron_expression="nonsense")
    assert trigger_of(when, anchor=ANCHOR).after(ANCHOR) == ANCHOR + timedelta(minutes=1)


@pytest.mark.spec("G1")
def test_between_leaves_out_its_beginning_and_includes_its_end() -> None:
    trigger = trigger_of(When(schedule_type=ScheduleType.INTERVAL, interval_seconds=60), anchor=ANCHOR)
    third = ANCHOR + timedelta(minutes=3)
    assert between(trigger, ANCHOR, third, 100) == [ANCHOR + timedelta(minutes=n) for n in (1, 2, 3)]
    assert between(trigger, ANCHOR, third, 2) == [ANCHOR + timedelta(minutes=n) for n in (1, 2)]
    assert between(trigger, ANCHOR, third, 0) == between(trigger, third, ANCHOR, 100) == []
