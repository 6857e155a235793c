"""What was collected, and how far: watermarks, items, events."""

from collections.abc import Mapping
from datetime import date, datetime
from typing import Annotated, Any

from msgspec import Meta, Struct

from floodmark.errors import InvalidInput
from floodmark.model.audit import AuditRow
from floodmark.model.page import Page
from floodmark.model.streams import ChatShown, ItemHistory, StoredItem, StreamShown, StreamState
from floodmark.store.port import Event

from .declaration import Body, Derived, Each, Path, Query, delete, get, put
from .words import Cursor, Limit, Text

# The largest position that a reader may ask for, and the most events that are read at once.
FARTHEST, MOST_EVENTS = 2**62, 999
_TAG = "Streams"

StreamName = Annotated[
    str,
    Path(
        description="A stream, or a job that collects it. Write a `/` in its name as `%2F`.",
        min_length=1,
        max_length=2000,
        examples=["telegram:@example_news"],
    ),
]
DryRun = Annotated[bool, Query(description="Only tell what would be done.")]


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise InvalidInput(f"{text!r} is not a day", hint="write it like 2026-01-31") from None


Day = Annotated[
    date | None,
    Query(
        type=str | None,
        send=date.isoformat,
        read=_day,
        description="A UTC day.",
        pattern=r"^\d{4}-\d{2}-\d{2}$",
        examples=["2026-01-31"],
        json_schema_extra={"format": "date"},
    ),
]


class WatermarkMoved(Struct, frozen=True, kw_only=True):
    """What a watermark was, and is now."""

    stream: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    applied: Annotated[bool, Meta(description="False for a dry run.")]
    watermark: Annotated[StreamState | None, Meta(description="As it is now; null if the stream was never collected.")]


class StreamDescription(Struct, frozen=True, kw_only=True):
    """A stream and how much it holds."""

    stream: Annotated[str, Meta(description="Where the items are.")]
    items: Annotated[int, Meta(description="How many, tombstones included. Counted each time it is asked for.")]
    chat: Annotated[ChatShown | None, Meta(description="Whose posts these are; null if they are something else.")] = (
        None
    )


class EventPage(Page[Event], frozen=True, kw_only=True):
    """Events in order."""

    last_position: Annotated[int, Meta(description="The position of the newest event there is.")]


