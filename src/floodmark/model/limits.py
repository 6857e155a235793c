"""Rows of rate limits and circuit breakers."""

from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct


class LimitRow(Struct, frozen=True, kw_only=True):
    """A rate limit: all calls with `key` wait until a point in time."""

    key: str
    until: datetime
    reason: str
    hits: Annotated[int, Meta(description="How often the source asked to wait.")]
    updated_at: datetime
    rate: Annotated[float | None, Meta(description="Calls per second that it is limited to afterwards, if any.")] = None


class BreakerRow(Struct, frozen=True, kw_only=True):
    """A circuit breaker: it stops calls of the whole fleet after too many failures."""

    key: str
    state: Annotated[str, Meta(description="`closed`, `open` or `half-open`.")]
    failures: Annotated[int, Meta(description="Failures since `window_began`.")]
    window_began: datetime | None
    open_until: Annotated[datetime | None, Meta(description="When the next call is let through as a probe.")]
    probe_until: datetime | None
    trips: Annotated[int, Meta(description="How often it has opened.")]
    reason: str | None
    updated_at: datetime
