"""How soon posts would have been found: replays posting times against a policy of polling, with a virtual clock."""

import heapq
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import count
from typing import NamedTuple

from .freshness import (
    Activity,
    Rhythm,
    adjust_price,
    default_max_delay,
    first_price,
    habits_of,
    latest_due,
    learn,
    learn_first,
    level_of,
    next_poll,
)

_HOUR, _DAY = 3600.0, 86400.0
# What the first request to a source returns.
_FIRST_POSTS = 100
# A rhythm changes slowly, and making one takes as long as several decisions.
_RHYTHM_AGE, _HABITS_AGE = 6 * _HOUR, _DAY


class Trace(NamedTuple):
    """The posting times of sources, and the window in which delays are measured."""

    posts: list[list[float]]
    start: float
    end: float

    def counts(self) -> list[int]:
        """Return the posts of each source in the window, at least one."""
        return [max(1, sum(self.start < post <= self.end for post in posts)) for posts in self.posts]


class Poll(NamedTuple):
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


def poll_regularly(trace: Trace, shares: Sequence[float], rate: float) -> Iterator[Poll]:
    """Yield polls at fixed intervals; each source gets its share of `rate` requests per second."""
    total = sum(shares)

    def polls(source: int) -> Iterator[Poll]:
        interval = total / (rate * shares[source])
        first = trace.start + interval * source / len(shares)
        return (Poll(source, first + n * interval) for n in count())

    return heapq.merge(*map(polls, range(len(shares))), key=lambda poll: poll.at)


def measure_delays(trace: Trace, polls: Iterator[Poll]) -> Delays:
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
    """The polls of the adaptive policy: tokens come at the rate of the budget; each goes to the source due first."""

    def __init__(self, trace: Trace, rate: float, *, max_delay: float | None = None) -> None:
        self._trace, self._rate, self._sources = trace, rate, len(trace.posts)
        self._position = [bisect_right(posts, trace.start) for posts in trace.posts]
        self._activity: list[Activity] = [
            learn_first(posts[max(0, end - _FIRST_POSTS) : end], trace.start)
            for posts, end in zip(trace.posts, self._position, strict=True)
        ]
        self._habits, self._habits_at = habits_of(self._activity), trace.start
        self._rhythms = [(Rhythm(activity, self._habits), trace.start) for activity in self._activity]
        levels = [level_of(activity, self._habits) for activity in self._activity]
        longest = default_max_delay(self._sources, rate) if max_delay is None else max_delay
        self._latest = latest_due(longest, self._sources, rate)
        self._price = first_price(self._sources, rate, sum(levels) / len(levels))

    def polls(self) -> Iterator[Poll]:
        """Yield the polls, without end."""
        heap = [(self._due(source), source) for source in range(self._sources)]
        heapq.heapify(heap)
        for number in count(1):
            now = self._trace.start + number / self._rate
            due, source = heapq.heappop(heap)
            yield Poll(source, now)
            self._learn(source, now)
            self._price = adjust_price(self._price, due=due, now=now, sources=self._sources, rate=self._rate)
            heapq.heappush(heap, (self._due(source), source))

    def _due(self, source: int) -> float:
        activity, (rhythm, _) = self._activity[source], self._rhythms[source]
        return next_poll(activity, rhythm, self._habits, price=self._price, latest=self._latest)

    def _learn(self, source: int, now: float) -> None:
        posts, first = self._trace.posts[source], self._position[source]
        self._position[source] = bisect_right(posts, now, first)
        rhythm, made = self._rhythms[source]
        self._activity[source] = learn(self._activity[source], rhythm, posts[first : self._position[source]], now)
        if now - self._habits_at > _HABITS_AGE:
            self._habits, self._habits_at = habits_of(self._activity), now
        if now - made > _RHYTHM_AGE:
            self._rhythms[source] = (Rhythm(self._activity[source], self._habits), now)
