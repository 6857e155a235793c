"""How late items are stored, and how late sources are."""

from typing import Annotated

from floodmark.model.freshness import FreshnessReport
from floodmark.model.freshness_map import FreshnessMap

from .declaration import Query, get
from .words import Cursor, Limit, Name


class FreshnessOperations:
    """Read how late items are stored."""

    @get("/freshness", tag="Budgets", operation_id="show_freshness", answers={404: "There is no such budget."})
    async def freshness(
        self,
        *,
        budget: Annotated[Name | None, Query("Only this budget and its jobs.", examples=["news"])] = None,
        measured: Annotated[
            bool,
            Query("Return what the leader last measured, at once: the slowest sources of all, and of each budget."),
        ] = False,
        cursor: Cursor = None,
        limit: Limit = 50,
    ) -> FreshnessReport:
        """Show how late items are stored. The answer covers adaptive jobs.

        It has the measured delay, the requests and the gain over uniform polling of each budget, and the delay of each
        source, the slowest first. It lists at most 200 budgets. With `measured` it reads no source: it has the slowest
        200 of all sources, or 50 of a budget, and is a few minutes old in a large installation.
        """

    @get("/freshness/map", tag="Budgets", operation_id="show_freshness_map")
    async def freshness_map(self) -> FreshnessMap:
        """Show how late sources are for their own rhythm. The answer covers all jobs, as the leader last measured them.

        It has the number of sources of each level by kind and by tag, and the latest sources one by one.
        """
