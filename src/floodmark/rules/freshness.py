"""When an adaptive job polls its source: at the moment at which polling saves the most delay per request.

The delay of an item is the time from its creation to its storage. Items that are waiting in a source accumulate delay:
A(t) is the integral of rate(u) * (t - u) du from the last poll to t. A source is due when A reaches the price of a
request. The price follows the budget, so that all requests of the budget are used (`adjust_price`).

The rate of a source is the product of four factors, all learned from the times of its items:

    level     items per second; half of what is known is forgotten every 14 days
    rhythm    by hour of the week and by minute of the hour; half is forgotten every 28 days
    heat      items of about the last hour, compared with the expected number

A source without times only says at each poll whether it has changed. Its rate is its level, and A(t) is the expected
time for which it has been different from what is stored: t - (1 - exp(-level * t)) / level.

All functions are pure. Times are Unix seconds, rates are per second.
"""

import math
import struct
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, count
from operator import mul

from msgspec import Struct
from msgspec.structs import replace

_HOUR, _DAY, _WEEK = 3600.0, 86400.0, 604800.0
_LEVEL_HALF_LIFE, _RHYTHM_HALF_LIFE, _HEAT_HALF_LIFE = 14 * _DAY, 28 * _DAY, _HOUR
# What is assumed before a source is known: a quarter of a day at the mean rate of the fleet, at most 5 items a day.
_ASSUMED_SECONDS, _ASSUMED_RATE = _DAY / 4, 5 / _DAY
# One item in 30 years: a level is never zero.
_LEAST_LEVEL = 1e-9
# The least number of imaginary items that follow the rhythm of the fleet or a flat one.
_LEAST_BY_DAY, _LEAST_BY_WEEK, _LEAST_BY_MINUTE = 24.0, 84.0, 20.0
# From four weeks on, every hour of the week was observed for about the same time.
_FADE_OF_KNOWN_WEEK = 0.5 ** (4 * _WEEK / _LEVEL_HALF_LIFE)
_HEAT_WEIGHT = 3.0
# A first poll may return years of history.
_MAX_ITEMS_PER_POLL = 200
# The exponent of the level that is taken off the value of a poll: a little more attention for quiet sources.
FAIRNESS = 0.25
_PRICE_GAIN = 0.003
# Counts are scaled so that they grow instead of fading; from this scale on they are scaled back.
_LARGEST_SCALE = 2.0**20
_BISECTIONS = 16
# The price in the quietest hours of the fleet, compared with the mean.
_LEAST_SHARE = 0.05
# The token rates of a weekly budget, compared with their mean.
_LARGEST_TOKEN_RATE, _LEAST_TOKEN_RATE = 3.0, 0.4
# Half a second of lateness between token and request never puts one more request into any 60 s, or into any week.
_MINUTE_WITH_MARGIN, _WEEK_WITH_MARGIN = 60.6, _WEEK + 0.6 * _LARGEST_TOKEN_RATE
FLAT_WEEK = (1.0,) * 168


class Activity(Struct, frozen=True):
    """What is known about the times of the items of one source."""

    until: float
    """The time of the last poll."""
    since: float
    """The time at which an item counts 1 in `hours` and `minutes`; later items count more, earlier ones less."""
    items: float = 0.0
    seconds: float = 0.0
    hours: tuple[float, ...] = (0.0,) * 168
    """Items by hour of the week, from Monday 0:00 UTC. As `minutes`, they fit into 32 bits without loss."""
    minutes: tuple[float, ...] = (0.0,) * 60
    recent: float = 0.0
    recent_expected: float = 0.0
    is_dated: bool = True
    """Whether the items have times. If not, a poll only shows whether the source has changed."""


class Habits(Struct, frozen=True):
    """The mean behaviour of the sources of a fleet, which is assumed of a source that is not known yet."""

    rate: float = 1 / _DAY
    day: tuple[float, ...] = (1.0,) * 24
    """Relative rates by hour of the day; their mean is 1."""


