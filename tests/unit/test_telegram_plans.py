from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from floodmark.errors import Permanent
from floodmark.sources.telegram.plans import (
    ChannelMark,
    ReadingPlan,
    ReadingRules,
    UnfinishedRun,
    encode_mark,
    is_revisit_due,
    parse_mark,
    plan_reading,
)
from floodmark.sources.telegram.targets import TelegramParams, parse_params

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
DAY = timedelta(hours=24)
COLLECTED = ChannelMark(id=4812, channel=1000001, date=NOW - timedelta(minutes=10))


def planned(
    mark: ChannelMark = COLLECTED,
    *,
    params: TelegramParams = TelegramParams(),  # noqa: B008 - frozen
    rules: ReadingRules = ReadingRules(),  # noqa: B008 - frozen
    checked: timedelta | None = timedelta(minutes=5),
) -> ReadingPlan:
    return plan_reading(mark, params, rules, last_checked_at=None if checked is None else NOW - checked, now=NOW)


@pytest.mark.spec("T2")
def test_a_channel_never_collected_is_read_historically_from_its_window() -> None:
    assert planned(ChannelMark(), checked=None) == ReadingPlan(mode="historical", newest=1000)
    assert planned(ChannelMark(), params=TelegramParams(history=50), checked=None) == ReadingPlan(
        mode="historical", newest=50
    )
    assert planned(ChannelMark(), params=TelegramParams(history=None), checked=None) == ReadingPlan(
        mode="historical", after=0
    )
    since = NOW - timedelta(days=90)
    assert planned(ChannelMark(), params=TelegramParams(since=since), checked=None) == ReadingPlan(
        mode="historical", since=since
    )


@pytest.mark.spec("T2")
def test_a_channel_checked_of_late_is_read_incrementally() -> None:
    assert planned() == ReadingPlan(mode="incremental", after=4812)
    assert planned(checked=DAY) == ReadingPlan(mode="incremental", after=4812)


@pytest.mark.spec("T2")
def test_a_quiet_channel_that_is_checked_is_not_stale() -> None:
    quiet = ChannelMark(id=4812, channel=1000001, date=NOW - timedelta(days=300))
    assert planned(quiet) == ReadingPlan(mode="incremental", after=4812)


@pytest.mark.spec("T2")
def test_a_channel_not_checked_for_long_is_read_historically_without_a_gap() -> None:
    stale = DAY + timedelta(seconds=1)
    old = ChannelMark(id=4812, channel=1000001, date=NOW - timedelta(days=3))
    assert planned(old, checked=stale) == ReadingPlan(mode="historical", forced="stale_lpa", after=4812)
    # Its newest post is within the window: whichever of the two is older.
    assert planned(checked=stale) == ReadingPlan(mode="historical", forced="stale_lpa", after=4812, since=NOW - DAY)


@pytest.mark.spec("T2")
def test_the_age_can_be_set() -> None:
    assert planned(rules=ReadingRules(max_age=timedelta(hours=1)), checked=timedelta(hours=2)).forced == "stale_lpa"


@pytest.mark.spec("T2")
def test_the_mode_can_be_forced() -> None:
    forced = planned(rules=ReadingRules(override="historical"))
    assert forced == ReadingPlan(mode="historical", forced="override", after=4812, since=NOW - DAY)
    assert planned(rules=ReadingRules(override="incremental"), checked=3 * DAY) == ReadingPlan(
        mode="incremental", forced="override", after=4812
    )
    # There is nothing to go on from: the window it is.
    assert planned(ChannelMark(), rules=ReadingRules(override="incremental")).newest == 1000


@pytest.mark.spec("T11")
def test_without_the_feature_the_last_day_is_read_and_no_gap_is_left() -> None:
    off = ReadingRules(is_incremental=False, max_age=timedelta(hours=99))
    assert planned(rules=off) == ReadingPlan(mode="historical", forced="feature_off", after=4812, since=NOW - DAY)
    assert planned(ChannelMark(), rules=off) == ReadingPlan(mode="historical", forced="feature_off", since=NOW - DAY)
    old = ChannelMark(id=4812, channel=1000001, date=NOW - timedelta(days=3))
    assert planned(old, rules=off) == ReadingPlan(mode="historical", forced="feature_off", after=4812)


