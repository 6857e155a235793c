"""What the requests of a budget bring, from what was measured about its sources."""

from datetime import UTC, datetime, timedelta
from itertools import accumulate
from random import Random

import pytest
from msgspec.structs import replace

from floodmark.model.batch import Batch, Item, Poll, PollResult
from floodmark.rules.budgets import Terms
from floodmark.rules.freshness import Activity
from floodmark.rules.freshness_report import BudgetTally, UsedRequests, begin_of_use
from floodmark.rules.lessons import Known, learn_poll
from floodmark.rules.measures import Measures, decode_measures, encode_measures, fade_measures, record

pytestmark = pytest.mark.spec("B4", "T14")

NOW = datetime(2026, 11, 16, 12, 34, 56, tzinfo=UTC)
HOUR, DAY, WEEK = 3600.0, timedelta(days=1), timedelta(days=7)
TERMS = Terms(name="news", requests=30, period="minute", interval=2.02, price=812.5)
NOTHING = PollResult(found=0, expected=0.0)


def polled(every: float, *delays: float, polls: int = 100) -> Measures:
    """A source that was polled this often up to now, and whose items were stored with these delays."""
    end = NOW.timestamp()
    measures = record(Measures(end - (polls - 1) * every), NOTHING, now=end - (polls - 1) * every, requests=1, polls=1)
    for number in range(polls - 2, 0, -1):
        measures = record(measures, NOTHING, now=end - number * every, requests=1, polls=1)
    result = PollResult(found=len(delays), expected=len(delays) + 0.5, delays=delays)
    return record(measures, result, now=end, requests=1, polls=1)


def learned(items_a_day: float) -> Activity:
    """A source that has been known for long enough to be as active as it seems."""
    return Activity(until=NOW.timestamp(), since=0.0, items=items_a_day * 1e4, seconds=86400 * 1e4)


def tally(*measures: Measures | None, levels: tuple[float, ...] = ()) -> BudgetTally:
    made = BudgetTally(TERMS, NOW)
    for number, one in enumerate(measures):
        made.add(learned(levels[number]) if levels else None, one)
    return made


USED = UsedRequests(NOW - DAY, 40_000)


@pytest.mark.parametrize("polls", [2, 10, 500])
def test_the_time_between_two_polls_is_measured_however_many_there_were(polls: int) -> None:
    """The first poll only marks the beginning, and half of all of them is forgotten every week."""
    rate = polled(HOUR, polls=polls).rate
    assert rate is not None
    assert 1 / rate == pytest.approx(HOUR, rel=0.01)
    assert polled(HOUR, polls=1).rate is None


def test_the_gain_compares_with_polling_all_sources_equally_often() -> None:
    """One source is polled every 10 minutes and one every hour: 7 polls in an hour, 3.5 of each source if equal."""
    found = tally(polled(600, 100.0, 200.0, 300.0), polled(3600, 1400.0)).describe(USED)
    assert found.uniform_delay_seconds == pytest.approx(3600 / 3.5 / 2, rel=0.01)
    assert found.mean_delay_seconds == pytest.approx(500)
    assert found.gain == pytest.approx(3600 / 3.5 / 2 / 500, rel=0.01)
    assert (found.found, found.expected) == (4, 5)


def test_the_best_fixed_allocation_follows_from_the_activity_of_the_sources() -> None:
    """The square-root law: n L / (sum of the square roots of l)^2."""
    equal = tally(polled(600), polled(600), levels=(10, 10)).describe(USED)
    assert equal.best_fixed_gain == pytest.approx(1)
    unequal = tally(polled(600), polled(600), levels=(1, 100)).describe(USED)
    assert unequal.best_fixed_gain == pytest.approx(2 * 101 / (1 + 10) ** 2, rel=0.01)


def test_twice_the_requests_bring_half_the_delay() -> None:
    found = tally(polled(600, 60.0)).describe(USED)
    assert [(one.factor, one.requests, one.mean_delay_seconds) for one in found.forecasts] == [
        (0.5, 15, 120),
        (2, 60, 30),
        (4, 120, 15),
    ]


def test_requests_are_compared_with_those_that_were_allowed() -> None:
    found = tally(polled(600, 60.0)).describe(USED)
    assert (found.used, found.since) == (40_000, NOW - DAY)
    # 30 a minute, and 60.6 s to the next minute, so that no minute has more.
    assert found.allowed == pytest.approx(86400 * 30 / 60.6)


def test_a_budget_whose_sources_were_never_polled_says_only_that() -> None:
    found = tally(None, None).describe(USED)
    assert (found.sources, found.never_polled) == (2, 2)
    assert (found.mean_delay_seconds, found.gain, found.best_fixed_gain, found.forecasts) == (None, None, None, [])


def test_a_source_without_new_items_counts_for_the_polls_but_not_for_the_delay() -> None:
    found = tally(polled(600, 60.0), polled(600)).describe(USED)
    assert found.mean_delay_seconds == pytest.approx(60)
    assert found.uniform_delay_seconds == pytest.approx(300, rel=0.01)


def test_use_is_counted_from_a_full_hour_a_day_or_a_week_ago() -> None:
    long_ago, hour_ago = NOW - 10 * WEEK, NOW - timedelta(hours=1)
    assert begin_of_use("minute", long_ago, NOW) == datetime(2026, 11, 15, 13, tzinfo=UTC)
    assert begin_of_use("week", long_ago, NOW) == datetime(2026, 11, 9, 13, tzinfo=UTC)
    assert begin_of_use("week", hour_ago, NOW) == hour_ago


def test_measures_fade_without_changing_their_means() -> None:
    known = polled(600, 100.0, 300.0)
    later = fade_measures(known, NOW.timestamp() + WEEK.total_seconds())
    assert later.polls == pytest.approx(known.polls / 2)
    assert later.mean_delay == known.mean_delay
    assert later.quantile(0.95) == pytest.approx(known.quantile(0.95))
    assert decode_measures(encode_measures(known)) == known


def test_a_regular_source_is_found_as_expected_and_an_album_counts_once() -> None:
    """Posts at random, about one in an hour, each of three pictures: a poll every two hours for two weeks."""
    chance, start = Random(5), NOW.timestamp() - 14 * 86400
    posts = list(accumulate(chance.expovariate(1 / 3600) for _ in range(400)))
    known, found, expected, delays = Known(learned=None, measured=None, terms=TERMS), 0, 0.0, list[float]()
    for number in range(168):
        at = start + 2 * 3600 * number
        times = [start + post for post in posts if 2 * (number - 1) <= post / 3600 < 2 * number]
        items = [Item(f"{time}-{n}", n, datetime.fromtimestamp(time, UTC)) for time in times for n in range(3)]
        poll = Poll(datetime.fromtimestamp(at, UTC), 1)
        lesson = learn_poll(known, Batch(items, poll=poll), {item.key for item in items}, 0, poll.at)
        known = replace(known, learned=lesson.learned, measured=lesson.measured)
        found, expected = found + lesson.result.found, expected + lesson.result.expected
        delays += lesson.result.delays
    assert found == sum(post / 3600 < 334 for post in posts)
    assert expected == pytest.approx(found, rel=0.2)
    assert len(delays) == 3 * found
    assert sum(delays) / len(delays) == pytest.approx(3600, rel=0.2)
    measures = decode_measures(known.measured or b"")
    assert measures is not None
    assert measures.mean_delay == pytest.approx(3600, rel=0.2)