class PollForecast(Struct, frozen=True):
    """Why a source is polled now, or not yet."""

    items: float
    """Expected items since the last poll; of a source without times, expected changes."""
    waited: float
    """Seconds since the last poll."""
    due_in: float
    """Seconds until the next poll is due at the current price; negative if it is overdue."""


class Rhythm:
    """The relative rates of a source by hour of the week and by minute of the hour, prepared for integration.

    It changes slowly: one that is a few hours old is as good as a new one.
    """

    __slots__ = ("hours", "minutes", "moments", "sums")

    def __init__(self, activity: Activity, habits: Habits) -> None:
        scale, hours, observed = _scale_of(activity), activity.hours, _observe(activity)
        by_day, observed_by_day = ([sum(week[hour::24]) for hour in range(24)] for week in (hours, observed))
        day = _shrink(by_day, habits.day, observed_by_day, scale, _LEAST_BY_DAY)
        self.hours = _shrink(hours, [*day] * 7, observed, scale, _LEAST_BY_WEEK, is_smooth=True)
        self.minutes = _shrink(activity.minutes, FLAT_WEEK[:60], FLAT_WEEK[:60], scale, _LEAST_BY_MINUTE)
        # The integrals of rate and of rate * minute, from the start of the hour to each minute.
        self.sums = [0.0, *accumulate(self.minutes)]
        self.moments = [0.0, *accumulate(map(mul, self.minutes, _MIDDLES))]

    def integrate(self, minute: float) -> tuple[float, float]:
        """Return the integrals of rate and of rate * minute, from the start of the hour."""
        whole = min(int(minute), 59)
        part, rate = minute - whole, self.minutes[whole]
        return self.sums[whole] + rate * part, self.moments[whole] + rate * part * (whole + part / 2)


_MIDDLES = [minute + 0.5 for minute in range(60)]


def learn_first(times: Iterable[float], now: float) -> Activity:
    """Return what the newest items of a source, found by its first poll, say about it."""
    known = sorted({time for time in times if time <= now})[-_MAX_ITEMS_PER_POLL:]
    began = known[0] if known else now
    # The first item only marks the beginning: the time before it is unknown.
    return learn(Activity(until=began, since=began), None, known[1:], now)


def learn(activity: Activity, rhythm: Rhythm | None, times: Iterable[float], now: float) -> Activity:
    """Return what is known after a poll at `now` that found new items with these times.

    The items of one poll may come in several calls with the same `now`, in any order. Times in the future count as
    now. Items of the same second are one event, such as an album. Edits and backfilled items must not be among them.
    """
    now = max(now, activity.until)
    new = sorted({min(time, now) for time in times})[-_MAX_ITEMS_PER_POLL:]
    passed = now - activity.until
    fade, heat_fade = 0.5 ** (passed / _LEVEL_HALF_LIFE), 0.5 ** (passed / _HEAT_HALF_LIFE)
    activity = _rescale(activity, now)
    expected = activity.recent_expected * heat_fade
    if rhythm is not None and passed:
        # Expected items fade as found ones do: on average they are spread over the time since the last poll.
        expected += expect(activity, rhythm, now) * _faded_seconds(heat_fade, _HEAT_HALF_LIFE) / passed
    recent = activity.recent * heat_fade
    if expected:
        # Without an expectation, as at the first poll, nothing shows whether these are many.
        recent += sum(0.5 ** ((now - time) / _HEAT_HALF_LIFE) for time in new)
    hours, minutes = _count(activity, new)
    return Activity(
        until=now,
        since=activity.since,
        items=activity.items * fade + sum(0.5 ** ((now - time) / _LEVEL_HALF_LIFE) for time in new),
        seconds=activity.seconds * fade + _faded_seconds(fade, _LEVEL_HALF_LIFE),
        hours=hours,
        minutes=minutes,
        recent=recent,
        recent_expected=expected,
        is_dated=activity.is_dated or bool(new),
    )


