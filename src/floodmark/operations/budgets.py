"""Budgets: how many requests jobs may make together."""

from datetime import timedelta
from typing import Annotated

from floodmark.model.budget import DEFAULT_FAIRNESS, LEAST_REQUESTS, MOST_REQUESTS, BudgetRow, Period
from floodmark.model.field import TEN_YEARS
from floodmark.model.page import Page

from .declaration import Body, Each, Path, delete, get, put
from .words import Cursor, Limit, Name

_TAG = "Budgets"
_EXAMPLE = {"requests": 30, "period": "minute", "max_delay_seconds": 3600}

BudgetName = Annotated[Name, Path("The name of a budget.", examples=["news"])]


class BudgetOperations:
    """List, set and remove budgets."""

    @get("/budgets", tag=_TAG, operation_id="list_budgets")
    async def budgets(self, *, cursor: Cursor = None, limit: Limit = 50) -> Page[BudgetRow]:
        """List budgets. They are sorted by name."""

    each_budget = Each(budgets)

    @get("/budgets/{name}", tag=_TAG, operation_id="show_budget")
    async def budget(self, name: BudgetName) -> BudgetRow:
        """Show a budget. The answer has its requests, its use and its price."""

    @put(
        "/budgets/{name}",
        role="admin",
        tag=_TAG,
        body=("BudgetIn", "What a budget allows.", {"examples": [_EXAMPLE]}),
    )
    async def set_budget(
        self,
        name: BudgetName,
        requests: Annotated[
            float,
            Body("The maximum number of requests in a period.", ge=LEAST_REQUESTS, le=MOST_REQUESTS, examples=[30]),
        ],
        period: Annotated[Period, Body("`minute`, or `week`: the busy hours of the sources then get more.")] = "minute",
        *,
        max_delay: Annotated[
            timedelta | None,
            Body(
                "Its adaptive jobs run at least this often, unless they have a max_delay_seconds of their own.",
                name="max_delay_seconds",
                gt=0,
                le=TEN_YEARS,
                examples=[3600],
            ),
        ] = None,
        fairness: Annotated[
            float, Body("From 0, the least total delay, to 1, more runs for quiet sources.", ge=0, le=1)
        ] = DEFAULT_FAIRNESS,
    ) -> BudgetRow:
        """Create or change a budget. Values that are left out get their default. It takes effect at once.

        A change never allows more requests than the larger of both budgets.
        """

    @delete("/budgets/{name}", tag=_TAG)
    async def remove_budget(self, name: BudgetName) -> BudgetRow:
        """Remove a budget. Return what it was. Refused while jobs use it."""
