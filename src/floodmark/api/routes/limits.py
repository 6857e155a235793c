"""Who has to wait: limits, which hold for the whole fleet, and breakers."""

from typing import Annotated, Any

from fastapi import Path as InPath
from fastapi import Query
from msgspec.structs import asdict
from pydantic import Field
from starlette.responses import Response

from floodmark.api.deps import Operating, Reading
from floodmark.api.models import Given, Text, model_of
from floodmark.api.paging import Page
from floodmark.api.routing import answer, router
from floodmark.outbound.breakers import BreakerRow
from floodmark.outbound.limits import LimitRow

limits = router(tag="Limits")

_A_MONTH = 30 * 86_400
Key = Annotated[
    str,
    InPath(
        description="Whom it is about. Write a `/` as `%2F`.",
        min_length=1,
        max_length=500,
        examples=["telegram:account:main"],
    ),
]
Most = Annotated[int, Query(ge=1, le=500, description="How many at most; there is no next page.")]

LimitOut: Any = model_of(
    "LimitOut",
    LimitRow,
    "Everything under a key waits until a certain time.",
    {
        "hits": "How often it was told to wait.",
        "rate": "Calls a second that it is slowed down to afterwards, if any.",
    },
)
BreakerOut: Any = model_of(
    "BreakerOut",
    BreakerRow,
    "Stops calls after too many failures, for the whole fleet.",
    {
        "state": "closed, open or half-open.",
        "failures": "Those since window_began.",
        "trips": "How often it has opened.",
        "open_until": "When a call is let through to see.",
    },
)


class LimitIn(Given):
    """How long to wait, and why."""

    seconds: float = Field(gt=0, le=_A_MONTH, description="From now on. A limit is never shortened.", examples=[600])
    reason: Text = Field(description="Shown wherever someone asks why it waits.", examples=["maintenance"])


@limits.get("/limits", response_model=Page[LimitOut], summary="List limits")
async def list_limits(
    office: Reading,
    past: Annotated[bool, Query(description="Also those that are over.")] = False,
    limit: Most = 100,
) -> Response:
    """What has to wait, the longest first."""
    found = await office.limits(with_past=past, limit=limit)
    return answer({"items": [asdict(row) for row in found], "next": None})


@limits.put("/limits/{key}", response_model=LimitOut, summary="Let everything under a key wait")
async def set_limit(office: Operating, key: Key, body: LimitIn) -> Response:
    """Pause a host, an account or whatever else has a key: jobs with that `limit_key` wait."""
    return answer(asdict(await office.set_limit(key, body.seconds, body.reason)))


@limits.delete("/limits/{key}", response_model=LimitOut, summary="Lift a limit")
async def clear_limit(office: Operating, key: Key) -> Response:
    """Go on at once, at full pace; the answer is what it was. Whoever set it may set it again."""
    return answer(asdict(await office.clear_limit(key)))


@limits.get("/breakers", response_model=Page[BreakerOut], summary="List breakers")
async def list_breakers(office: Reading, limit: Most = 100) -> Response:
    """List circuit breakers with recent failures, the open ones first."""
    return answer({"items": [asdict(row) for row in await office.breakers(limit=limit)], "next": None})


@limits.post("/breakers/{key}/reset", response_model=BreakerOut, summary="Close a breaker")
async def reset_breaker(office: Operating, key: Key) -> Response:
    """Let calls through again at once; the answer is what it was. It opens again if they fail."""
    return answer(asdict(await office.reset_breaker(key)))
