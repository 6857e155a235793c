"""How late items are stored."""

from typing import Annotated

from floodmark.model.freshness import FreshnessReport

from .declaration import Query, get
from .words import Cursor, Limit, Name


class FreshnessOperations:
    """Read how late items are stored."""

    @get("/freshness", tag="Budgets", operation_id="show_freshness", answers={404: "There is no such budget."})
    async def freshness(
        self,
        *,
        budget: Annotated[Name | None, Query("Only this budget and its jobs.", examples=["news"])] = None,
        cursor: Cursor = None,
        limit: Limit = 50,
    ) -> FreshnessReport:
        """Show how late items are stored. The answer covers adaptive jobs.

        It has the measured delay, the requests and the gain over uniform polling of each budget, and the delay of each
        source, the slowest first. It lists at most 200 budgets.
        """
