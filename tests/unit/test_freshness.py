"""Adaptive polling: learning from posting times, and deciding when to poll."""

import math
import random
from collections import Counter
from collections.abc import Sequence
from itertools import takewhile

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from floodmark.rules.freshness import (
    Activity,
    Habits,
    Rhythm,
    adjust_price,
    decode_activity,
    encode_activity,
    expect,
    explain_poll,
    first_price,
    gain_of_square_root,
    habits_of,
    interval_of,
    latest_due,
    learn,
    learn_change,
    learn_first,
    level_of,
    next_poll,
    rate_of,
    shape_of_week,
    week_of,
)
from floodmark.rules.replay import AdaptivePolling, ReplayedPoll, Trace, measure_delays, poll_regularly

pytestmark = pytest.mark.spec("T14", "B1")

HOUR, DAY = 3600.0, 86400.0
MONDAY = 4 * DAY
HABITS = Habits(rate=10 / DAY)


def draw_trace(rates: list[float], days: int, *, seed: int = 1) -> Trace:
    """Draw posts at constant rates. The first third is the past."""
    chance, posts = random.Random(seed), []
    for rate in rates:
        at, of_one = 0.0, list[float]()
        while at < days * DAY:
            at += chance.expovariate(rate)
            of_one.append(at)
        posts.append(of_one)
    return Trace(posts, days * DAY / 3, days * DAY)


def polls_of(trace: Trace, rate: float, count: int, *, max_delay: float | None = None) -> list[ReplayedPoll]:
    polls = AdaptivePolling(trace, rate, max_delay=max_delay).polls()
    return [next(polls) for _ in range(count)]


def steady(per_hour: float, days: int = 28) -> Activity:
    """What is known of a source that posts at equal distances."""
    step = HOUR / per_hour
    activity, at = Activity(until=MONDAY, since=MONDAY), MONDAY
    for _ in range(days * 24):
        times = [at + n * step for n in range(1, int(per_hour) + 1)]
        at += HOUR
        activity = learn(activity, Rhythm(activity, HABITS), times, at)
    return activity


# Learning


def test_the_level_is_the_rate_of_the_last_weeks() -> None:
    activity = steady(4)
    assert level_of(activity, HABITS) == pytest.approx(4 / HOUR, rel=0.03)
    for _ in range(14 * 24):
        activity = learn(activity, Rhythm(activity, HABITS), [], activity.until + HOUR)
    # Half of the old observations are forgotten, and the new ones are empty.
    assert level_of(activity, HABITS) < 2.2 / HOUR


def test_a_late_poll_teaches_as_much_as_many_early_ones() -> None:
    times = [MONDAY + n * 600 for n in range(1, 145)]
    often = Activity(until=MONDAY, since=MONDAY)
    for hour in range(1, 25):
        now = MONDAY + hour * HOUR
        often = learn(often, None, [time for time in times if now - HOUR < time <= now], now)
    once = learn(Activity(until=MONDAY, since=MONDAY), None, times, MONDAY + DAY)
    assert level_of(once, HABITS) == pytest.approx(level_of(often, HABITS), rel=0.03)
    assert once.hours == pytest.approx(often.hours)
    assert once.minutes == pytest.approx(often.minutes)


@given(st.lists(st.integers(1, 86400), max_size=40), st.integers(0, 40))
def test_the_pages_of_one_poll_teach_as_much_as_one_page(seconds: list[int], cut: int) -> None:
    """Each page is learned in the transaction that stores it; the order of pages does not matter."""
    before = steady(1, days=2)
    rhythm, times, now = Rhythm(before, HABITS), [before.until + second for second in set(seconds)], before.until + DAY
    whole, newer_first = (
        learn(learn(before, rhythm, first, now), rhythm, then, now)
        for first, then in ((times, []), (times[cut:], times[:cut]))
    )
    for name in Activity.__struct_fields__:
        assert getattr(newer_first, name) == pytest.approx(getattr(whole, name), rel=1e-5)


def test_an_old_item_counts_less() -> None:
    blank, now = Activity(until=MONDAY, since=MONDAY), MONDAY + 28 * DAY
    assert learn(blank, None, [MONDAY], now).items == pytest.approx(0.25)
    assert learn(blank, None, [now], now).items == pytest.approx(1)


def test_an_album_is_one_event() -> None:
    assert learn(Activity(until=MONDAY, since=MONDAY), None, [MONDAY + 60] * 10, MONDAY + 60).items == 1


