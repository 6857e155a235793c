"""Collected data for readers: streams, their watermarks and their items."""

from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, Struct

from .batch import Watermark


class StreamState(Struct, frozen=True, kw_only=True):
    """How far a stream is collected."""

    stream: str
    value: Annotated[
        Watermark | None, Meta(description="The watermark, in the format of its source; null before the first run.")
    ]
    fence: Annotated[int, Meta(description="Increases whenever another execution takes over the stream.")]
    holder: Annotated[
        str | None, Meta(description="The execution that collects it, while lease_until is in the future.")
    ] = None
    lease_until: datetime | None = None
    high_water: Annotated[Any, Meta(description="The newest item stored by an unfinished run.")] = None
    moved_at: datetime | None = None
    last_parsed_at: datetime | None = None
    last_checked_at: datetime | None = None
    items_stream: Annotated[str | None, Meta(description="The stream of its items, if it is another one.")] = None


class StoredItem(Struct, frozen=True, kw_only=True):
    """One revision of an item."""

    stream: str
    key: str
    revision: int
    occurred_at: datetime | None
    collected_at: datetime
    data: Annotated[Any, Meta(description="The item itself.")]
    content_hash: str
    deleted: Annotated[bool, Meta(description="Deleted at its source; its stored content stays.")]
    execution_id: str | None


class ItemHistory(Struct, frozen=True, kw_only=True):
    """The current revision of an item and the earlier ones."""

    newest: StoredItem
    earlier: Annotated[tuple[StoredItem, ...], Meta(description="Earlier revisions, newest first.")] = ()


class ChatShown(Struct, frozen=True, kw_only=True):
    """A Telegram chat."""

    id: Annotated[int, Meta(description="Its number, which never changes.")]
    tenant_id: str | None
    username: Annotated[str | None, Meta(description="null if it is not known.")]
    title: Annotated[str | None, Meta(description="null if it is not known.")]


class StreamShown(Struct, frozen=True, kw_only=True):
    """A stream that has items."""

    stream: str
    chat: Annotated[ChatShown | None, Meta(description="The chat of its posts; null if its items are not posts.")]
