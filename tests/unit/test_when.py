"""How people say when, and how they are told."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from floodmark.errors import InvalidInput
from floodmark.model.job import Frequency, Priority, ScheduleType, When
from floodmark.triggers import trigger_of
from floodmark.triggers.parsing import priority_of, when_of, words_of

NOON = datetime(2026, 10, 1, 12, tzinfo=UTC)


def first(when: When) -> datetime | None:
    return trigger_of(when, anchor=NOON).after(NOON)


@pytest.mark.spec("V1", "E3")
@pytest.mark.parametrize(
    ("said", "next_run", "words"),
    [
        ({"every": "15m"}, datetime(2026, 10, 1, 12, 15, tzinfo=UTC), "every 15 min"),
        ({"every": timedelta(hours=1.5)}, datetime(2026, 10, 1, 13, 30, tzinfo=UTC), "every 1 h 30 min"),
        ({"cron": "0 6 * * *"}, datetime(2026, 10, 2, 6, tzinfo=UTC), "0 6 * * * UTC"),
        ({"hourly": "15"}, datetime(2026, 10, 1, 12, 15, tzinfo=UTC), "hourly :15 UTC"),
        ({"hourly": ":05"}, datetime(2026, 10, 1, 12, 5, tzinfo=UTC), "hourly :05 UTC"),
        (
            {"daily": "02:00", "timezone": "Europe/Berlin"},
            datetime(2026, 10, 2, tzinfo=UTC),
            "daily 02:00 Europe/Berlin",
        ),
        ({"weekly": "Monday 2:30"}, datetime(2026, 10, 5, 2, 30, tzinfo=UTC), "weekly monday 02:30 UTC"),
        ({"monthly": "31 02:00"}, datetime(2026, 10, 31, 2, tzinfo=UTC), "monthly 31 02:00 UTC"),
        ({"once": True}, None, "once"),
        ({"adaptive": True}, None, "adaptive"),
        ({}, None, "on demand"),
    ],
)
def test_each_way_to_say_when_is_understood_and_said_back(
    said: dict[str, Any], next_run: datetime | None, words: str
) -> None:
    when = when_of(**said)
    assert first(when) == next_run
    assert words_of(when) == words


def test_without_a_word_a_job_waits_for_an_event() -> None:
    assert when_of().schedule_type is ScheduleType.EVENT


def test_two_ways_contradict_each_other() -> None:
    with pytest.raises(InvalidInput, match="every and cron contradict each other"):
        when_of(every="5m", cron="* * * * *")
    with pytest.raises(InvalidInput, match="every and adaptive contradict each other"):
        when_of(every="5m", adaptive=True)


def test_not_saying_once_is_no_contradiction() -> None:
    assert when_of(every="5m", once=False).interval_seconds == 300


@pytest.mark.spec("G9")
@pytest.mark.parametrize(
    ("said", "hint"),
    [
        ({"hourly": "quarter past"}, "for example 15"),
        ({"daily": ""}, "for example 02:00"),
        ({"daily": "2"}, "for example 02:00"),
        ({"daily": "monday 02:00"}, "for example 02:00"),
        ({"weekly": "02:00"}, "for example 'monday 02:00'"),
        ({"monthly": "1 of 02:00"}, "for example '1 02:00'"),
        ({"every": "soon"}, "15m"),
    ],
)
def test_what_is_not_a_time_is_refused_with_an_example(said: dict[str, Any], hint: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        when_of(**said)
    assert hint in refused.value.hint


@pytest.mark.parametrize("said", [{"hourly": "60"}, {"daily": "24:00"}, {"weekly": "someday 02:00"}])
def test_a_time_no_clock_shows_is_refused_by_its_trigger(said: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        first(when_of(**said))


@pytest.mark.parametrize(
    ("when", "words"),
    [
        (When(schedule_type=ScheduleType.CALENDAR, frequency=Frequency.DAILY), "daily 00:00 UTC"),
        (When(schedule_type=ScheduleType.CALENDAR, frequency=Frequency.WEEKLY), "weekly monday 00:00 UTC"),
        (When(schedule_type=ScheduleType.CALENDAR, frequency=Frequency.MONTHLY), "monthly 1 00:00 UTC"),
        (
            When(schedule_type=ScheduleType.CALENDAR, frequency=Frequency.DAILY, time_config={"hour": "two"}),
            "daily two:00 UTC",
        ),
        (When(schedule_type=ScheduleType.INTERVAL), "every 0 s"),
    ],
)
def test_a_row_typed_by_hand_can_be_put_into_words_whatever_it_holds(when: When, words: str) -> None:
    assert words_of(when) == words


@pytest.mark.spec("V2")
@pytest.mark.parametrize("said", [Priority.HIGH, "high", "HIGH", 1, "1"])
def test_a_priority_has_a_name_and_a_number(said: Priority | str | int) -> None:
    assert priority_of(said) is Priority.HIGH


@pytest.mark.spec("G9")
@pytest.mark.parametrize("said", ["urgent", 0, 4, ""])
def test_another_priority_is_refused(said: str | int) -> None:
    with pytest.raises(InvalidInput, match="is not a priority"):
        priority_of(said)