@pytest.mark.parametrize("per_poll", [0.1, 0.4, 1.5])
def test_a_source_without_times_is_learned_from_its_changes(per_poll: float) -> None:
    """Several changes between two polls look like one; the learned rate is right nevertheless.

    One source is learned to within a third; the mean of several, always the same ones, to within a few percent.
    """
    learned = [_learn_from_changes(per_poll, random.Random(seed)) for seed in range(8)]
    assert sum(learned) / len(learned) == pytest.approx(per_poll / (4 * HOUR), rel=0.15)


def _learn_from_changes(per_poll: float, chance: random.Random) -> float:
    activity, levels = Activity(until=MONDAY, since=MONDAY, is_dated=False), list[float]()
    for _ in range(1500):
        passed = chance.uniform(0.5, 1.5) * 4 * HOUR
        changed = chance.random() < -math.expm1(-per_poll / (4 * HOUR) * passed)
        activity = learn_change(activity, changed, activity.until + passed, HABITS)
        levels.append(level_of(activity, HABITS))
    assert not activity.is_dated
    return sum(levels[500:]) / 1000


def test_a_second_answer_of_one_poll_teaches_nothing() -> None:
    activity = learn_change(Activity(until=MONDAY, since=MONDAY), True, MONDAY + HOUR, HABITS)
    assert activity.items == pytest.approx(1, rel=0.2)
    assert learn_change(activity, True, MONDAY + HOUR, HABITS) == activity


def test_a_source_with_times_after_all_is_learned_from_them() -> None:
    activity = learn_change(Activity(until=MONDAY, since=MONDAY), True, MONDAY + HOUR, HABITS)
    assert not learn(activity, None, [], MONDAY + 2 * HOUR).is_dated
    assert learn(activity, None, [MONDAY + 2 * HOUR], MONDAY + 2 * HOUR).is_dated


def test_a_source_that_posts_at_noon_is_expected_at_noon() -> None:
    activity = Activity(until=MONDAY, since=MONDAY)
    for day in range(28):
        noon = MONDAY + day * DAY + 12 * HOUR
        activity = learn(activity, None, [noon + n * 300 for n in range(12)], MONDAY + (day + 1) * DAY)
    rhythm = Rhythm(activity, HABITS)
    assert rhythm.hours[12] > 10 * rhythm.hours[3]
    assert sum(rhythm.hours) == pytest.approx(168, rel=0.01)
    assert expect(activity, rhythm, activity.until + DAY, HABITS) == pytest.approx(12, rel=0.1)


def test_hours_that_were_not_observed_do_not_make_a_rhythm() -> None:
    """The newest posts of a busy source cover five hours; it may post as much in the others."""
    activity = learn_first([MONDAY + 8 * HOUR + n * 180 for n in range(100)], MONDAY + 13 * HOUR)
    rhythm = Rhythm(activity, HABITS)
    assert max(rhythm.hours) < 1.5
    assert min(rhythm.hours) > 0.5


def test_chance_does_not_make_a_rhythm() -> None:
    """Random posts at a constant rate leave the hours of the week nearly equal."""
    chance, activity = random.Random(3), Activity(until=MONDAY, since=MONDAY)
    for _ in range(28):
        times = [activity.until + chance.random() * DAY for _ in range(10)]
        activity = learn(activity, None, times, activity.until + DAY)
    rhythm = Rhythm(activity, HABITS)
    assert max(rhythm.hours) < 2
    assert min(rhythm.hours) > 0.5


def test_one_poll_teaches_a_bounded_number_of_items() -> None:
    flood = learn(Activity(until=MONDAY, since=MONDAY), None, [MONDAY + n for n in range(5000)], MONDAY + DAY)
    assert sum(flood.hours) == pytest.approx(200, rel=0.01)
    assert flood.items <= 200


def test_items_of_the_future_count_as_now() -> None:
    activity = learn(Activity(until=MONDAY, since=MONDAY), None, [MONDAY + 30 * DAY], MONDAY + HOUR)
    assert activity.items == 1
    assert activity.until == MONDAY + HOUR
    assert activity.hours[1] > 0


def test_old_counts_keep_their_meaning_after_years() -> None:
    activity = Activity(until=MONDAY, since=MONDAY)
    for week in range(1, 200):
        now = MONDAY + week * 7 * DAY
        activity = learn(activity, None, [now - 3 * DAY, now - 4 * DAY], now)
    assert max(activity.hours) < 2.0**22
    assert level_of(activity, HABITS) == pytest.approx(2 / (7 * DAY), rel=0.25)


