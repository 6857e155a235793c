"""The limits of one run of a crawl: the number of its pages, its duration, and the delay between two requests."""

import asyncio
import time
from datetime import timedelta

from floodmark.errors import SlowDown
from floodmark.model.batch import SitePage
from floodmark.model.durations import format_duration

from .params import PATIENCE
from .responses import is_index
from .robots_by_origin import RobotsRules


class CrawlLimits:
    """Counts visits and tells when the run is over. It begins when this is created.

    `pages`: the most pages to visit. `turn_seconds`: a longer run pauses. `own_delay`: robots.txt may ask for a longer
    one.
    """

    def __init__(
        self,
        host: str,
        stopping: asyncio.Event,
        *,
        pages: int,
        turn_seconds: float,
        own_delay: timedelta,
        rules: RobotsRules | None,
    ) -> None:
        self._host, self._stopping, self._turn_seconds = host, stopping, turn_seconds
        self._own_delay, self._rules = own_delay, rules
        # How many more pages may be visited.
        self._budget = pages
        self._visits = 0
        self._began = time.monotonic()

    @property
    def delay(self) -> timedelta:
        """The delay between two requests."""
        return self._own_delay if self._rules is None else max(self._own_delay, self._rules.delay)

    @property
    def is_spent(self) -> bool:
        """Whether the crawl has visited as many pages as it may."""
        return self._budget <= 0

    def is_over(self) -> bool:
        """Return whether no further visit may start in this run."""
        return self.is_spent or self._stopping.is_set() or self.find_pause() is not None

    def find_pause(self) -> SlowDown | None:
        """Return why the crawl should give its slot to others now, if it should."""
        if (delay := self.delay) > PATIENCE and self._visits:
            return SlowDown(delay, None, f"{self._host} asks for {format_duration(delay)} between two pages")
        if time.monotonic() - self._began > self._turn_seconds and self._visits:
            return SlowDown(timedelta(seconds=1), None, "a long crawl lets other jobs run and resumes soon")
        return None

    def count_earlier(self, pages: int) -> None:
        """Count the pages that earlier runs of this crawl have visited."""
        self._budget -= pages

    def count_visit(self, page: SitePage) -> None:
        """Count a visit before it begins."""
        self._visits, self._budget = self._visits + 1, self._budget - _cost(page)

    def uncount_visit(self, page: SitePage) -> None:
        """Undo `count_visit` for a page that is not requested after all."""
        self._visits, self._budget = self._visits - 1, self._budget + _cost(page)


def _cost(page: SitePage) -> int:
    """Return how many pages a visit counts for: sitemaps and feeds are no pages."""
    return 0 if is_index(page) else 1