def learn_change(activity: Activity, changed: bool, now: float, habits: Habits) -> Activity:
    """Return what is known after a poll at `now` that found a source without times changed or unchanged.

    A source that has changed may have changed more than once: the expected number of changes, given at least one,
    counts. A second call with the same `now` teaches nothing.
    """
    passed = max(0.0, now - activity.until)
    if not passed:
        return replace(activity, is_dated=False)
    fade = 0.5 ** (passed / _LEVEL_HALF_LIFE)
    seconds = _faded_seconds(fade, _LEVEL_HALF_LIFE)
    expected = level_of(activity, habits) * passed
    changes = expected / -math.expm1(-expected) if changed else 0.0
    return replace(
        activity,
        until=now,
        # The changes are spread over the time since the last poll.
        items=activity.items * fade + changes * seconds / passed,
        seconds=activity.seconds * fade + seconds,
        is_dated=False,
    )


def level_of(activity: Activity, habits: Habits) -> float:
    """Return the mean rate of a source."""
    assumed = min(habits.rate, _ASSUMED_RATE) * _ASSUMED_SECONDS
    return max(_LEAST_LEVEL, (activity.items + assumed) / (activity.seconds + _ASSUMED_SECONDS))


def expect(activity: Activity, rhythm: Rhythm, now: float, habits: Habits | None = None) -> float:
    """Return the expected number of items since the last poll, by level and rhythm."""
    level = level_of(activity, habits or Habits())
    if not activity.is_dated:
        return level * (now - activity.until)
    # Whole weeks are all alike.
    weeks, rest = divmod(max(0.0, now - activity.until), _WEEK)
    total, time, end = weeks * sum(rhythm.hours) * rhythm.sums[-1], activity.until, activity.until + rest
    while time < end:
        start = time - time % _HOUR
        stop = min(end, start + _HOUR)
        share = rhythm.integrate((stop - start) / 60)[0] - rhythm.integrate((time - start) / 60)[0]
        total += rhythm.hours[_hour_of_week(time)] * share
        time = stop
    return level * total * 60


def next_poll(
    activity: Activity,
    rhythm: Rhythm,
    habits: Habits,
    *,
    price: float,
    latest: float,
    weight: float = 1.0,
    fairness: float = FAIRNESS,
    shape: Sequence[float] = FLAT_WEEK,
) -> float:
    """Return when the delay of the waiting items reaches the price, at the latest `latest` seconds after the poll.

    `shape` is that of the budget: `shape_of_week` for a weekly budget.
    """
    level = level_of(activity, habits)
    mean_goal, end = price * level**fairness / weight, activity.until + latest
    for hour in _walk(activity, rhythm, level):
        if hour.start >= end:
            break
        at = _hour_of_week(hour.start)
        # A request costs more when more sources compete for it, and less when the budget has more requests.
        goal = mean_goal * max(_LEAST_SHARE, habits.day[at % 24]) / shape[at] ** 2
        if hour.delay_at_end() >= goal:
            return min(end, hour.find(goal))
    return end


def explain_poll(
    activity: Activity,
    rhythm: Rhythm,
    habits: Habits,
    *,
    now: float,
    price: float,
    latest: float,
    weight: float = 1.0,
    fairness: float = FAIRNESS,
    shape: Sequence[float] = FLAT_WEEK,
) -> PollForecast:
    """Return the numbers on which `next_poll` decides."""
    due = next_poll(activity, rhythm, habits, price=price, latest=latest, weight=weight, fairness=fairness, shape=shape)
    now = max(now, activity.until)
    hours = _walk(activity, rhythm, level_of(activity, habits))
    items = next(hour.items_at(now) for hour in hours if now < hour.start + _HOUR)
    return PollForecast(items, now - activity.until, due - now)


def first_price(sources: int, rate: float, levels: Sequence[float], fairness: float = FAIRNESS) -> float:
    """Return the price at which sources like those with these levels use `rate` requests per second together."""
    # Exact for equal sources. For others it is a little high, which makes up for those that are due by `max_delay`.
    value: float = (sum(levels) / len(levels)) ** (1 - fairness)
    return value * (sources / rate) ** 2 / 2


def adjust_price(price: float, *, due: float, now: float, sources: int, rate: float) -> float:
    """Return the price after a poll that was due at `due`: polls that come late raise it, early ones lower it."""
    lateness = 4 * rate * (now - due) / sources
    return price * math.exp(_PRICE_GAIN * max(-1.0, min(1.0, lateness)))