def test_the_newest_posts_teach_before_the_second_poll() -> None:
    known = learn_first([MONDAY + n * HOUR for n in range(100)], MONDAY + 100 * HOUR)
    assert level_of(known, HABITS) == pytest.approx(1 / HOUR, rel=0.1)
    unknown = learn_first([], MONDAY)
    assert level_of(unknown, HABITS) == pytest.approx(5 / DAY)


def test_a_source_that_just_posted_a_lot_is_polled_sooner() -> None:
    calm = steady(2)
    now = calm.until + HOUR
    rhythm = Rhythm(calm, HABITS)
    as_usual, much = (learn(calm, rhythm, [now - 60 * n for n in range(count)], now) for count in (2, 20))
    due = [next_poll(known, rhythm, HABITS, price=1000, latest=DAY) for known in (as_usual, much)]
    assert due[1] < due[0]


# Deciding


@given(st.floats(0.1, 30), st.floats(10, 1e5), st.floats(0.1, 10))
def test_a_poll_is_due_when_the_delay_reaches_the_price(per_hour: float, price: float, weight: float) -> None:
    """For a constant rate A is rate * t^2 / 2, so the time follows from the price."""
    rate = per_hour / HOUR
    activity = Activity(until=MONDAY, since=MONDAY, items=rate * 1e9, seconds=1e9)
    rhythm = Rhythm(activity, HABITS)
    due = next_poll(activity, rhythm, HABITS, price=price, latest=1e9, weight=weight) - MONDAY
    level = level_of(activity, HABITS)
    assert due == pytest.approx(math.sqrt(2 * price * level**0.25 / weight / level), rel=0.01, abs=2)


@given(st.floats(0.001, 0.1), st.floats(10, 600), st.floats(0, 0.5))
def test_a_source_without_times_is_polled_as_others_while_few_changes_are_expected(
    per_hour: float, seconds: float, fairness: float
) -> None:
    dated = Activity(until=MONDAY, since=MONDAY, items=per_hour / HOUR * 1e9, seconds=1e9)
    undated = msgspec.structs.replace(dated, is_dated=False)
    level = level_of(dated, HABITS)
    price = level ** (1 - fairness) * seconds**2 / 2
    for known in (dated, undated):
        due = next_poll(known, Rhythm(known, HABITS), HABITS, price=price, latest=DAY, fairness=fairness)
        assert due - MONDAY == pytest.approx(seconds, rel=0.02, abs=0.1)


def test_a_source_that_always_changes_is_not_polled_all_the_time() -> None:
    """It cannot be more different than different: the delay grows by a second per second."""
    activity = Activity(until=MONDAY, since=MONDAY, items=1e9, seconds=1e6, is_dated=False)
    due = next_poll(activity, Rhythm(activity, HABITS), HABITS, price=1800, latest=DAY, fairness=0)
    assert due - MONDAY == pytest.approx(1800, abs=1)


def test_the_numbers_behind_a_decision_are_those_of_the_decision() -> None:
    activity = steady(2)
    rhythm, now = Rhythm(activity, HABITS), activity.until + 1.5 * HOUR
    due = next_poll(activity, rhythm, HABITS, price=50000, latest=DAY)
    forecast = explain_poll(activity, rhythm, HABITS, now=now, price=50000, latest=DAY)
    assert forecast.items == pytest.approx(3, rel=0.1)
    assert forecast.waited == 1.5 * HOUR
    assert forecast.due_in == due - now
    unchanged = msgspec.structs.replace(activity, is_dated=False)
    assert explain_poll(unchanged, rhythm, HABITS, now=now, price=1, latest=DAY).items == pytest.approx(3, rel=0.1)


@given(st.floats(1, 1e6), st.floats(1, 1e6))
def test_no_poll_is_due_after_the_latest_time(price: float, latest: float) -> None:
    activity = steady(1, days=1)
    due = next_poll(activity, Rhythm(activity, HABITS), HABITS, price=price, latest=latest)
    assert activity.until <= due <= activity.until + latest


def test_late_polls_raise_the_price_and_early_ones_lower_it() -> None:
    late, early, hour_late = (
        adjust_price(100, due=due, now=MONDAY, sources=10, rate=0.01) for due in (MONDAY - 9, MONDAY + 9, MONDAY - HOUR)
    )
    assert early < 100 < late < hour_late == pytest.approx(100 * math.exp(0.003))


