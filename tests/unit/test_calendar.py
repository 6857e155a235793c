"""Calendar jobs: frequency and time_config, on the clocks of the job's zone."""

from calendar import monthrange
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from floodmark.errors import InvalidInput
from floodmark.model.job import Frequency
from floodmark.triggers import between
from floodmark.triggers.calendar import calendar
from floodmark.triggers.cron import cron

NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)
YEAR = timedelta(days=366)
ZONES = st.sampled_from(
    ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Santiago", "Antarctica/Troll"]
)

pytestmark = pytest.mark.spec("V1", "E3")


def first(frequency: Frequency, config: Mapping[str, Any] | None, zone: str = "UTC", count: int = 3) -> list[str]:
    found = between(calendar(frequency, config, zone), NEW_YEAR, NEW_YEAR + YEAR, count)
    return [f"{at.astimezone(ZoneInfo(zone)):%a %m-%d %H:%M}" for at in found]


def test_hourly_fires_at_its_minute() -> None:
    shown = first(Frequency.HOURLY, {"minute": 20})
    assert shown == ["Thu 01-01 00:20", "Thu 01-01 01:20", "Thu 01-01 02:20"]


def test_daily_fires_at_its_time_in_the_zone_of_the_job() -> None:
    shown = first(Frequency.DAILY, {"hour": 2, "minute": 30}, "Asia/Tokyo")
    assert shown == ["Fri 01-02 02:30", "Sat 01-03 02:30", "Sun 01-04 02:30"]


@pytest.mark.parametrize("day", ["tuesday", "Tue", " TUESDAY "])
def test_weekly_fires_on_its_day(day: str) -> None:
    shown = first(Frequency.WEEKLY, {"day": day, "hour": 2, "minute": 0}, count=2)
    assert shown == ["Tue 01-06 02:00", "Tue 01-13 02:00"]


def test_monthly_fires_on_the_last_day_of_a_month_that_is_too_short() -> None:
    shown = first(Frequency.MONTHLY, {"day": 30, "hour": 5}, count=4)
    assert shown == ["Fri 01-30 05:00", "Sat 02-28 05:00", "Mon 03-30 05:00", "Thu 04-30 05:00"]


@pytest.mark.parametrize(
    ("frequency", "expression"),
    [
        (Frequency.HOURLY, "0 * * * *"),
        (Frequency.DAILY, "0 0 * * *"),
        (Frequency.WEEKLY, "0 0 * * MON"),
        (Frequency.MONTHLY, "0 0 1 * *"),
    ],
)
@pytest.mark.parametrize("nothing", [None, {}])
def test_what_is_left_out_is_the_beginning(
    frequency: Frequency, expression: str, nothing: dict[str, int] | None
) -> None:
    expected = between(cron(expression, "Europe/Berlin"), NEW_YEAR, NEW_YEAR + YEAR, 400)
    assert between(calendar(frequency, nothing, "Europe/Berlin"), NEW_YEAR, NEW_YEAR + YEAR, 400) == expected


@pytest.mark.spec("G1")
@settings(max_examples=40, deadline=None)
@given(ZONES, st.integers(0, 23), st.integers(0, 59), st.sampled_from(["MON", "SUN", "*"]))
def test_clocks_change_for_calendar_and_cron_alike(zone: str, hour: int, minute: int, day: str) -> None:
    """Once a day at a time that is jumped over or shown twice, by the one rule there is."""
    config: dict[str, Any] = {"hour": hour, "minute": minute}
    if day == "*":
        trigger = calendar(Frequency.DAILY, config, zone)
    else:
        trigger = calendar(Frequency.WEEKLY, config | {"day": day}, zone)
    expected = between(cron(f"{minute} {hour} * * {day}", zone), NEW_YEAR, NEW_YEAR + YEAR, 400)
    assert between(trigger, NEW_YEAR, NEW_YEAR + YEAR, 400) == expected


@pytest.mark.spec("G1")
@settings(max_examples=40, deadline=None)
@given(ZONES, st.integers(1, 31), st.integers(4, 22))
def test_monthly_fires_exactly_once_a_month(zone: str, day: int, hour: int) -> None:
    trigger = calendar(Frequency.MONTHLY, {"day": day, "hour": hour}, zone)
    start = datetime(2023, 12, 31, 23, 59, 59, tzinfo=ZoneInfo(zone)).astimezone(UTC)
    dates = [at.astimezone(ZoneInfo(zone)) for at in between(trigger, start, start + 10 * YEAR, 60)]

    assert [(at.year, at.month) for at in dates] == [(2024 + n // 12, n % 12 + 1) for n in range(60)]
    assert all(at.hour == hour and at.day == min(day, monthrange(at.year, at.month)[1]) for at in dates)


@pytest.mark.parametrize(
    ("frequency", "config", "message", "hint"),
    [
        (Frequency.DAILY, {"hour": 24}, "time_config: hour is 24", "hour is a whole number from 0 to 23"),
        (Frequency.DAILY, {"hour": "2"}, "time_config: hour is '2'", "whole number"),
        (Frequency.DAILY, {"hour": 2.5}, "time_config: hour is 2.5", "whole number"),
        (Frequency.DAILY, {"hour": None}, "time_config: hour is None", "whole number"),
        (Frequency.HOURLY, {"minute": True}, "time_config: minute is True", "from 0 to 59"),
        (Frequency.HOURLY, {"minute": -1}, "time_config: minute is -1", "from 0 to 59"),
        (Frequency.HOURLY, {"hour": 2}, "time_config for hourly has no key 'hour'", "hourly takes minute"),
        (Frequency.DAILY, {"day": "monday"}, "time_config for daily has no key 'day'", "takes hour, minute"),
        (Frequency.WEEKLY, {"day": "mo"}, "time_config: day is 'mo'", "one of monday, tuesday"),
        (Frequency.WEEKLY, {"day": 0}, "time_config: day is 0", "one of monday, tuesday"),
        (Frequency.MONTHLY, {"day": 0}, "time_config: day is 0", "from 1 to 31"),
        (Frequency.MONTHLY, {"day": "monday"}, "time_config: day is 'monday'", "from 1 to 31"),
        (Frequency.DAILY, [2, 30], "time_config is [2, 30], not an object", "takes hour, minute"),
        (Frequency.DAILY, {"x" * 900: 1}, "has no key 'xxx", "takes hour, minute"),
    ],
)
def test_a_wrong_time_is_refused_by_key_value_and_what_is_allowed(
    frequency: Frequency, config: Any, message: str, hint: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        calendar(frequency, config, "UTC")
    assert message in str(refused.value)
    assert hint in refused.value.hint
    assert len(str(refused.value)) < 120


def test_an_unknown_zone_is_refused() -> None:
    with pytest.raises(InvalidInput, match="unknown time zone 'Mars/Olympus'"):
        calendar(Frequency.DAILY, None, "Mars/Olympus")
