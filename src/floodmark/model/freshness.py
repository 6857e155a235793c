"""How late items are stored, by source and by budget."""

from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct

_FADES = "Half of what was measured is forgotten every seven days."

Seconds = Annotated[float | None, Meta(description="In seconds; null if nothing was measured yet.")]


class DelayForecast(Struct, frozen=True, kw_only=True):
    """The mean delay that another number of requests would bring, estimated from the measured one."""

    factor: Annotated[float, Meta(description="Requests, compared with the budget.", examples=[2])]
    requests: Annotated[float, Meta(description="The maximum number of requests in a period.", examples=[60])]
    mean_delay_seconds: float


class BudgetFreshness(Struct, frozen=True, kw_only=True):
    """How late the items of the adaptive jobs of a budget are stored, and what its requests bring."""

    name: str
    requests: Annotated[float, Meta(description="The maximum number of requests in a period.")]
    period: Annotated[str, Meta(description="The period: `minute` or `week`.")]
    sources: Annotated[int, Meta(description="Its adaptive jobs that are neither paused nor disabled.")]
    never_polled: Annotated[int, Meta(description="Those of them that have not run yet.")]
    price: Annotated[
        float | None, Meta(description="The expected delay at which a source is worth a request, in item-seconds.")
    ]
    since: Annotated[datetime, Meta(description="`allowed` and `used` count from this hour: a day, or a week, ago.")]
    allowed: Annotated[float, Meta(description="Requests that the budget allowed since then.")]
    used: Annotated[int, Meta(description="Requests that its jobs made since then.")]
    polls: Annotated[float, Meta(description=f"Measured polls. {_FADES}")]
    expected: Annotated[float, Meta(description=f"Items that they were expected to find. {_FADES}")]
    found: Annotated[float, Meta(description=f"New items that they found. {_FADES}")]
    mean_delay_seconds: Seconds
    median_delay_seconds: Seconds
    p95_delay_seconds: Seconds
    uniform_delay_seconds: Annotated[
        float | None,
        Meta(description="The mean delay if the same number of polls were spread evenly over the sources."),
    ]
    gain: Annotated[
        float | None, Meta(description="How many times sooner items are stored than with uniform polling: measured.")
    ]
    best_fixed_gain: Annotated[
        float | None,
        Meta(description="The gain of the best fixed allocation of polls to sources, by the rates of their items."),
    ]
    forecasts: Annotated[list[DelayForecast], Meta(description="What half, double and four times the budget bring.")]


class JobFreshness(Struct, frozen=True, kw_only=True):
    """How late the items of one adaptive job are stored."""

    job_id: str
    name: str
    source: Annotated[str, Meta(description="Kind of source.", examples=["telegram"])]
    budget: str
    mean_delay_seconds: Seconds
    median_delay_seconds: Seconds
    p95_delay_seconds: Seconds
    expected: Annotated[float, Meta(description=f"Items that its polls were expected to find. {_FADES}")]
    found: Annotated[float, Meta(description=f"New items that its polls found. {_FADES}")]
    polls: Annotated[float, Meta(description=f"Measured polls. {_FADES}")]
    requests: Annotated[float, Meta(description=f"Requests of these polls. {_FADES}")]
    interval_seconds: Annotated[float | None, Meta(description="The mean time between two polls.")]
    last_poll: Annotated[datetime | None, Meta(description="Null if it was never polled.")]
    next_run: Annotated[datetime | None, Meta(description="When it is due; null if it is not planned yet.")]
    hinted_at: Annotated[datetime | None, Meta(description="When a hint said that there is something new.")]


class FreshnessReport(Struct, frozen=True, kw_only=True):
    """How late items are stored: the budgets in order of name, and some of their sources, the slowest first."""

    budgets: list[BudgetFreshness]
    sources: list[JobFreshness]
    next: Annotated[str | None, Meta(description="The `cursor` of the next sources; null if there are none.")] = None
    measured_at: Annotated[
        datetime | None, Meta(description="When the leader measured it; null if it was computed for this answer.")
    ] = None
