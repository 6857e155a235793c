"""When an adaptive job polls its source: at the moment at which polling saves the most delay per request.

The delay of an item is the time from its creation to its storage. Items that are waiting in a source accumulate delay:
A(t) is the integral of rate(u) * (t - u) du from the last poll to t. A source is due when A reaches the price of a
request. The price follows the budget, so that all requests of the budget are used (`adjust_price`).

The rate of a source is the product of four factors, all learned from the times of its items:

    level     items per second; half of what is known is forgotten every 14 days
    rhythm    by hour of the week and by minute of the hour; half is forgotten every 28 days
    heat      items of about the last hour, compared with the expected number

All functions are pure. Times are Unix seconds, rates are per second.
"""

import math
from collections.abc import Iterable, Sequence
from itertools import accumulate

from msgspec import Struct
from msgspec.structs import replace

_HOUR, _DAY, _WEEK = 3600.0, 86400.0, 604800.0
_LEVEL_HALF_LIFE, _RHYTHM_HALF_LIFE, _HEAT_HALF_LIFE = 14 * _DAY, 28 * _DAY, _HOUR
# What is assumed before a source is known: a quarter of a day at the mean rate of the fleet, at most 5 items a day.
_ASSUMED_SECONDS, _ASSUMED_RATE = _DAY / 4, 5 / _DAY
# The least number of imaginary items that follow the rhythm of the fleet or a flat one.
_LEAST_BY_DAY, _LEAST_BY_WEEK, _LEAST_BY_MINUTE = 24.0, 84.0, 20.0
_HEAT_WEIGHT = 3.0
# A first poll may return years of history.
_MAX_ITEMS_PER_POLL = 200
# The exponent of the level that is taken off the value of a poll: a little more attention for quiet sources.
_FAIRNESS = 0.25
_PRICE_GAIN = 0.003
# Counts are scaled so that they grow instead of fading; from this scale on they are scaled back.
_LARGEST_SCALE = 2.0**20
_BISECTIONS = 12
_LEAST_SHARE = 0.05


class Activity(Struct, frozen=True):
    """What is known about the times of the items of one source."""

    until: float
    """The time of the last poll."""
    since: float
    """The time at which an item counts 1 in `hours` and `minutes`; later items count more, earlier ones less."""
    items: float = 0.0
    seconds: float = 0.0
    hours: tuple[float, ...] = (0.0,) * 168
    """Items by hour of the week, from Monday 0:00 UTC."""
    minutes: tuple[float, ...] = (0.0,) * 60
    recent: float = 0.0
    recent_expected: float = 0.0


class Habits(Struct, frozen=True):
    """The mean behaviour of the sources of a fleet, which is assumed of a source that is not known yet."""

    rate: float = 1 / _DAY
    day: tuple[float, ...] = (1.0,) * 24
    """Relative rates by hour of the day; their mean is 1."""


class Rhythm:
    """The relative rates of a source by hour of the week and by minute of the hour, prepared for integration.

    It changes slowly: one that is a few hours old is as good as a new one.
    """

    __slots__ = ("hours", "minutes", "moments", "sums")

    def __init__(self, activity: Activity, habits: Habits) -> None:
        hours, minutes = (_fade(activity, counts) for counts in (activity.hours, activity.minutes))
        by_day = [sum(hours[hour::24]) for hour in range(24)]
        day = _shrink(by_day, by_day, habits.day, _LEAST_BY_DAY)
        smooth = [(hours[at - 1] + 2 * hours[at] + hours[(at + 1) % 168]) / 4 for at in range(168)]
        self.hours = _shrink(hours, smooth, day * 7, _LEAST_BY_WEEK)
        self.minutes = _shrink(minutes, minutes, (1.0,) * 60, _LEAST_BY_MINUTE)
        # The integrals of rate and of rate * minute, from the start of the hour to each minute.
        self.sums = [0.0, *accumulate(self.minutes)]
        self.moments = [0.0, *accumulate(rate * (minute + 0.5) for minute, rate in enumerate(self.minutes))]

    def integrate(self, minute: float) -> tuple[float, float]:
        """Return the integrals of rate and of rate * minute, from the start of the hour."""
        whole = min(int(minute), 59)
        part, rate = minute - whole, self.minutes[whole]
        return self.sums[whole] + rate * part, self.moments[whole] + rate * part * (whole + part / 2)


