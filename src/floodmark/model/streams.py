"""What was collected, as readers get it: streams, their watermarks and their items."""

from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, Struct

from .batch import Watermark


class StreamState(Struct, frozen=True, kw_only=True):
    """How far a stream is collected."""

    stream: str
    value: Annotated[Watermark | None, Meta(description="Only its source understands it; null before the first run.")]
    fence: Annotated[int, Meta(description="Grows whenever the stream changes hands.")]
    holder: Annotated[
        str | None, Meta(description="The execution that collects it, while lease_until is in the future.")
    ] = None
    lease_until: datetime | None = None
    high_water: Annotated[Any, Meta(description="The newest thing kept by a run that has not finished.")] = None
    moved_at: datetime | None = None
    last_parsed_at: datetime | None = None
    last_checked_at: datetime | None = None
    items_stream: Annotated[
        str | None, Meta(description="Where its items are, when that is not the stream itself.")
    ] = None


class StoredItem(Struct, frozen=True, kw_only=True):
    """One revision of an item."""

    stream: str
    key: str
    revision: int
    occurred_at: datetime | None
    collected_at: datetime
    data: Annotated[Any, Meta(description="The item itself.")]
    content_hash: str
    deleted: Annotated[bool, Meta(description="Gone at its source; what was kept of it stays.")]
    execution_id: str | None


class ItemHistory(Struct, frozen=True, kw_only=True):
    """An item as it is now, and as it was before."""

    newest: StoredItem
    earlier: Annotated[tuple[StoredItem, ...], Meta(description="Earlier revisions, newest first.")] = ()


class ChatShown(Struct, frozen=True, kw_only=True):
    """A Telegram chat."""

    id: Annotated[int, Meta(description="Its number, which never changes.")]
    tenant_id: str | None
    username: Annotated[str | None, Meta(description="As far as it is known.")]
    title: Annotated[str | None, Meta(description="As far as it is known.")]


class StreamShown(Struct, frozen=True, kw_only=True):
    """A stream that holds something."""

    stream: str
    chat: Annotated[ChatShown | None, Meta(description="Whose posts these are; null if they are something else.")]
