"""Handlers of freshness."""

from floodmark.model.freshness import FreshnessReport
from floodmark.model.freshness_map import FreshnessMap
from floodmark.model.page import key_of, page_of
from floodmark.operations.freshness import FreshnessOperations
from floodmark.operations.overview import OverviewReader
from floodmark.repositories.freshness import FreshnessReader, key_of_source

from .base import Handlers

_LISTING = "freshness"


class FreshnessHandlers(FreshnessOperations, Handlers):
    """Freshness as measured in the store."""

    async def freshness(
        self, *, budget: str | None = None, measured: bool = False, cursor: str | None = None, limit: int = 50
    ) -> FreshnessReport:
        after = key_of(_LISTING, cursor, int, float, str)
        if budget is not None:
            await self.store.budgets.show(budget)
        reader = FreshnessReader(self.resources.database, self.resources.clock)
        if measured:
            budgets, sources, measured_at = await reader.last(budget, after=after)
        else:
            budgets, sources = await reader.read(budget, after=after, limit=limit + 1)
            measured_at = None
        page = page_of(sources, limit, _LISTING, key_of_source)
        return FreshnessReport(budgets=budgets, sources=page.items, next=page.next, measured_at=measured_at)

    async def freshness_map(self) -> FreshnessMap:
        return await OverviewReader(self.resources.database, self.resources.clock, self.store).freshness_map()