def learn_first(times: Iterable[float], now: float) -> Activity:
    """Return what the newest items of a source, found by its first poll, say about it."""
    known = sorted(time for time in times if time <= now)[-_MAX_ITEMS_PER_POLL:]
    began = known[0] if known else now
    blank = Activity(until=began, since=began)
    # The first item only marks the beginning: the time before it is unknown.
    learned = learn(blank, None, known[1:], now)
    return replace(learned, recent=0.0, recent_expected=0.0)


def learn(activity: Activity, rhythm: Rhythm | None, times: Iterable[float], now: float) -> Activity:
    """Return what is known after a poll at `now` that found new items with these times.

    Times in the future count as now. Edits and items from before the last poll must not be among them.
    """
    new = sorted(min(time, now) for time in times)[-_MAX_ITEMS_PER_POLL:]
    passed = max(0.0, now - activity.until)
    fade, heat_fade = 0.5 ** (passed / _LEVEL_HALF_LIFE), 0.5 ** (passed / _HEAT_HALF_LIFE)
    activity = _rescale(activity, now)
    hours, minutes = list(activity.hours), list(activity.minutes)
    for time in new:
        count = 2.0 ** ((time - activity.since) / _RHYTHM_HALF_LIFE)
        hours[_hour_of_week(time)] += count
        minutes[int(time % _HOUR / 60)] += count
    recent = sum(0.5 ** ((now - time) / _HEAT_HALF_LIFE) for time in new)
    expected = 0.0
    if rhythm is not None and passed:
        # Expected items fade as found ones do: on average they are spread over the time since the last poll.
        share = (1 - heat_fade) * _HEAT_HALF_LIFE / math.log(2) / passed
        expected = expect(activity, rhythm, now) * share
    return Activity(
        until=max(now, activity.until),
        since=activity.since,
        items=activity.items * fade + len(new),
        seconds=activity.seconds * fade + passed,
        hours=tuple(hours),
        minutes=tuple(minutes),
        recent=activity.recent * heat_fade + recent,
        recent_expected=activity.recent_expected * heat_fade + expected,
    )


def level_of(activity: Activity, habits: Habits) -> float:
    """Return the mean rate of a source."""
    assumed = min(habits.rate, _ASSUMED_RATE) * _ASSUMED_SECONDS
    return (activity.items + assumed) / (activity.seconds + _ASSUMED_SECONDS)


def expect(activity: Activity, rhythm: Rhythm, now: float, habits: Habits | None = None) -> float:
    """Return the expected number of items since the last poll, by level and rhythm."""
    level, total, time = level_of(activity, habits or Habits()), 0.0, activity.until
    while time < now:
        start = time - time % _HOUR
        stop = min(now, start + _HOUR)
        share = rhythm.integrate((stop - start) / 60)[0] - rhythm.integrate((time - start) / 60)[0]
        total += level * rhythm.hours[_hour_of_week(time)] * share * 60
        time = stop
    return total


def next_poll(
    activity: Activity, rhythm: Rhythm, habits: Habits, *, price: float, latest: float, weight: float = 1.0
) -> float:
    """Return when the delay of the waiting items reaches the price, at the latest `latest` seconds after the poll."""
    level = level_of(activity, habits)
    goal_of_day = price * level**_FAIRNESS / weight
    time, end, items, delay = activity.until, activity.until + latest, 0.0, 0.0
    while time < end:
        start = time - time % _HOUR
        first = (time - start) / 60
        rate = level * rhythm.hours[_hour_of_week(time)] * _heat(activity, (time + start + _HOUR) / 2)
        # In busy hours of the fleet more sources compete for the same number of requests.
        goal = goal_of_day * max(_LEAST_SHARE, habits.day[int(time % _DAY / _HOUR)])
        if delay >= goal:
            return time
        within = _Within(rhythm, rate, first, items, delay)
        if within.delay_at(60.0) >= goal:
            return min(end, start + 60 * within.find(goal))
        items, delay, time = within.items_at(60.0), within.delay_at(60.0), start + _HOUR
    return end