@pytest.mark.spec("T3")
def test_an_interrupted_run_goes_on_where_it_was() -> None:
    run = UnfinishedRun(execution="e", mode="historical", at=3000)
    interrupted = ChannelMark(id=4812, channel=1000001, date=NOW, run=run)
    assert planned(interrupted) == ReadingPlan(mode="historical", after=3000, is_resumed=True)
    assert planned(interrupted, checked=3 * DAY) == ReadingPlan(mode="historical", after=3000, is_resumed=True)
    # Someone has decided otherwise meanwhile.
    assert planned(interrupted, rules=ReadingRules(override="incremental")) == ReadingPlan(
        mode="incremental", forced="override", after=4812
    )


def test_a_day_is_read_from_its_beginning_to_its_end() -> None:
    day = parse_params({"day": "2026-05-01"})
    begin, end = datetime(2026, 5, 1, tzinfo=UTC), datetime(2026, 5, 2, tzinfo=UTC)
    assert planned(ChannelMark(), params=day) == ReadingPlan(mode="historical", since=begin, until=end)
    assert planned(ChannelMark(id=7), params=day) == ReadingPlan(mode="historical", after=7, until=end)


@given(
    collected=st.timedeltas(timedelta(), 10 * DAY),
    checked=st.none() | st.timedeltas(timedelta(), 10 * DAY),
    override=st.sampled_from(["auto", "historical", "incremental"]),
    is_on=st.booleans(),
)
def test_no_plan_begins_behind_what_was_collected(
    collected: timedelta, checked: timedelta | None, override: str, is_on: bool
) -> None:
    mark = ChannelMark(id=4812, channel=1000001, date=NOW - collected)
    rules = ReadingRules(override=override, is_incremental=is_on)  # type: ignore[arg-type]  # drawn from its values
    # A plan reads from the oldest of what it names.
    assert planned(mark, rules=rules, checked=checked).after == 4812


def test_a_watermark_comes_back_as_it_was() -> None:
    mark = ChannelMark(
        id=1, channel=2, date=NOW, run=UnfinishedRun(execution="e", mode="incremental", at=1, phase="revisit")
    )
    stored = msgspec.json.decode(msgspec.json.encode(encode_mark(mark)))
    assert parse_mark(stored) == mark
    assert parse_mark(None) == ChannelMark()
    assert parse_mark({"id": 4812}) == ChannelMark(id=4812)


@pytest.mark.parametrize("typed", [{"id": "x"}, {"id": 1, "date": "2026-01-01T00:00:00"}, {"run": 5}])
def test_a_watermark_that_makes_no_sense_is_told(typed: dict[str, object]) -> None:
    with pytest.raises(Permanent) as refused:
        parse_mark(typed)
    assert "floodmark watermark set" in refused.value.hint


def test_posts_are_revisited_now_and_then_and_whenever_a_person_asks() -> None:
    params = parse_params({"revisit": "48h"})
    never, just = ChannelMark(id=1), ChannelMark(id=1, revisited_at=NOW - timedelta(minutes=29))
    assert is_revisit_due(never, params, is_forced=False, now=NOW)
    assert not is_revisit_due(just, params, is_forced=False, now=NOW)
    assert is_revisit_due(just, params, is_forced=True, now=NOW)
    assert is_revisit_due(just, params, is_forced=False, now=NOW + timedelta(minutes=1))
    often = parse_params({"revisit": "48h", "revisit_every": "1m"})
    assert is_revisit_due(just, often, is_forced=False, now=NOW)
    assert not is_revisit_due(never, TelegramParams(), is_forced=True, now=NOW)
