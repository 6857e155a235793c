"""Stored items as exports read them: rows with JSON that is not decoded, and the keys of changed items."""

from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, Struct

from .page import Page


class ExportRow(Struct, frozen=True, gc=False):
    """One revision of an item."""

    stream: str
    key: str
    revision: int
    is_newest: Annotated[bool, Meta(description="False if there is a later revision.")]
    deleted: Annotated[bool, Meta(description="Deleted at its source; its stored content stays.")]
    occurred_at: datetime | None
    collected_at: datetime
    tenant_id: str | None
    user_id: str | None
    execution_id: str | None
    content_hash: str
    position: Annotated[int | None, Meta(description="The position of its event; null in a list of stored items.")]
    data: Annotated[str, Meta(description="The item itself.")]
    beside: Annotated[
        dict[str, Any] | None,
        Meta(description="What the source stores beside the item: columns of exports that are no part of its data."),
    ] = None

    @property
    def time(self) -> datetime:
        """Return when it happened, or when it was collected if that is not known."""
        return self.occurred_at or self.collected_at


class ExportStream(Struct, frozen=True, kw_only=True):
    """A stream that has items, and the source that they come from."""

    stream: str
    source: Annotated[str, Meta(description="Its source; empty if it is not known.")]


class ChangedKey(Struct, frozen=True, kw_only=True, gc=False):
    """The revision of an item that an event is about."""

    stream: str
    key: str
    revision: int
    position: Annotated[int | None, Meta(description="The position of the event; null while it has none.")]


class LogBounds(Struct, frozen=True, kw_only=True):
    """The positions of the stored events.

    A reader at a position has missed no event if `oldest - 1 <= position <= newest`.
    """

    oldest: Annotated[int, Meta(description="The oldest stored event; one more than `newest` if there is none.")]
    newest: Annotated[int, Meta(description="The newest event, stored or already deleted; 0 before the first.")]

    def has_all_after(self, position: int) -> bool:
        """Return whether every event after this position is stored."""
        return self.oldest - 1 <= position <= self.newest


class ChangePage(Page[ExportRow], frozen=True, kw_only=True):
    """Changes in order."""

    log: Annotated[LogBounds, Meta(description="The stored events.")]
