"""How soon posts would have been found: replays posting times against a policy of polling, with a virtual clock."""

import heapq
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import count
from typing import NamedTuple

from .freshness import (
    FAIRNESS,
    FLAT_WEEK,
    Activity,
    Rhythm,
    adjust_price,
    decode_activity,
    default_max_delay,
    encode_activity,
    first_price,
    habits_of,
    interval_of,
    latest_due,
    learn,
    learn_first,
    level_of,
    next_poll,
    rate_of,
    shape_of_week,
    week_of,
)

_HOUR, _DAY = 3600.0, 86400.0
# What the first request to a source returns.
_FIRST_POSTS = 100
_FLEET_AGE = _DAY


# Rate limits come at this distance, which is no multiple of an hour.
_LOST_EVERY = 10000.0


class Trace(NamedTuple):
    """The posting times of sources, and the window in which delays are measured."""

    posts: list[list[float]]
    start: float
    end: float

    def counts(self) -> list[int]:
        """Return the posts of each source in the window, at least one."""
        return [max(1, sum(self.start < post <= self.end for post in posts)) for posts in self.posts]


class ReplayedPoll(NamedTuple):
    """A poll of one source."""

    source: int
    at: float


class Delays(NamedTuple):
    """The outcome of a replay. `delays` are sorted."""

    delays: list[float]
    requests: int
    longest_gap: float

    @property
    def mean(self) -> float:
        """The mean delay in seconds."""
        return sum(self.delays) / len(self.delays) if self.delays else 0.0


def poll_regularly(trace: Trace, shares: Sequence[float], rate: float, *, lost: float = 0.0) -> Iterator[ReplayedPoll]:
    """Yield polls at fixed intervals; each source gets its share of `rate` requests per second.

    Rate limits take a share `lost` of the time; then all polls are postponed.
    """
    total = sum(shares)

    def polls(source: int) -> Iterator[ReplayedPoll]:
        interval = total / (rate * shares[source])
        first = interval * source / len(shares)
        return (ReplayedPoll(source, trace.start + _stretch(first + n * interval, lost)) for n in count())

    return heapq.merge(*map(polls, range(len(shares))), key=lambda poll: poll.at)


def measure_delays(trace: Trace, polls: Iterator[ReplayedPoll]) -> Delays:
    """Return how long the posts of the window waited for a poll. A post that no poll found does not count."""
    position = [bisect_right(posts, trace.start) for posts in trace.posts]
    polled = [trace.start] * len(trace.posts)
    delays: list[float] = []
    longest, requests = 0.0, 0
    for source, at in polls:
        if at > trace.end:
            break
        requests += 1
        longest, polled[source] = max(longest, at - polled[source]), at
        posts, first = trace.posts[source], position[source]
        position[source] = bisect_right(posts, at, first)
        delays += [at - post for post in posts[first : position[source]]]
    return Delays(sorted(delays), requests, longest)


class AdaptivePolling:
    """The polls of the adaptive policy: each token of the budget goes to the source that is due first.

    `is_weekly`: the tokens follow the hours in which the sources post. `lost`: the share of the time in which a rate
    limit stops all requests. `has_history`: the first request to a source returns its newest posts. `rhythm_age`: how
    long the rhythm of a source is used; making one takes as long as several decisions.
    """

    def __init__(
        self,
        trace: Trace,
        rate: float,
        *,
        max_delay: float | None = None,
        fairness: float = FAIRNESS,
        is_weekly: bool = False,
        lost: float = 0.0,
        has_history: bool = True,
        rhythm_age: float = 6 * _HOUR,
    ) -> None:
        self._trace, self._rate, self._sources = trace, rate, len(trace.posts)
        self._fairness, self._lost = fairness, lost
        self._period = "week" if is_weekly else "minute"
        self._requests = rate / rate_of(1, self._period)
        self._position = [bisect_right(posts, trace.start) for posts in trace.posts]
        newest = _FIRST_POSTS if has_history else 0
        self._activity: list[Activity] = [
            learn_first(posts[max(0, end - newest) : end], trace.start)
            for posts, end in zip(trace.posts, self._position, strict=True)
        ]
        self._shape: Sequence[float] = FLAT_WEEK
        self._week = -1
        self._learn_fleet(trace.start)
        self._rhythm_age = rhythm_age
        self._rhythms: dict[int, tuple[Rhythm, float]] = {}
        levels = [level_of(activity, self._habits) for activity in self._activity]
        self._max_delay = default_max_delay(self._sources, rate) if max_delay is None else max_delay
        self._price = first_price(self._sources, rate, levels, fairness)
        self._queue = [(self._due(source), source) for source in range(self._sources)]
        heapq.heapify(self._queue)

    def polls(self) -> Iterator[ReplayedPoll]:
        """Yield the polls, without end."""
        now = self._trace.start
        while True:
            now = self._next_token(now)
            due, source = self._queue[0]
            yield ReplayedPoll(source, now)
            self._learn(source, now)
            self._price = adjust_price(self._price, due=due, now=now, sources=self._sources, rate=self._rate)
            heapq.heapreplace(self._queue, (self._due(source), source))

    def restart(self) -> None:
        """Carry on with what a new process finds in the database."""
        stored = [encode_activity(activity) for activity in self._activity]
        self._activity = [activity for data in stored if (activity := decode_activity(data))]
        self._queue.sort()
        self._rhythms.clear()

    def _next_token(self, now: float) -> float:
        token = now + interval_of(self._requests, self._period, self._shape, now)
        # A token that comes while a rate limit holds waits for its end.
        passed = (token - self._trace.start) % _LOST_EVERY
        return token + max(0.0, self._lost * _LOST_EVERY - passed)

    def _due(self, source: int) -> float:
        activity = self._activity[source]
        return next_poll(
            activity,
            self._rhythm(source, activity.until),
            self._habits,
            price=self._price,
            latest=latest_due(self._max_delay, self._sources, self._rate, self._shape, activity.until),
            fairness=self._fairness,
            shape=self._shape,
        )

    def _learn(self, source: int, now: float) -> None:
        posts, first = self._trace.posts[source], self._position[source]
        self._position[source] = bisect_right(posts, now, first)
        activity = self._activity[source]
        new = posts[first : self._position[source]]
        self._activity[source] = learn(activity, self._rhythm(source, now), new, now)
        if now - self._fleet_at > _FLEET_AGE or week_of(now) != week_of(self._fleet_at):
            self._learn_fleet(now)

    def _rhythm(self, source: int, now: float) -> Rhythm:
        rhythm, made = self._rhythms.get(source, (None, 0.0))
        if rhythm is None or now - made >= self._rhythm_age:
            rhythm = Rhythm(self._activity[source], self._habits)
            self._rhythms[source] = rhythm, now
        return rhythm

    def _learn_fleet(self, now: float) -> None:
        self._habits, self._fleet_at = habits_of(self._activity), now
        if self._period == "week" and week_of(now) != self._week:
            self._shape, self._week = shape_of_week(self._activity, self._habits), week_of(now)


def _stretch(seconds: float, lost: float) -> float:
    """Return after how many seconds this time has passed, not counting the time under a rate limit."""
    periods, rest = divmod(seconds, (1 - lost) * _LOST_EVERY)
    return periods * _LOST_EVERY + lost * _LOST_EVERY + rest
