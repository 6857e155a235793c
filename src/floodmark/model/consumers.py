"""Consumers of events for readers."""

from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, Struct


class ConsumerRow(Struct, frozen=True, kw_only=True):
    """How far a consumer has processed the events."""

    name: Annotated[str, Meta(description="Its kind and its name, such as `sink:webhook`.")]
    place: Annotated[str | None, Meta(description="Its destination, without secrets.")]
    position: Annotated[int, Meta(description="Every event up to this position was processed.")]
    state: Annotated[Any, Meta(description="What it remembers beside its position.")]
    paused: bool
    error: Annotated[str | None, Meta(description="Why its last attempt failed; null if it succeeded.")]
    failed_at: datetime | None
    moved_at: Annotated[datetime, Meta(description="When its position last changed.")]
