"""Metrics of crawls, requests and scans."""

from floodmark.observability.events import Events, HttpRequested, PagesVisited, ScanEnded

from .families import MetricMaker, word

PAGES = ("new", "changed", "unchanged", "missing", "gone", "refused", "skipped", "failed")
REQUESTS = ("2xx", "3xx", "4xx", "5xx", "refused", "failed")


class WebMetrics:
    """Counts requests to the web and their results."""

    def __init__(self, make: MetricMaker) -> None:
        self._pages = make.counters("floodmark_pages_total")
        self._requests = make.counters("floodmark_http_requests_total")
        self._scans = make.counters("floodmark_scans_total")
        for result in PAGES:
            self._pages.child(result)
        for status in REQUESTS:
            self._requests.child(status)

    def attach(self, events: Events) -> None:
        """Start to count."""
        events.listen(PagesVisited, self._count_pages)
        events.listen(HttpRequested, lambda e: self._requests.child(e.status).inc())
        events.listen(ScanEnded, lambda e: self._scans.child(word(e.result)).inc())

    def _count_pages(self, event: PagesVisited) -> None:
        for result, count in event.counts.items():
            self._pages.child(result).inc(count)
