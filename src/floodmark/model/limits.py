"""Rate limits and circuit breakers, as they are listed."""

from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct


class LimitRow(Struct, frozen=True, kw_only=True):
    """Everything under a key waits until a certain time."""

    key: str
    until: datetime
    reason: str
    hits: Annotated[int, Meta(description="How often it was told to wait.")]
    updated_at: datetime
    rate: Annotated[float | None, Meta(description="Calls a second that it is slowed down to afterwards, if any.")] = (
        None
    )


class BreakerRow(Struct, frozen=True, kw_only=True):
    """Stops calls after too many failures, for the whole fleet."""

    key: str
    state: Annotated[str, Meta(description="closed, open or half-open.")]
    failures: Annotated[int, Meta(description="Those since window_began.")]
    window_began: datetime | None
    open_until: Annotated[datetime | None, Meta(description="When a call is let through to see.")]
    probe_until: datetime | None
    trips: Annotated[int, Meta(description="How often it has opened.")]
    reason: str | None
    updated_at: datetime
