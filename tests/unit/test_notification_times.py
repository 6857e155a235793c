"""When people are notified of matches: decided without a clock or a database."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from floodmark.errors import InvalidInput
from floodmark.rules.backfill import Existed, existed_before, is_backfill
from floodmark.rules.notification_times import (
    NotificationTimes,
    Threshold,
    parse_quiet,
    parse_threshold,
    reach_threshold,
)

pytestmark = pytest.mark.spec("B8")

BERLIN, UTC_ZONE, KOLKATA = ZoneInfo("Europe/Berlin"), ZoneInfo("UTC"), ZoneInfo("Asia/Kolkata")
NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
SECOND, MINUTE, HOUR, DAY = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[misc, arg-type] # the parts of a date


def test_a_match_is_due_at_once() -> None:
    assert NotificationTimes(zone=UTC_ZONE).due_at(NOON) == NOON
    assert NotificationTimes(zone=UTC_ZONE).due_at(NOON, NOON - SECOND) == NOON


def test_a_digest_is_due_at_the_end_of_its_hour_or_day_in_the_zone() -> None:
    hourly, daily = (NotificationTimes(zone=KOLKATA, digest=digest) for digest in ("hourly", "daily"))
    # 17:30 in Kolkata
    assert hourly.due_at(NOON) == NOON + 30 * MINUTE
    assert hourly.due_at(NOON + 30 * MINUTE) == NOON + 90 * MINUTE
    assert daily.due_at(NOON) == utc(2026, 6, 1, 18, 30)
    assert NotificationTimes(zone=BERLIN, digest="daily").due_at(NOON) == utc(2026, 6, 1, 22)


def test_a_day_of_23_hours_has_one_digest() -> None:
    """Berlin, 29 March 2026: 02:00 is 03:00."""
    daily = NotificationTimes(zone=BERLIN, digest="daily")
    assert daily.due_at(utc(2026, 3, 28, 23)) == utc(2026, 3, 29, 22)
    hourly = NotificationTimes(zone=BERLIN, digest="hourly")
    assert hourly.due_at(utc(2026, 3, 29, 0, 30)) == utc(2026, 3, 29, 1)


def test_in_quiet_hours_a_message_waits_for_their_end() -> None:
    times = NotificationTimes(zone=BERLIN, quiet=parse_quiet("22:00-07:00"))
    assert times.due_at(utc(2026, 6, 1, 19, 59)) == utc(2026, 6, 1, 19, 59)
    assert times.due_at(utc(2026, 6, 1, 20)) == utc(2026, 6, 2, 5)
    assert times.due_at(utc(2026, 6, 2, 4, 59, 59)) == utc(2026, 6, 2, 5)
    assert times.due_at(utc(2026, 6, 2, 5)) == utc(2026, 6, 2, 5)
    digest = NotificationTimes(zone=BERLIN, digest="daily", quiet=parse_quiet("22:00-07:00"))
    assert digest.due_at(NOON) == utc(2026, 6, 2, 5), "the day ends in quiet hours"


def test_after_a_message_there_is_none_for_the_cooldown() -> None:
    times = NotificationTimes(zone=UTC_ZONE, cooldown=30 * MINUTE, quiet=parse_quiet("12:20-13:00"))
    assert times.due_at(NOON, NOON - 20 * MINUTE) == NOON + 10 * MINUTE
    assert times.due_at(NOON, NOON - 5 * MINUTE) == NOON + HOUR, "the cooldown ends in quiet hours"


@given(
    st.integers(0, 3 * 365 * 24 * 60).map(lambda minute: utc(2025, 1, 1) + minute * MINUTE),
    st.sampled_from([None, "hourly", "daily"]),
    st.sampled_from([None, "22:00-07:00", "02:10-02:40", "00:00-23:59"]),
    st.sampled_from(["UTC", "Europe/Berlin", "Australia/Lord_Howe", "America/Santiago", "Asia/Kolkata"]),
)
def test_a_message_is_never_due_before_its_match_nor_in_quiet_hours(
    at: datetime, digest: str | None, quiet: str | None, zone: str
) -> None:
    hours = None if quiet is None else parse_quiet(quiet)
    times = NotificationTimes(zone=ZoneInfo(zone), digest=digest, quiet=hours, cooldown=HOUR)  # type: ignore[arg-type]
    due = times.due_at(at)
    local = due.astimezone(times.zone)
    assert at <= due <= at + 2 * DAY + HOUR
    # A time inside a gap is reached at the first minute after it.
    assert hours is None or not hours.includes(local.hour * 60 + local.minute)


def test_quiet_hours_that_the_clocks_show_twice_end_twice() -> None:
    """Berlin, 25 October 2026: after 02:59 comes 02:00."""
    times = NotificationTimes(zone=BERLIN, quiet=parse_quiet("02:10-02:40"))
    assert times.due_at(utc(2026, 10, 25, 0, 20)) == utc(2026, 10, 25, 0, 40)
    assert times.due_at(utc(2026, 10, 25, 1, 20)) == utc(2026, 10, 25, 1, 40)


def test_enough_matches_within_the_time_are_reported_and_counting_starts_again() -> None:
    three = Threshold(3, 10 * MINUTE)
    times = [NOON + minutes * MINUTE for minutes in (0, 9, 11, 12, 13, 14, 15, 30)]
    reached = reach_threshold(three, [], times)
    # 9, 11 and 12 are enough; then 13, 14 and 15.
    assert reached.new == [False, True, True, True, True, True, True, False]
    assert reached.times == 2
    assert reach_threshold(three, times[:1], times[1:]).earlier == [False]
    assert reach_threshold(three, times[1:3], times[3:4]).earlier == [True, True]


@given(st.lists(st.integers(0, 200), max_size=40), st.integers(0, 40), st.integers(2, 5), st.integers(1, 60))
def test_it_does_not_matter_where_matches_are_divided(minutes: list[int], place: int, count: int, within: int) -> None:
    """As after a crash between two batches."""
    times = [NOON + minute * MINUTE for minute in sorted(minutes)]
    threshold = Threshold(count, within * MINUTE)
    whole = reach_threshold(threshold, [], times)
    first = reach_threshold(threshold, [], times[:place])
    unreported = [at for at, is_reported in zip(times, first.new, strict=False) if not is_reported]
    second = reach_threshold(threshold, unreported, times[place:])
    assert first.times + second.times == whole.times
    later = iter(second.earlier)
    assert [one or next(later) for one in first.new] + second.new == whole.new


@pytest.mark.parametrize("text", ["22:00", "22-07", "25:00-07:00", "22:60-07:00", "07:00-07:00", "00:00-24:00", ""])
def test_quiet_hours_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="is not a part of a day"):
        parse_quiet(text)


def test_quiet_hours_are_shown_as_they_are_written() -> None:
    assert [str(parse_quiet(text)) for text in ("22:00-07:00", "9:05 - 10:00", "20:00-24:00")] == [
        "22:00-07:00",
        "09:05-10:00",
        "20:00-00:00",
    ]


@pytest.mark.parametrize("text", ["20", "20 per 10m", "1 in 10m", "2000 in 10m", "20 in 8d", "20 in never", "x in 1m"])
def test_thresholds_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        parse_threshold(text)


def test_a_threshold_is_read_as_it_is_said() -> None:
    assert parse_threshold("20 in 10m") == Threshold(20, 10 * MINUTE)
    assert parse_threshold(" 5  in 1h30m ") == Threshold(5, 90 * MINUTE)


@pytest.mark.parametrize(
    ("existed", "age", "revision", "expected"),
    [
        ("first_run", timedelta(), 1, True),
        ("first_run", timedelta(), 2, True),
        ("last_run", DAY + SECOND, 1, True),
        ("last_run", DAY, 1, False),
        ("last_run", 7 * DAY, 2, False),
        (None, 7 * DAY, 1, False),
    ],
)
def test_old_items_that_come_late_are_backfill(
    existed: Existed | None, age: timedelta, revision: int, expected: bool
) -> None:
    found = is_backfill(existed, revision=revision, occurred_at=NOON - age, collected_at=NOON, max_age=DAY)
    assert found == expected


def test_an_item_of_the_time_since_the_last_run_is_new_after_any_outage() -> None:
    week_ago = NOON - 7 * DAY
    assert existed_before(NOON - 6 * DAY, week_ago, began=NOON) is None
    assert existed_before(NOON - 8 * DAY, week_ago, began=NOON) == "last_run"
    assert existed_before(None, week_ago, began=NOON) is None
    assert existed_before(None, None, began=NOON) == "first_run"
    assert existed_before(NOON - SECOND, None, began=NOON) == "first_run"
    assert existed_before(NOON, None, began=NOON) is None