def default_max_delay(sources: int, rate: float) -> float:
    """Return the longest time between two polls of a source: four times the time of equal shares."""
    return 4 * sources / rate


def latest_due(
    max_delay: float, sources: int, rate: float, shape: Sequence[float] = FLAT_WEEK, polled: float = 0.0
) -> float:
    """Return after how many seconds a source must be due to be polled within `max_delay` of its poll at `polled`.

    When it is due, every other source may be ahead of it, but each of them only once.
    """
    if shape is FLAT_WEEK:
        return max(0.0, max_delay - sources / rate)
    end, left = polled + max_delay, sources / rate
    while left > 0 and end > polled:
        # The time before a full hour is the end of the hour before.
        seconds = end % _HOUR or _HOUR
        pace = shape[_hour_of_week(end - seconds)]
        end, left = end - min(seconds, left / pace), left - pace * seconds
    return max(0.0, end - polled)


def rate_of(requests: float, period: str) -> float:
    """Return the mean number of tokens per second of a budget of `requests` per "minute" or "week"."""
    return requests / (_WEEK_WITH_MARGIN if period == "week" else _MINUTE_WITH_MARGIN)


def interval_of(requests: float, period: str, shape: Sequence[float], now: float) -> float:
    """Return the seconds from a token at `now` to the next one. A weekly budget follows `shape`."""
    mean = 1 / rate_of(requests, period)
    return _seconds_after(now, mean, shape) if period == "week" else mean


def shape_of_week(activities: Iterable[Activity], habits: Habits) -> tuple[float, ...]:
    """Return by hour of the week, compared with the mean, at what rate a weekly budget is spent best.

    The rate is proportional to the sum of the square roots of the rates of the sources; a sample of them will do.
    """
    week = [0.0] * 168
    for activity in activities:
        level = level_of(activity, habits)
        rates = Rhythm(activity, habits).hours if activity.is_dated else FLAT_WEEK
        week = [total + math.sqrt(level * rate) for total, rate in zip(week, rates, strict=True)]
    least = _LEAST_TOKEN_RATE * sum(week) / 168
    if not least:
        return FLAT_WEEK
    week = [max(least, total) for total in week]
    low, high = 0.0, _LARGEST_TOKEN_RATE / least
    for _ in range(60):
        middle = (low + high) / 2
        if sum(min(_LARGEST_TOKEN_RATE, middle * total) for total in week) < 168:
            low = middle
        else:
            high = middle
    return tuple(min(_LARGEST_TOKEN_RATE, low * total) for total in week)