def test_equal_sources_are_polled_in_turn() -> None:
    trace = Trace([[n * HOUR for n in range(1000)] for _ in range(12)], 400 * HOUR, 1000 * HOUR)
    polls = polls_of(trace, 12 / HOUR, 600)
    for first in range(0, 600, 12):
        assert {poll.source for poll in polls[first : first + 12]} == set(range(12))


@settings(max_examples=15)
@given(st.lists(st.floats(0.01, 100), min_size=2, max_size=12), st.floats(2.5, 20), st.integers(0, 1000))
def test_no_source_waits_longer_than_max_delay(per_day: list[float], rounds: float, seed: int) -> None:
    """The guarantee holds for any rates if the budget can serve every source at least twice in that time."""
    trace = draw_trace([rate / DAY for rate in per_day], 12, seed=seed)
    rate, max_delay = len(per_day) / HOUR, rounds * HOUR
    last = dict.fromkeys(range(len(per_day)), trace.start)
    for poll in polls_of(trace, rate, 24 * len(per_day), max_delay=max_delay):
        assert poll.at - last[poll.source] <= max_delay + 1e-6
        last[poll.source] = poll.at


@settings(max_examples=5)
@given(st.integers(0, 1000), st.integers(1, 100))
def test_a_restart_changes_no_decision(seed: int, restart_at: int) -> None:
    """What was learned is stored without loss, so that the next process decides to the bit as this one would."""
    trace = draw_trace([rate / DAY for rate in (2, 5, 10, 20, 40, 80)], 12, seed=seed)
    without, restarted = (AdaptivePolling(trace, 6 / HOUR, rhythm_age=0.0) for _ in range(2))
    for number, (poll, again) in enumerate(zip(without.polls(), restarted.polls(), strict=True)):
        assert poll == again
        if number == restart_at:
            restarted.restart()
        if number > restart_at + 60:
            break


def test_an_activity_of_another_version_is_learned_again() -> None:
    stored = encode_activity(steady(1, days=1))
    assert len(stored) < 1024
    assert decode_activity(bytes([2]) + stored[1:]) is None
    assert decode_activity(stored + b"more") is None
    assert decode_activity(b"") is None


# Budgets


def by_day(day: Sequence[int], items: float = 100.0) -> Activity:
    """Return a source that posts in these hours of the day."""
    hours = tuple(items if hour % 24 in day else 0.0 for hour in range(168))
    return Activity(until=MONDAY, since=MONDAY, items=items * len(day), seconds=7 * DAY, hours=hours)


@pytest.mark.spec("B2")
@settings(max_examples=50)
@given(st.lists(st.lists(st.integers(0, 23), max_size=12), min_size=1, max_size=4))
def test_a_weekly_budget_is_spent_in_busy_hours(days: list[list[int]]) -> None:
    activities = [by_day(day) for day in days]
    shape = shape_of_week(activities, habits_of(activities))
    assert sum(shape) == pytest.approx(168)
    assert all(0 < rate <= 3 for rate in shape)
    busy = [shape[hour] for hour in range(24) if all(hour in day for day in days)]
    # The hours next to a busy one are assumed to be a little busy, too.
    near = {(hour + step) % 24 for day in days for hour in day for step in (-1, 0, 1)}
    quiet = [shape[hour] for hour in range(24) if hour not in near]
    assert min(busy, default=1) >= max(quiet, default=0) * 0.999


@pytest.mark.spec("B2")
@settings(max_examples=30)
@given(st.lists(st.integers(0, 23), max_size=12), st.integers(1, 600), st.floats(0, 7 * DAY))
def test_a_weekly_budget_is_not_overdrawn_in_any_week(day: list[int], requests: int, start: float) -> None:
    activities = [by_day(day)]
    shape, tokens = shape_of_week(activities, habits_of(activities)), [start]
    while len(tokens) <= requests:
        tokens.append(tokens[-1] + interval_of(requests, "week", shape, tokens[-1]))
    # Each token may be used half a second late.
    assert 7 * DAY + 0.5 < tokens[requests] - tokens[0] < 7 * DAY + 20


@pytest.mark.spec("B2")
@given(st.floats(0.1, 6000))
def test_a_budget_by_the_minute_is_not_overdrawn_in_any_minute(requests: float) -> None:
    assert requests * interval_of(requests, "minute", (), MONDAY) > 60.5


