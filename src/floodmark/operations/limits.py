"""Rate limits and circuit breakers, which hold for the whole fleet."""

from typing import Annotated

from floodmark.model.limits import BreakerRow, LimitRow

from .declaration import WHOLE_LIST, Body, Path, Query, delete, get, post, put
from .words import Text

_A_MONTH = 30 * 86_400
_TAG = "Limits"

Key = Annotated[
    str, Path("What it limits. Write a `/` as `%2F`.", min_length=1, max_length=500, examples=["telegram:account:main"])
]
Most = Annotated[int, Query("The maximum number; there is no next page.", ge=1, le=500)]


class LimitOperations:
    """List, set and clear limits; list and reset circuit breakers."""

    @get("/limits", tag=_TAG, operation_id="list_limits", envelope=WHOLE_LIST)
    async def limits(
        self, *, with_past: Annotated[bool, Query("Include expired limits.", name="past")] = False, limit: Most = 100
    ) -> list[LimitRow]:
        """List limits. The longest wait comes first."""

    @put("/limits/{key}", tag=_TAG, body=("LimitIn", "How long to wait, and why."))
    async def set_limit(
        self,
        key: Key,
        seconds: Annotated[
            float, Body("The time from now. A limit is never shortened.", gt=0, le=_A_MONTH, examples=[600])
        ],
        reason: Annotated[Text, Body("Shown in answers to why a job waits.", examples=["maintenance"])],
    ) -> LimitRow:
        """Set a limit. Jobs with this `limit_key` wait, for example those of a host or account."""

    @delete("/limits/{key}", role="operate", tag=_TAG)
    async def clear_limit(self, key: Key) -> LimitRow:
        """Clear a limit. Return what it was. Jobs continue at once; the next rate-limit response may set it again."""

    @get("/breakers", tag=_TAG, operation_id="list_breakers", envelope=WHOLE_LIST)
    async def breakers(self, *, limit: Most = 100) -> list[BreakerRow]:
        """List circuit breakers. These are those with recent failures, open ones first."""

    @post("/breakers/{key}/reset", tag=_TAG)
    async def reset_breaker(self, key: Key) -> BreakerRow:
        """Reset a breaker. Return what it was. Calls pass at once; it opens again if they fail."""
