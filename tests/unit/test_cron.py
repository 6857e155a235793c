"""Cron: what an expression means, above all when the clocks change."""

from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from functools import cache
from itertools import takewhile
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import example, given, settings
from hypothesis import strategies as st

from floodmark.errors import InvalidInput
from floodmark.triggers import Trigger, between
from floodmark.triggers.cron import cron

MINUTE, DAY, TICK = timedelta(minutes=1), timedelta(days=1), timedelta(microseconds=1)

# Days on which clocks changed, and some on which they did not.
CHANGES = [
    ("Europe/Berlin", date(2026, 3, 29)),
    ("Europe/Berlin", date(2026, 10, 25)),
    ("America/New_York", date(2026, 3, 8)),
    ("America/New_York", date(2026, 11, 1)),
    ("Australia/Lord_Howe", date(2026, 4, 5)),  # by half an hour
    ("Australia/Lord_Howe", date(2026, 10, 4)),
    ("America/Sao_Paulo", date(2018, 2, 18)),  # at midnight
    ("America/Sao_Paulo", date(2018, 11, 4)),
    ("Africa/Casablanca", date(2026, 2, 15)),  # around Ramadan
    ("Africa/Casablanca", date(2026, 3, 22)),
    ("Asia/Kathmandu", date(1986, 1, 1)),  # by a quarter of an hour, once and for all
    ("Pacific/Apia", date(2011, 12, 30)),  # a day that never was
    ("America/Santiago", date(2026, 4, 5)),
    ("America/Santiago", date(2026, 9, 6)),
    ("Antarctica/Troll", date(2026, 3, 29)),  # by two hours
    ("Antarctica/Troll", date(2026, 10, 25)),
    ("America/St_Johns", date(2010, 11, 7)),  # at one minute past midnight, back into the day before
    ("Antarctica/Casey", date(2010, 3, 5)),  # by three hours, back into the day before
    ("UTC", date(2024, 2, 29)),
    ("UTC", date(2026, 1, 1)),
]


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[arg-type,misc]


def local(trigger: Trigger, zone: str, after: datetime, limit: int) -> list[str]:
    """The next instants as the clocks of the zone show them."""
    found = between(trigger, after, after + 400 * DAY, limit)
    return [f"{at.astimezone(ZoneInfo(zone)):%m-%d %H:%M%z}" for at in found]


