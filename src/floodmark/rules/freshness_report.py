"""What the requests of a budget bring: measured delays, compared with those of uniform polling. Pure."""

from array import array
from datetime import UTC, datetime, timedelta

from msgspec import Struct

from floodmark.model.freshness import BudgetFreshness, DelayForecast

from .budgets import Terms
from .freshness import Activity, gain_of_square_root, level_of
from .measures import Measures, total_of

_FACTORS = (0.5, 2.0, 4.0)
_DAY, _WEEK = timedelta(days=1), timedelta(days=7)
_HOUR = timedelta(hours=1)


class UsedRequests(Struct, frozen=True):
    """The requests of a budget since the beginning of an hour."""

    since: datetime
    count: int


class BudgetTally:
    """The sum of what was measured about the sources of a budget. A source takes eight bytes of memory."""

    def __init__(self, terms: Terms, now: datetime) -> None:
        self._terms, self._now = terms, now
        self._sources, self._never_polled = 0, 0
        self._total = Measures(now.timestamp())
        self._levels = array("d")
        self._rated, self._rate = 0, 0.0

    def add(self, learned: Activity | None, measures: Measures | None) -> None:
        """Add a source; it has no measures if it was never polled."""
        self._sources += 1
        if measures is None:
            self._never_polled += 1
            return
        self._total = total_of((self._total, measures), self._now.timestamp())
        if learned is not None:
            self._levels.append(level_of(learned, self._terms.habits))
        if measures.rate is not None:
            self._rated, self._rate = self._rated + 1, self._rate + measures.rate

    def describe(self, used: UsedRequests) -> BudgetFreshness:
        """Return the report on the budget."""
        terms, total, mean = self._terms, self._total, self._total.mean_delay
        # Half the time between two polls of a source.
        uniform = self._rated / (2 * self._rate) if self._rate else None
        return BudgetFreshness(
            name=terms.name,
            requests=terms.requests,
            period=terms.period,
            sources=self._sources,
            never_polled=self._never_polled,
            price=terms.price,
            since=used.since,
            allowed=terms.rate * (self._now - used.since).total_seconds(),
            used=used.count,
            polls=total.polls,
            expected=total.expected,
            found=total.found,
            mean_delay_seconds=mean,
            median_delay_seconds=total.quantile(0.5),
            p95_delay_seconds=total.quantile(0.95),
            uniform_delay_seconds=uniform,
            gain=None if uniform is None or not mean else uniform / mean,
            best_fixed_gain=gain_of_square_root(self._levels) if self._levels else None,
            forecasts=[] if mean is None else [_forecast(terms, factor, mean) for factor in _FACTORS],
        )


def _forecast(terms: Terms, factor: float, mean: float) -> DelayForecast:
    # With twice the requests, the time between two polls of each source is half as long.
    return DelayForecast(factor=factor, requests=terms.requests * factor, mean_delay_seconds=mean / factor)


def begin_of_use(period: str, created_at: datetime, now: datetime) -> datetime:
    """Return the hour from which the requests of a budget are compared with what it allowed."""
    hour = now.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    return max(created_at, hour - (_WEEK if period == "week" else _DAY) + _HOUR)
