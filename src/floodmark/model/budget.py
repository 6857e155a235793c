"""Rows of budgets."""

from datetime import datetime
from typing import Annotated, Literal

from msgspec import Meta, Struct

Period = Literal["minute", "week"]

DEFAULT_FAIRNESS = 0.25
LEAST_REQUESTS, MOST_REQUESTS = 0.01, 1_000_000


class BudgetRow(Struct, frozen=True, kw_only=True):
    """A budget: the requests that its jobs may make together in any minute, or in any week."""

    name: str
    requests: Annotated[float, Meta(description="The maximum number of requests in a period.")]
    period: Annotated[Period, Meta(description="The period: `minute` or `week`.")]
    max_delay_seconds: Annotated[
        float | None,
        Meta(
            description="Its adaptive jobs run at least this often, unless they have a max_delay_seconds of their own. "
            "Null: four times the time between two runs if all jobs got the same number of requests."
        ),
    ]
    fairness: Annotated[float, Meta(description="From 0, the least total delay, to 1, more runs for quiet sources.")]
    sources: Annotated[int, Meta(description="Its adaptive jobs, as last counted by the leader.")]
    price: Annotated[
        float | None, Meta(description="The expected delay at which a source is worth a request, in item-seconds.")
    ]
    used_this_hour: Annotated[int, Meta(description="Requests since the start of this hour.")]
    used_this_week: Annotated[int, Meta(description="Requests of the last seven days.")]
    next_free: Annotated[datetime, Meta(description="The earliest time of the next request.")]
    version: Annotated[int, Meta(description="Counts the changes by people, from 1.")]
    created_at: datetime
    updated_at: datetime