@given(st.lists(st.integers(0, 23), max_size=12), st.floats(0, 7 * DAY), st.floats(1, 48), st.integers(1, 500))
def test_max_delay_leaves_time_for_a_round_of_a_weekly_budget(
    day: list[int], polled: float, delay: float, sources: int
) -> None:
    activities = [by_day(day)]
    shape = shape_of_week(activities, habits_of(activities))
    rate = sources / HOUR
    latest = latest_due(delay * HOUR, sources, rate, shape, polled)
    assert 0 <= latest < delay * HOUR
    if latest:
        # Between that time and the end of the delay there are as many tokens as sources.
        time = polled + latest
        for _ in range(sources):
            time += interval_of(rate / rate_of(1, "week"), "week", shape, time)
        assert time == pytest.approx(polled + delay * HOUR, abs=1)


@pytest.mark.spec("B2")
def test_a_replay_keeps_to_its_weekly_budget() -> None:
    chance = random.Random(2)
    # All sources post from 8 to 12 only.
    posts = [sorted(day * DAY + chance.uniform(8, 12) * HOUR for day in range(42) for _ in range(8)) for _ in range(6)]
    trace = Trace(posts, 21 * DAY, 42 * DAY)
    budget = 6 * 24 * 7
    polls = AdaptivePolling(trace, budget / (7 * DAY), is_weekly=True).polls()
    spent = Counter(week_of(poll.at) for poll in takewhile(lambda poll: poll.at <= trace.end, polls))
    assert max(spent.values()) in (budget, budget - 1)
    weekly, by_the_minute = (
        measure_delays(trace, AdaptivePolling(trace, budget / (7 * DAY), is_weekly=is_weekly).polls())
        for is_weekly in (True, False)
    )
    assert weekly.mean < 0.8 * by_the_minute.mean


def test_rate_limits_only_reduce_the_requests() -> None:
    trace = draw_trace([rate / DAY for rate in (5, 10, 20, 40, 80)], 9)
    full, limited = (AdaptivePolling(trace, 20 / HOUR, lost=lost).polls() for lost in (0.0, 0.2))
    all_found, found = measure_delays(trace, full), measure_delays(trace, limited)
    assert found.requests == pytest.approx(0.8 * all_found.requests, rel=0.05)
    assert all_found.mean < found.mean < 2 * all_found.mean


def test_a_fleet_without_history_is_learned() -> None:
    trace = draw_trace([rate / DAY for rate in (1, 2, 5, 100, 200)], 30)
    blind = measure_delays(trace, AdaptivePolling(trace, 5 / HOUR, has_history=False).polls())
    assert blind.mean < 0.8 * measure_delays(trace, poll_regularly(trace, [1.0] * 5, 5 / HOUR)).mean


@pytest.mark.parametrize(
    ("spread", "fairness"),
    [(0.5, 0.25), *(pytest.param(spread, 0.0, marks=pytest.mark.release) for spread in (1.0, 1.3))],
)
@pytest.mark.thorough
def test_random_posts_at_constant_rates_come_close_to_the_square_root_law(spread: float, fairness: float) -> None:
    """The law knows the rates; adaptive polling has to learn them.

    Fairness deviates from the law on purpose, the more the rates differ: very different sources are compared without.
    """
    chance = random.Random(5)
    rates = [math.exp(chance.gauss(0, spread)) * 20 / DAY for _ in range(50)]
    trace = draw_trace(rates, 36)
    budget = len(rates) / HOUR
    lawful = measure_delays(trace, poll_regularly(trace, [math.sqrt(rate) for rate in rates], budget))
    uniform = measure_delays(trace, poll_regularly(trace, [1.0] * len(rates), budget))
    adaptive = measure_delays(trace, AdaptivePolling(trace, budget, fairness=fairness).polls())
    assert lawful.mean == pytest.approx(uniform.mean / gain_of_square_root(rates), rel=0.03)
    assert adaptive.mean < lawful.mean * 1.03
    assert adaptive.mean < uniform.mean
    assert abs(adaptive.requests - uniform.requests) <= len(rates)


def test_the_fleet_is_the_mean_of_its_sources() -> None:
    habits = habits_of([steady(2), steady(4)])
    assert habits.rate == pytest.approx(3 / HOUR, rel=0.01)
    assert sum(habits.day) == pytest.approx(24)
    assert habits_of([]) == Habits()
    assert first_price(10, 10 / HOUR, [habits.rate]) > 0