def week_of(time: float) -> int:
    """Return the number of a week that starts on Monday at 0:00 UTC.

    A weekly budget keeps its shape during a week, so that the tokens of the week are never more than the budget.
    """
    return int((time + 3 * _DAY) // _WEEK)


def habits_of(activities: Sequence[Activity]) -> Habits:
    """Return the mean behaviour of sources."""
    seconds = sum(activity.seconds for activity in activities)
    day = [0.0] * 24
    for activity in activities:
        scale = _scale_of(activity)
        for hour in range(24):
            day[hour] += scale * sum(activity.hours[hour::24])
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


# A version, a boolean, six numbers, and the counts by hour and by minute.
_LAYOUT = struct.Struct("<B?6d228f")
_VERSION = 1


def encode_activity(activity: Activity) -> bytes:
    """Return an activity in 962 bytes, without loss."""
    return _LAYOUT.pack(
        _VERSION,
        activity.is_dated,
        activity.until,
        activity.since,
        activity.items,
        activity.seconds,
        activity.recent,
        activity.recent_expected,
        *activity.hours,
        *activity.minutes,
    )


def decode_activity(data: bytes) -> Activity | None:
    """Return the activity, or None if another version of Floodmark wrote it: it is learned again then."""
    if len(data) != _LAYOUT.size or data[0] != _VERSION:
        return None
    _, is_dated, until, since, items, seconds, recent, recent_expected, *counts = _LAYOUT.unpack(data)
    return Activity(
        until=until,
        since=since,
        items=items,
        seconds=seconds,
        hours=tuple(counts[:168]),
        minutes=tuple(counts[168:]),
        recent=recent,
        recent_expected=recent_expected,
        is_dated=is_dated,
    )


class _Hour(Struct):
    """The items that wait in a source in one hour of the clock, and the delay that they have accumulated."""

    rhythm: Rhythm
    start: float
    """The start of the hour."""
    first: float
    """The minute of the last poll, or 0."""
    sum_first: float
    moment_first: float
    rate: float
    """The rate of a mean minute."""
    items: float
    """The items at the first minute, and their delay."""
    delay: float

    def items_at(self, time: float) -> float:
        return self.items + 60 * self.rate * (self.rhythm.integrate((time - self.start) / 60)[0] - self.sum_first)

    def delay_at_end(self) -> float:
        return self._delay_at(60, self.rhythm.sums[60], self.rhythm.moments[60])

    def find(self, goal: float) -> float:
        """Return when the delay reaches the goal."""
        sums, moments = self.rhythm.sums, self.rhythm.moments
        low, high = int(self.first), 60
        while high - low > 1:
            middle = (low + high) // 2
            is_reached = self._delay_at(middle, sums[middle], moments[middle]) >= goal
            low, high = (low, middle) if is_reached else (middle, high)
        minute = max(self.first, low)
        time, missing = self.start + 60 * minute, goal - self._delay_at(minute, *self.rhythm.integrate(minute))
        if missing <= 0:
            return time
        # In a minute the rate is constant: items * t + rate * t^2 / 2 = missing.
        items, rate = self.items_at(time), self.rate * self.rhythm.minutes[low]
        return time + 2 * missing / (items + math.sqrt(items * items + 2 * rate * missing))

    def _delay_at(self, minute: float, total: float, moment: float) -> float:
        new = minute * (total - self.sum_first) - (moment - self.moment_first)
        return self.delay + 60 * self.items * (minute - self.first) + 3600 * self.rate * new


class _UndatedHour(Struct):
    """The expected time, in one hour of the clock, for which a source without times has been different."""

    until: float
    level: float
    start: float

    def items_at(self, time: float) -> float:
        return self.level * (time - self.until)

    def delay_at_end(self) -> float:
        return self._delay_at(self.start + _HOUR)

    def find(self, goal: float) -> float:
        """Return when the delay reaches the goal."""
        low, high = max(self.start, self.until), self.start + _HOUR
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            low, high = (low, middle) if self._delay_at(middle) >= goal else (middle, high)
        return high

    def _delay_at(self, time: float) -> float:
        passed = time - self.until
        return passed + math.expm1(-self.level * passed) / self.level


def _walk(activity: Activity, rhythm: Rhythm, level: float) -> Iterator[_Hour | _UndatedHour]:
    """Yield the hours of the clock from the last poll on, without end."""
    start = activity.until - activity.until % _HOUR
    if not activity.is_dated:
        yield from (_UndatedHour(activity.until, level, start + number * _HOUR) for number in count())
    first = (activity.until - start) / 60
    sum_first, moment_first = rhythm.integrate(first)
    items, delay = 0.0, 0.0
    while True:
        middle = start + 30 * (first + 60)
        rate = level * rhythm.hours[_hour_of_week(start)] * _heat(activity, middle)
        hour = _Hour(rhythm, start, first, sum_first, moment_first, rate, items, delay)
        yield hour
        items, delay = items + 60 * rate * (rhythm.sums[60] - sum_first), hour.delay_at_end()
        start, first, sum_first, moment_first = start + _HOUR, 0.0, 0.0, 0.0


def _seconds_after(time: float, mean_seconds: float, shape: Sequence[float]) -> float:
    """Return the seconds from `time` on in which as many tokens come as in `mean_seconds` on average."""
    at, left = time, mean_seconds
    while True:
        rate, hour = shape[_hour_of_week(at)], _HOUR - at % _HOUR
        if left <= rate * hour:
            return at + left / rate - time
        at, left = at + hour, left - rate * hour


def _observe(activity: Activity) -> Sequence[float]:
    """Return for how long each hour of the week was observed.

    The newest posts of a busy source cover a few hours; that the others have no posts must not look like a rhythm.
    """
    fade = 1 - activity.seconds * math.log(2) / _LEVEL_HALF_LIFE
    if fade < _FADE_OF_KNOWN_WEEK:
        return FLAT_WEEK
    weeks, rest = divmod(-_LEVEL_HALF_LIFE * math.log2(min(1.0, fade)), _WEEK)
    observed, time = [weeks] * 168, activity.until - rest
    while time < activity.until:
        stop = min(activity.until, time - time % _HOUR + _HOUR)
        observed[_hour_of_week(time)] += (stop - time) / _HOUR
        time = stop
    return observed


def _shrink(
    counts: Sequence[float],
    prior: Sequence[float],
    observed: Sequence[float],
    scale: float,
    least: float,
    *,
    is_smooth: bool = False,
) -> Sequence[float]:
    """Return relative rates between those of the scaled counts and the prior.

    The less the counts differ from the prior beyond chance, the more the prior decides: a source without a rhythm must
    not get one from a few dozen items. The variance beyond chance is that of Poisson counts with random rates.
    """
    total, shares = sum(counts), [*map(mul, prior, observed)]
    if not total:
        return prior
    per_share = total / (sum(shares) or 1.0)
    # Pearson's statistic: (n - expected)^2 / expected, summed up.
    chi_square = sum(n * n / share for n, share in zip(counts, shares, strict=True) if share > 0) / per_share - total
    variance = (scale * chi_square - sum(share > 0 for share in shares) + 1) / (scale * total)
    if variance <= 0:
        return prior
    assumed = max(least / len(counts), 1 / variance) / scale
    if is_smooth:
        counts, observed = _smooth(counts), _smooth(observed)
    rates = [
        (n + assumed * rate) / (per_share * seen + assumed)
        for n, rate, seen in zip(counts, prior, observed, strict=True)
    ]
    mean = sum(rates) / len(rates)
    return [rate / mean for rate in rates]


def _smooth(counts: Sequence[float]) -> list[float]:
    before, after = (counts[-1], *counts[:-1]), (*counts[1:], counts[0])
    return [(a + b + b + c) / 4 for a, b, c in zip(before, counts, after, strict=True)]


def _scale_of(activity: Activity) -> float:
    """Return the factor of counts in which an item counts 1 at the time of the last poll, and less before."""
    scale: float = 0.5 ** ((activity.until - activity.since) / _RHYTHM_HALF_LIFE)
    return scale


def _faded_seconds(fade: float, half_life: float) -> float:
    """Return the seconds of a period by whose end `fade` of an item at its beginning is left."""
    return (1 - fade) * half_life / math.log(2)


def _heat(activity: Activity, time: float) -> float:
    fade: float = 0.5 ** ((time - activity.until) / _HEAT_HALF_LIFE)
    return (activity.recent * fade + _HEAT_WEIGHT) / (activity.recent_expected * fade + _HEAT_WEIGHT)


def _count(activity: Activity, times: Sequence[float]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the counts by hour and by minute after items with these times."""
    if not times:
        return activity.hours, activity.minutes
    hours, minutes = list(activity.hours), list(activity.minutes)
    for time in times:
        hour, minute = _hour_of_week(time), int(time % _HOUR / 60)
        value = 2.0 ** ((time - activity.since) / _RHYTHM_HALF_LIFE)
        hours[hour], minutes[minute] = array("f", (hours[hour] + value, minutes[minute] + value))
    return tuple(hours), tuple(minutes)


def _rescale(activity: Activity, now: float) -> Activity:
    scale = 0.5 ** ((now - activity.since) / _RHYTHM_HALF_LIFE)
    if scale > 1 / _LARGEST_SCALE:
        return activity
    return replace(
        activity,
        since=now,
        hours=tuple(array("f", (count * scale for count in activity.hours))),
        minutes=tuple(array("f", (count * scale for count in activity.minutes))),
    )


def _hour_of_week(time: float) -> int:
    # The first of January 1970 was a Thursday.
    return int((time + 3 * _DAY) % _WEEK / _HOUR)