class StreamOperations:
    """Read what was collected; show and move watermarks."""

    @get("/watermarks", tag=_TAG, operation_id="list_watermarks")
    async def watermarks(self, *, cursor: Cursor = None, limit: Limit = 50) -> Page[StreamState]:
        """List watermarks.

        How far each stream is collected, in order of name.
        """

    each_watermark = Each(watermarks)

    @get("/watermarks/{stream}", tag=_TAG, operation_id="show_watermark")
    async def watermark(self, stream: StreamName) -> StreamState:
        """Show a watermark.

        How far one stream is collected.
        """

    @get("/watermarks/{stream}/history", tag=_TAG)
    async def watermark_history(
        self, stream: StreamName, *, cursor: Cursor = None, limit: Limit = 50
    ) -> Page[AuditRow]:
        """Show who moved a watermark.

        Every time it was set or reset by someone, newest first. What runs move is in their executions.
        """

    @put("/watermarks/{stream}", tag=_TAG, operation_id="set_watermark", body=("WatermarkIn", "Where to go on from."))
    async def move_watermark(
        self,
        stream: StreamName,
        value: Annotated[
            Mapping[str, Any],
            Body(type=dict[str, Any], description="As its source writes it.", examples=[{"id": 4812}]),
        ],
        *,
        dry_run: DryRun = False,
    ) -> WatermarkMoved:
        """Set a watermark.

        Go on from there. A run that is under way keeps nothing more; items that are kept stay known.
        """

    @Derived
    async def set_watermark(self, stream: str, value: Mapping[str, Any]) -> StreamState:
        """Set a watermark, and return it."""
        return _moved(await self.move_watermark(stream, value))

    @delete("/watermarks/{stream}", role="operate", tag=_TAG, operation_id="reset_watermark")
    async def clear_watermark(self, stream: StreamName, *, dry_run: DryRun = False) -> WatermarkMoved:
        """Reset a watermark.

        Let the next run begin at the beginning. Items that are kept stay known, and are not collected twice.
        """

    @Derived
    async def reset_watermark(self, stream: str) -> StreamState:
        """Reset a watermark, and return it."""
        return _moved(await self.clear_watermark(stream))

    @get("/streams", tag=_TAG, operation_id="list_streams_of_items")
    async def streams(
        self,
        *,
        chats: Annotated[bool, Query(description="Only those that hold the posts of a chat.")] = False,
        cursor: Cursor = None,
        limit: Limit = 50,
    ) -> Page[StreamShown]:
        """List streams.

        The streams that hold items, in order of name.
        """

    each_stream = Each(streams)

    @get("/streams/{stream}", tag=_TAG, operation_id="show_stream")
    async def describe_stream(self, stream: StreamName) -> StreamDescription:
        """Count the items of a stream.

        Where the items of a stream or job are, and how many.
        """

    @Derived
    async def stream(self, name: str) -> tuple[str, int]:
        """Return the stream that holds the items of a stream or job, and how many items there are."""
        found = await self.describe_stream(name)
        return found.stream, found.items

    @Derived
    async def chat(self, stream: str) -> ChatShown | None:
        """Return the chat whose posts a stream holds; None if it holds something else."""
        return (await self.describe_stream(stream)).chat

    @get("/streams/{stream}/items", tag=_TAG, operation_id="list_items", is_content=True)
    async def items(
        self,
        stream: StreamName,
        *,
        since: Day = None,
        until: Day = None,
        cursor: Cursor = None,
        limit: Limit = 50,
    ) -> Page[StoredItem]:
        """List items.

        The items of a stream or job in order of key, each in its newest revision.

        With `since` or `until` in order of time: what happened on these UTC days, both ends included.
        """

    each_item = Each(items)

    @get("/streams/{stream}/newest", tag=_TAG, operation_id="list_newest_items")
    async def newest_items(
        self,
        stream: StreamName,
        *,
        since: Annotated[
            Annotated[datetime, Meta(tz=True)] | None, Query(description="Only from this moment on.")
        ] = None,
        cursor: Cursor = None,
        limit: Limit = 50,
    ) -> Page[StoredItem]:
        """List the newest items.

        The items of a stream or job, newest first: by when they happened, else by when they were collected.
        """

    each_newest_item = Each(newest_items)

    @get("/streams/{stream}/items/{key}", tag=_TAG, operation_id="show_item", is_content=True)
    async def item(
        self,
        stream: StreamName,
        key: Annotated[str, Path(description="The key of the item.", min_length=1, max_length=2000)],
    ) -> ItemHistory:
        """Show an item.

        One item with its earlier revisions.
        """

    @get("/events", tag=_TAG, operation_id="list_events", is_content=True)
    async def events(
        self,
        *,
        after: Annotated[
            int, Query(ge=0, le=FARTHEST, description="The position of the last event you have dealt with.")
        ] = 0,
        stream: Annotated[Text | None, Query(description="Only of this stream or job.")] = None,
        cursor: Cursor = None,
        limit: Annotated[int, Query(ge=1, le=MOST_EVENTS, description="How many at most.")] = 100,
    ) -> EventPage:
        """Read events.

        One event for each new or changed item, in order. To follow them, keep the last `position` and ask `after` it.
        """

    each_event = Each(events)

    @Derived
    async def last_position(self) -> int:
        """Return the position of the newest event."""
        return (await self.events(limit=1)).last_position


def _moved(moved: WatermarkMoved) -> StreamState:
    assert moved.watermark is not None
    return moved.watermark
