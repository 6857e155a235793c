"""Metrics of budgets, and of the polls of their jobs."""

from floodmark.observability.events import BudgetsMeasured, Events, LeaderChanged, PollKept, RequestsSpent

from .families import MetricMaker, observe_all


class BudgetMetrics:
    """Counts requests, and what polls found; exports what the leader reads about budgets."""

    def __init__(self, make: MetricMaker) -> None:
        self._delays = make.histograms("floodmark_item_delay_seconds")
        self._expected = make.counters("floodmark_expected_items_total")
        self._found = make.counters("floodmark_found_items_total")
        self._spent = make.counters("floodmark_budget_requests_total")
        self._allowed = make.gauges("floodmark_budget_requests_allowed")
        self._prices = make.gauges("floodmark_budget_price")

    def attach(self, events: Events) -> None:
        """Start to count."""
        events.listen(PollKept, self._count_poll)
        events.listen(RequestsSpent, lambda e: self._spent.child(e.budget).inc(e.count))
        events.listen(BudgetsMeasured, self._set_budgets)
        events.listen(LeaderChanged, self._reset_former_leader)

    def _count_poll(self, event: PollKept) -> None:
        self._expected.child(event.source).inc(event.expected)
        self._found.child(event.source).inc(event.found)
        if event.delays:
            observe_all(self._delays.child(event.source), event.delays)

    def _set_budgets(self, event: BudgetsMeasured) -> None:
        self._allowed.show_only({(one.name,): one.per_minute for one in event.budgets}, absent=0)
        prices: dict[tuple[str, ...], float] = {
            (one.name,): one.price for one in event.budgets if one.price is not None
        }
        self._prices.show_only(prices, absent=0)

    def _reset_former_leader(self, event: LeaderChanged) -> None:
        if not event.is_leader:
            self._set_budgets(BudgetsMeasured())
