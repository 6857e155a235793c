"""Consumers of events for readers."""

from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, Struct

from .exports import LogBounds


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


class ConsumerState(Struct, frozen=True, kw_only=True):
    """The stored position of a reader or an export, and the events that it can read."""

    name: Annotated[str, Meta(description="Its kind and its name: `reader:indexer`, `export:nightly`.")]
    place: Annotated[str | None, Meta(description="The destination of an export.")]
    position: Annotated[int, Meta(description="Every event up to this position was processed.")]
    state: Annotated[Any, Meta(description="What it remembers beside its position.")]
    moved_at: Annotated[datetime, Meta(description="When its position last changed.")]
    log: Annotated[LogBounds, Meta(description="The stored events.")]

    @property
    def lag(self) -> int:
        """Return the number of events that it has not processed."""
        return max(0, self.log.newest - max(self.position, self.log.oldest - 1))
