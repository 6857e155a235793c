"""Rate limits and circuit breakers, which hold for the whole fleet."""

from typing import Annotated

from floodmark.model.limits import BreakerRow, LimitRow

from .declaration import WHOLE_LIST, Body, Path, Query, delete, get, post, put
from .words import Text

_A_MONTH = 30 * 86_400
_TAG = "Limits"

Key = Annotated[
    str,
    Path(
        description="Whom it is about. Write a `/` as `%2F`.",
        min_length=1,
        max_length=500,
        examples=["telegram:account:main"],
    ),
]
Most = Annotated[int, Query(ge=1, le=500, description="How many at most; there is no next page.")]


class LimitOperations:
    """List, set and clear limits; list and reset circuit breakers."""

    @get("/limits", tag=_TAG, operation_id="list_limits", envelope=WHOLE_LIST)
    async def limits(
        self,
        *,
        with_past: Annotated[bool, Query("past", description="Also those that are over.")] = False,
        limit: Most = 100,
    ) -> list[LimitRow]:
        """List limits.

        What has to wait, the longest first.
        """

    @put("/limits/{key}", tag=_TAG, body=("LimitIn", "How long to wait, and why."))
    async def set_limit(
        self,
        key: Key,
        seconds: Annotated[
            float,
            Body(gt=0, le=_A_MONTH, description="From now on. A limit is never shortened.", examples=[600]),
        ],
        reason: Annotated[
            Text, Body(description="Shown wherever someone asks why it waits.", examples=["maintenance"])
        ],
    ) -> LimitRow:
        """Let everything under a key wait.

        Pause a host, an account or whatever else has a key: jobs with that `limit_key` wait.
        """

    @delete("/limits/{key}", role="operate", tag=_TAG)
    async def clear_limit(self, key: Key) -> LimitRow:
        """Lift a limit.

        Go on at once, at full pace; the answer is what it was. The next rate-limit response may set it again.
        """

    @get("/breakers", tag=_TAG, operation_id="list_breakers", envelope=WHOLE_LIST)
    async def breakers(self, *, limit: Most = 100) -> list[BreakerRow]:
        """List breakers.

        List circuit breakers with recent failures, the open ones first.
        """

    @post("/breakers/{key}/reset", tag=_TAG)
    async def reset_breaker(self, key: Key) -> BreakerRow:
        """Close a breaker.

        Let calls through again at once; the answer is what it was. It opens again if they fail.
        """