class _Within(Struct, frozen=True):
    """Items and their delay in one hour, in which the rate varies by minute only."""

    rhythm: Rhythm
    rate: float
    first: float
    items: float
    delay: float

    def items_at(self, minute: float) -> float:
        return self.items + self.rate * 60 * (self.rhythm.integrate(minute)[0] - self.rhythm.integrate(self.first)[0])

    def delay_at(self, minute: float) -> float:
        (sum_now, moment_now), (sum_first, moment_first) = map(self.rhythm.integrate, (minute, self.first))
        new = minute * (sum_now - sum_first) - (moment_now - moment_first)
        return self.delay + self.items * 60 * (minute - self.first) + self.rate * 3600 * new

    def find(self, goal: float) -> float:
        """Return the minute at which the delay reaches the goal."""
        low, high = self.first, 60.0
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            low, high = (low, middle) if self.delay_at(middle) >= goal else (middle, high)
        return high


def first_price(sources: int, rate: float, level: float) -> float:
    """Return the price at which sources of this mean level use `rate` requests per second together."""
    value: float = level ** (1 - _FAIRNESS)
    return value * (sources / rate) ** 2 / 2


def adjust_price(price: float, *, due: float, now: float, sources: int, rate: float) -> float:
    """Return the price after a poll that was due at `due`: polls that come late raise it, early ones lower it."""
    lateness = 4 * rate * (now - due) / sources
    return price * math.exp(_PRICE_GAIN * max(-1.0, min(1.0, lateness)))


def default_max_delay(sources: int, rate: float) -> float:
    """Return the longest time between two polls of a source: four times the time of equal shares."""
    return 4 * sources / rate


def latest_due(max_delay: float, sources: int, rate: float) -> float:
    """Return after how many seconds a source must be due to be polled within `max_delay`.

    When it is due, every other source may be ahead of it, but each of them only once.
    """
    return max(0.0, max_delay - sources / rate)


def habits_of(activities: Sequence[Activity]) -> Habits:
    """Return the mean behaviour of sources."""
    seconds = sum(activity.seconds for activity in activities)
    day = [0.0] * 24
    for activity in activities:
        hours = _fade(activity, activity.hours)
        for hour in range(24):
            day[hour] += sum(hours[hour::24])
    total = sum(day)
    return Habits(
        rate=sum(activity.items for activity in activities) / seconds if seconds else Habits().rate,
        day=tuple(24 * count / total for count in day) if total else Habits().day,
    )


def gain_of_square_root(levels: Sequence[float]) -> float:
    """Return by how much the mean delay shrinks if sources are polled in proportion to the square root of their level.

    No fixed allocation of requests to sources does better.
    """
    return len(levels) * sum(levels) / sum(map(math.sqrt, levels)) ** 2


def _shrink(counts: Sequence[float], smooth: Sequence[float], prior: Sequence[float], least: float) -> list[float]:
    """Return relative rates between the counts and the prior.

    The less the counts differ from the prior beyond chance, the more the prior decides: a source without a rhythm must
    not get one from a few dozen items. The variance beyond chance is that of Poisson counts with random rates.
    """
    total, bins = sum(counts), len(counts)
    if not total:
        return list(prior)
    chi_square = sum(
        (count - rate * total / bins) ** 2 / (rate * total / bins)
        for count, rate in zip(counts, prior, strict=True)
        if rate > 0
    )
    variance = (chi_square - (bins - 1)) / total
    assumed = max(least, bins / variance) if variance > 0 else math.inf
    if math.isinf(assumed):
        return list(prior)
    return [(count * bins + assumed * rate) / (total + assumed) for count, rate in zip(smooth, prior, strict=True)]


def _fade(activity: Activity, counts: Sequence[float]) -> list[float]:
    """Return counts in which an item counts 1 at the time of the last poll, and less before."""
    scale = 0.5 ** ((activity.until - activity.since) / _RHYTHM_HALF_LIFE)
    return [count * scale for count in counts]


def _heat(activity: Activity, time: float) -> float:
    fade: float = 0.5 ** ((time - activity.until) / _HEAT_HALF_LIFE)
    return (activity.recent * fade + _HEAT_WEIGHT) / (activity.recent_expected * fade + _HEAT_WEIGHT)


def _rescale(activity: Activity, now: float) -> Activity:
    scale = 2.0 ** ((now - activity.since) / _RHYTHM_HALF_LIFE)
    if scale < _LARGEST_SCALE:
        return activity
    return replace(
        activity,
        since=now,
        hours=tuple(count / scale for count in activity.hours),
        minutes=tuple(count / scale for count in activity.minutes),
    )


def _hour_of_week(time: float) -> int:
    # The first of January 1970 was a Thursday.
    return int((time + 3 * _DAY) % _WEEK / _HOUR)