class Reading:
    """A second, independent reading of cron: every minute is looked at, nothing is clever.

    One oddity of cronsim is kept: a range of one with a step, `5-5/10`, is read like `5/10`.
    """

    MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
    DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")

    def __init__(self, expression: str) -> None:
        minute, hour, day, month, weekday = expression.lower().split()
        self.minutes, self.hours = self.values(minute, 0, 59), self.values(hour, 0, 23)
        self.days, self.months = self.values(day, 1, 31), self.values(month, 1, 12, self.MONTHS)
        self.weekdays = {number % 7 for number in self.values(weekday, 0, 7, self.DAYS)}
        self.both_days = day[0] == "*" or weekday[0] == "*"
        self.repeats = minute[0] == "*" or hour[0] == "*"

    @staticmethod
    def values(field: str, low: int, high: int, names: tuple[str, ...] = ()) -> set[int]:
        def number(text: str) -> int:
            return names.index(text) + low if text in names else int(text)

        found: set[int] = set()
        for term in field.split(","):
            span, _, step = term.partition("/")
            first, _, last = span.partition("-")
            start = low if first == "*" else number(first)
            end = number(last) if last else high if first == "*" else start
            if step and start == end:
                end = high
            found.update(range(start, end + 1, int(step or 1)))
        return found

    def matches(self, wall: datetime) -> bool:
        in_days, in_weekdays = wall.day in self.days, wall.isoweekday() % 7 in self.weekdays
        is_day = (in_days and in_weekdays) if self.both_days else (in_days or in_weekdays)
        return wall.minute in self.minutes and wall.hour in self.hours and wall.month in self.months and is_day

    def fires(self, before: datetime, wall: datetime) -> bool:
        """Whether it fires when the clocks show `wall`, and `before` is the latest they had shown until then."""
        if self.repeats:
            return self.matches(wall)
        # Fixed times: all that the clocks jumped over is made up for at once, what they repeat has been.
        jumped = (before + MINUTE * n for n in range(1, (wall - before) // MINUTE + 1))
        return any(map(self.matches, jumped))


@cache
def shown(zone: str, day: date) -> list[tuple[datetime, datetime, datetime]]:
    """Every minute around `day`: the instant, what the clocks had shown at most before it, what they show."""
    clock, start = ZoneInfo(zone), datetime(day.year, day.month, day.day, tzinfo=UTC) - 3 * DAY
    minutes, latest = [], (start - MINUTE).astimezone(clock).replace(tzinfo=None)
    for n in range(4 * 24 * 60):
        wall = (start + n * MINUTE).astimezone(clock).replace(tzinfo=None)
        minutes.append((start + n * MINUTE, latest, wall))
        latest = max(latest, wall)
    # The first days only teach `latest` what has been shown already.
    return minutes[60 * 60 :]


def expected(expression: str, zone: str, day: date) -> list[datetime]:
    reading = Reading(expression)
    return [at for at, before, wall in shown(zone, day) if reading.fires(before, wall)]


def number_in(low: int, high: int, names: tuple[str, ...] = ()) -> st.SearchStrategy[str]:
    numbers = st.integers(low, high).map(str)
    return numbers | st.sampled_from(names).map(str.upper) if names else numbers


def field(low: int, high: int, names: tuple[str, ...] = ()) -> st.SearchStrategy[str]:
    one = number_in(low, high, names)
    span = (
        st.tuples(st.integers(low, high), st.integers(low, high)).map(sorted).map(lambda ends: f"{ends[0]}-{ends[1]}")
    )
    step = st.builds("{}/{}".format, st.just("*") | span | number_in(low, high), st.integers(1, high + 2))
    return st.just("*") | one | span | step | st.lists(one | span | step, min_size=2, max_size=3).map(",".join)


# Clocks change at night, so that is when most expressions should fire.
HOURS = st.sampled_from(["*", "0", "1", "2", "3", "0-3", "1,2", "*/2", "*/3", "23", "22-23", "2/7"]) | field(0, 23)
DAYS = st.just("*") | field(1, 31)
MONTHS = st.just("*") | field(1, 12, Reading.MONTHS)
WEEKDAYS = st.just("*") | field(0, 7, Reading.DAYS)
EXPRESSIONS = st.tuples(field(0, 59), HOURS, DAYS, MONTHS, WEEKDAYS).map(" ".join)


def readable(expression: str, zone: str) -> Trigger | None:
    """The trigger; None if the expression never fires. Anything else is a mistake of the test."""
    try:
        return cron(expression, zone)
    except InvalidInput as refused:
        if "never fires" not in str(refused):
            raise
        return None


@pytest.mark.spec("V1", "G1")
@settings(max_examples=60, deadline=None)
@given(EXPRESSIONS, st.sampled_from(CHANGES), st.integers(0, 35 * 3_600_000))
@example("0 */2 * * *", ("Australia/Lord_Howe", date(2026, 4, 5)), 0)
@example("* 0 * * SUN", ("America/St_Johns", date(2010, 11, 7)), 0)
@example("30 12 30 12 *", ("Pacific/Apia", date(2011, 12, 30)), 0)
@example("0,15,30,45 1-3 * * *", ("Antarctica/Troll", date(2026, 10, 25)), 0)
def test_no_instant_is_lost_or_doubled_when_the_clocks_change(
    expression: str, change: tuple[str, date], milliseconds: int
) -> None:
    """Forwards, backwards and from anywhere in between, the instants are those of the plain reading."""
    zone, day = change
    instants = expected(expression, zone, day)
    trigger = readable(expression, zone)
    if trigger is None:
        assert not instants
        return
    start, end = shown(zone, day)[0][0], shown(zone, day)[-1][0]

    assert between(trigger, start - TICK, end, 100_000) == instants
    assert backwards(trigger, start, end) == instants

    somewhere = start + timedelta(milliseconds=milliseconds)
    later, earlier = trigger.after(somewhere), trigger.latest(somewhere)
    assert (later if later and later <= end else None) == next((at for at in instants if at > somewhere), None)
    assert (earlier if earlier and earlier >= start else None) == next(
        (at for at in reversed(instants) if at <= somewhere), None
    )


def backwards(trigger: Trigger, start: datetime, end: datetime) -> list[datetime]:
    found: list[datetime] = []
    while (latest := trigger.latest(found[-1] - TICK if found else end)) and latest >= start:
        found.append(latest)
    return found[::-1]


@pytest.mark.spec("V1", "G1")
@settings(max_examples=60, deadline=None)
@given(
    EXPRESSIONS,
    st.sampled_from([change for change in CHANGES if change[0] in ("Europe/Berlin", "America/New_York", "UTC")]),
)
def test_cronsim_walks_the_same_instants_where_clocks_shift_by_an_hour(
    expression: str, change: tuple[str, date]
) -> None:
    """Our walk exists for the zones where cronsim 2.8 loses its way; elsewhere both must agree.

    The exceptions, found by the property above: after a shift of half an hour cronsim goes on in whole hours
    beside the grid and loses instants of `0 */2 * * *` or `*/15 23 * * *` (Lord Howe, Kathmandu 1986), and when
    the clocks go back across midnight it goes round in circles (St John's until 2011). Its reverse walk has the
    same gaps at other instants.
    """
    zone, day = change
    trigger = readable(expression, zone)
    if trigger is None:
        return
    start, end = shown(zone, day)[0][0], shown(zone, day)[-1][0]
    walk = CronSim(expression, (start - MINUTE).astimezone(ZoneInfo(zone)))

    assert between(trigger, start - TICK, end, 100_000) == [
        at.astimezone(UTC) for at in takewhile(lambda at: at.astimezone(UTC) <= end, walk)
    ]


@pytest.mark.spec("V1")
def test_a_time_the_clocks_jump_over_fires_once_at_the_next_valid_minute() -> None:
    trigger = cron("30 2 * * *", "Europe/Berlin")
    assert local(trigger, "Europe/Berlin", utc(2026, 3, 28, 12), 2) == ["03-29 03:00+0200", "03-30 02:30+0200"]


@pytest.mark.spec("V1", "G1")
def test_several_times_the_clocks_jump_over_are_one_instant() -> None:
    trigger = cron("0,20,40 2 * * *", "Europe/Berlin")
    assert local(trigger, "Europe/Berlin", utc(2026, 3, 28, 12), 2) == ["03-29 03:00+0200", "03-30 02:00+0200"]


@pytest.mark.spec("V1", "G1")
def test_a_time_shown_twice_fires_once() -> None:
    trigger = cron("30 2 * * *", "Europe/Berlin")
    assert local(trigger, "Europe/Berlin", utc(2026, 10, 24, 12), 2) == ["10-25 02:30+0200", "10-26 02:30+0100"]


@pytest.mark.spec("V1")
def test_every_hour_means_every_hour_that_passes() -> None:
    trigger = cron("0 * * * *", "Europe/Berlin")
    assert between(trigger, utc(2026, 10, 24), utc(2026, 10, 26), 100) == [
        utc(2026, 10, 24) + n * timedelta(hours=1) for n in range(1, 49)
    ]


@pytest.mark.spec("V1", "G1")
def test_half_hour_shifts_lose_no_instant() -> None:
    """cronsim 2.8 by itself goes from 00:00 to 04:00 here."""
    trigger = cron("0 */2 * * *", "Australia/Lord_Howe")
    shown_times = local(trigger, "Australia/Lord_Howe", utc(2026, 4, 4, 12), 3)
    assert shown_times == ["04-05 00:00+1100", "04-05 02:00+1030", "04-05 04:00+1030"]


@pytest.mark.spec("V1", "G1")
def test_the_second_showing_of_a_fixed_time_is_not_the_next_instant() -> None:
    """Asked between the two showings of 02:30, the answer is tomorrow: time does not go back."""
    trigger = cron("30 2 * * *", "Europe/Berlin")
    second_pass = utc(2026, 10, 25, 1, 10)
    assert trigger.after(second_pass) == utc(2026, 10, 26, 1, 30)
    assert trigger.latest(second_pass) == utc(2026, 10, 25, 0, 30)


@pytest.mark.spec("V1")
def test_a_day_that_never_was_fires_when_the_next_begins() -> None:
    trigger = cron("0 12 * * *", "Pacific/Apia")
    shown_times = local(trigger, "Pacific/Apia", utc(2011, 12, 29, 12), 3)
    assert shown_times == ["12-29 12:00-1000", "12-31 00:00+1400", "12-31 12:00+1400"]


@pytest.mark.spec("V1")
@pytest.mark.parametrize(
    ("expression", "first"),
    [
        ("0 0 13 * 5", utc(2026, 1, 2)),  # the 13th or a Friday
        ("0 0 */2 * 5", utc(2026, 1, 9)),  # a star in front: an odd day that is a Friday
        ("0 0 L * *", utc(2026, 1, 31)),
        ("0 0 LW 2 *", utc(2026, 2, 27)),
        ("0 0 * * 5L", utc(2026, 1, 30)),
        ("0 0 * * MON#2", utc(2026, 1, 12)),
        ("0 0 29 feb *", utc(2028, 2, 29)),
        ("0 0 * 2 MON#5", utc(2044, 2, 29)),
        ("59 23 31 12 7", utc(2026, 12, 6, 23, 59)),
        (" 5/20  0 * * * ", utc(2026, 1, 1, 0, 5)),
    ],
)
def test_days_are_read_as_cron_reads_them(expression: str, first: datetime) -> None:
    assert cron(expression, "UTC").after(utc(2026, 1, 1)) == first


@pytest.mark.spec("V1")
@pytest.mark.parametrize(
    ("alias", "expression"),
    [
        ("@hourly", "0 * * * *"),
        ("@daily", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        ("@Weekly", "0 0 * * 0"),
        ("@monthly", "0 0 1 * *"),
        ("@yearly", "0 0 1 1 *"),
        ("@annually", "0 0 1 1 *"),
    ],
)
def test_an_alias_stands_for_its_expression(alias: str, expression: str) -> None:
    start = utc(2026, 3, 3, 3, 3)
    assert between(cron(alias, "Asia/Tokyo"), start, start + 1000 * DAY, 5) == between(
        cron(expression, "Asia/Tokyo"), start, start + 1000 * DAY, 5
    )


@pytest.mark.spec("V1")
@pytest.mark.parametrize(
    ("expression", "message", "hint"),
    [
        ("0 0 * * * *", "has 6 fields: seconds are not supported", "'0 * * * *'"),
        ("* * * *", "has 4 fields instead of 5", "minute hour day month weekday"),
        ("", "has 0 fields instead of 5", "@daily"),
        ("@reboot", "has 1 fields instead of 5", "@daily"),
        ("61 * * * *", "bad minute '61'", "0-59"),
        ("* 24 * * *", "bad hour '24'", "0-23"),
        ("* * 0 * *", "bad day of month '0'", "1-31"),
        ("* * * 13 *", "bad month '13'", "JAN-DEC"),
        ("* * * * FRI-MON", "bad day of week 'FRI-MON'", "SUN-SAT"),
        ("*/0 * * * *", "bad minute '*/0'", "0-59"),
        ("0 0 31 2 *", "never fires", "L is the last day"),
        ("0 0 31 4,6,9,11 *", "never fires", "L is the last day"),
        ("0 0 */31 * MON#5", "never fires", "its days never come"),
        ("1," * 150 + "1 * * * *", "of 309 characters is too long", "200"),
    ],
)
def test_what_cannot_fire_is_refused_with_a_way_out(expression: str, message: str, hint: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        cron(expression, "UTC")
    assert message in str(refused.value)
    assert hint in refused.value.hint


@pytest.mark.spec("V1")
@settings(max_examples=200, deadline=None)
@given(st.text(st.sampled_from("0123456789*/-,#LW MONJANßé²\x00@"), max_size=40) | st.text(max_size=20))
def test_any_text_is_either_read_or_refused(text: str) -> None:
    with suppress(InvalidInput):
        cron(text, "Europe/Berlin")


@pytest.mark.spec("V1")
@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("Europe/Berln", "Europe/Berlin"),
        ("europe/berlin", "Europe/Berlin"),
        ("new york", "America/New_York"),
        ("Kathmandu", "Asia/Kathmandu"),
        ("localtime", ""),
        ("../../etc/passwd", "IANA"),
        ("", "IANA"),
    ],
)
def test_an_unknown_zone_is_refused_with_those_that_come_close(name: str, hint: str) -> None:
    with pytest.raises(InvalidInput, match="unknown time zone") as refused:
        cron("0 0 * * *", name)
    assert hint in refused.value.hint


@pytest.mark.spec("V1")
def test_the_same_expression_is_read_once() -> None:
    assert cron("7 7 * * *", "Asia/Tokyo") is cron("7 7 * * *", "Asia/Tokyo")


@pytest.mark.spec("V1")
@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "Pacific/Pago_Pago", "Europe/Amsterdam"])
def test_the_ends_of_the_calendar_are_no_accident(zone: str) -> None:
    trigger, first, last = cron("* * * * *", zone), datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
    beginning, end = trigger.after(first), trigger.latest(last)
    assert beginning is not None
    assert end is not None
    assert trigger.latest(beginning - TICK) is None
    assert trigger.latest(first) is None
    assert trigger.after(end) is None
    assert trigger.after(last) is None
