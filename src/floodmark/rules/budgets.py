"""How many runs of a budget may start now. Pure.

A budget has one place in time, `next_free`: the next request may be made then, and moves it on by `interval` seconds.
Runs that were fired and have not made their first request yet hold the places after it.
"""

import math
from datetime import datetime, timedelta

from msgspec import Struct

from .freshness import Habits, adjust_price, default_max_delay, first_price, latest_due, rate_of

# The budget of adaptive jobs that name none.
DEFAULT_BUDGET = "default"
# Runs are fired this early, so that the way to a worker costs no request.
AHEAD = timedelta(seconds=0.2)
# A run that has not made its first request after this time is lost, paused or waits for something else.
GRANT_EXPIRES = timedelta(seconds=60)
# Budgets with many requests fire several runs at once.
_PAUSE = AHEAD / 2

FLAT = (1.0,) * 168


class Terms(Struct, frozen=True, kw_only=True):
    """What a budget allows, and what is known about its sources."""

    name: str
    requests: float
    period: str
    interval: float
    """Seconds between two requests at present."""
    sources: int = 0
    price: float | None = None
    habits: Habits = Habits()
    shape: tuple[float, ...] = FLAT
    max_delay: float | None = None
    fairness: float = 0.25

    @property
    def rate(self) -> float:
        """The mean number of requests per second."""
        return rate_of(self.requests, self.period)

    @property
    def share(self) -> float:
        """The seconds between two polls of a source if all get the same."""
        return max(1, self.sources) / self.rate

    def current_price(self) -> float:
        """Return the price of a request; the first one if none was found yet."""
        if self.price is not None:
            return self.price
        return first_price(max(1, self.sources), self.rate, [self.habits.rate], self.fairness)

    def latest(self, polled: float, max_delay: float | None = None) -> float:
        """Return after how many seconds a source that was polled at `polled` is due at the latest."""
        sources = max(1, self.sources)
        longest = max_delay or self.max_delay or default_max_delay(sources, self.rate)
        return latest_due(longest, sources, self.rate, self.shape, polled)


def count_free(terms: Terms, next_free: datetime, granted: int, now: datetime) -> int:
    """Return the number of runs that may be fired now."""
    ahead = (now + AHEAD - max(next_free, now)).total_seconds()
    return 0 if ahead < 0 else max(0, math.floor(ahead / terms.interval) + 1 - granted)


def next_step(terms: Terms, next_free: datetime, granted: int, now: datetime) -> datetime:
    """Return when the next run can be fired."""
    place = max(next_free, now) + timedelta(seconds=granted * terms.interval)
    return max(place - AHEAD, now + _PAUSE)


def price_after(terms: Terms, lateness: list[float]) -> float:
    """Return the price after polls that came this many seconds after they were due; early ones are negative."""
    price = terms.current_price()
    for late in lateness:
        price = adjust_price(price, due=0.0, now=late, sources=max(1, terms.sources), rate=terms.rate)
    return price
