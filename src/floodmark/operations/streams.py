"""Collected data: watermarks, items, events."""

from collections.abc import Mapping
from datetime import date, datetime
from typing import Annotated, Any

from msgspec import Meta, Struct

from floodmark.errors import InvalidInput
from floodmark.model.audit import AuditRow
from floodmark.model.minutes import StreamDay
from floodmark.model.page import Page
from floodmark.model.streams import ChatShown, ItemHistory, StoredItem, StreamShown, StreamState
from floodmark.store.port import Event

from .declaration import WHOLE_LIST, Body, Derived, Each, Path, Query, delete, get, put
from .words import Cursor, Limit, Text

# The largest position, and the largest page of events.
FARTHEST, MOST_EVENTS = 2**62, 999
MOST_REVISIONS = 1000
_TAG = "Streams"

StreamName = Annotated[
    Text,
    Path("A stream, or a job that collects it. Write a `/` in its name as `%2F`.", examples=["telegram:@example_news"]),
]
DryRun = Annotated[bool, Query("Report what would be done, and change nothing.")]


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise InvalidInput(f"{text!r} is not a day", hint="write it like 2026-01-31") from None


Day = Annotated[
    date | None,
    Query(
        "A UTC day.",
        type=str | None,
        send=date.isoformat,
        read=_day,
        pattern=r"^\d{4}-\d{2}-\d{2}$",
        examples=["2026-01-31"],
        json_schema_extra={"format": "date"},
    ),
]


class WatermarkMoved(Struct, frozen=True, kw_only=True):
    """A watermark before and after a change."""

    stream: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    applied: Annotated[bool, Meta(description="False for a dry run.")]
    watermark: Annotated[
        StreamState | None, Meta(description="Its current state; null if the stream was never collected.")
    ]


class StreamDescription(Struct, frozen=True, kw_only=True):
    """A stream, and the number of its items."""

    stream: Annotated[str, Meta(description="The stream that contains the items.")]
    items: Annotated[int, Meta(description="Their number, tombstones included. They are counted on each request.")]
    chat: Annotated[
        ChatShown | None, Meta(description="The chat of the posts; null if it contains something else.")
    ] = None


class EventPage(Page[Event], frozen=True, kw_only=True):
    """Events in order."""

    last_position: Annotated[int, Meta(description="The position of the newest event.")]
    oldest_position: Annotated[
        int, Meta(description="The position of the oldest event; earlier ones were deleted. One more if there is none.")
    ] = 1


class StreamOperations:
    """Read what was collected; show and move watermarks."""

    @get("/watermarks", tag=_TAG, operation_id="list_watermarks")
    async def watermarks(self, *, cursor: Cursor = None, limit: Limit = 50) -> Page[StreamState]:
        """List watermarks. They say how far each stream is collected, sorted by name."""

    each_watermark = Each(watermarks)

    @get("/watermarks/{stream}", tag=_TAG, operation_id="show_watermark")
    async def watermark(self, stream: StreamName) -> StreamState:
        """Show a watermark. It says how far the stream is collected."""

    @get("/watermarks/{stream}/history", tag=_TAG)
    async def watermark_history(
        self, stream: StreamName, *, cursor: Cursor = None, limit: Limit = 50
    ) -> Page[AuditRow]:
        """Show who moved a watermark. Manual changes only, newest first; those by runs are in their executions."""

    @put("/watermarks/{stream}", tag=_TAG, operation_id="set_watermark", body=("WatermarkIn", "The new watermark."))
    async def move_watermark(
        self,
        stream: StreamName,
        value: Annotated[
            Mapping[str, Any],
            Body("The watermark, in the form of its source.", type=dict[str, Any], examples=[{"id": 4812}]),
        ],
        *,
        dry_run: DryRun = False,
    ) -> WatermarkMoved:
        """Set a watermark. Collection continues from there; a current run stores nothing more, items stay known."""

    @Derived
    async def set_watermark(self, stream: str, value: Mapping[str, Any]) -> StreamState:
        """Set a watermark, and return it."""
        return _state_of(await self.move_watermark(stream, value))

    @delete("/watermarks/{stream}", role="operate", tag=_TAG, operation_id="reset_watermark")
    async def clear_watermark(self, stream: StreamName, *, dry_run: DryRun = False) -> WatermarkMoved:
        """Reset a watermark. The next run starts at the beginning; stored items are not collected twice."""

    @Derived
    async def reset_watermark(self, stream: str) -> StreamState:
        """Reset a watermark, and return it."""
        return _state_of(await self.clear_watermark(stream))

    @get("/streams", tag=_TAG, operation_id="list_streams_of_items")
    async def streams(
        self,
        *,
        chats: Annotated[bool, Query("Only streams with the posts of a chat.")] = False,
        cursor: Cursor = None,
        limit: Limit = 50,
    ) -> Page[StreamShown]:
        """List streams. These are the streams that contain items, sorted by name."""

    each_stream = Each(streams)

    @get("/streams/{stream}", tag=_TAG, operation_id="show_stream")
    async def describe_stream(self, stream: StreamName) -> StreamDescription:
        """Count the items of a stream. The answer names the stream that contains the items of a stream or job."""

    @Derived
    async def stream(self, name: str) -> tuple[str, int]:
        """Return the stream that contains the items of a stream or job, and their number."""
        found = await self.describe_stream(name)
        return found.stream, found.items

    @Derived
    async def chat(self, stream: str) -> ChatShown | None:
        """Return the chat whose posts a stream contains; None if it contains something else."""
        return (await self.describe_stream(stream)).chat

    @get("/streams/{stream}/days", tag=_TAG, operation_id="list_days", envelope=WHOLE_LIST)
    async def days(self, stream: StreamName, *, since: Day = None, until: Day = None) -> list[StreamDay]:
        """Count items by day. New and changed items of each UTC day on which they were stored, oldest first.

        Days without items are left out; the newest 4,000 are listed. New items are counted within seconds.
        """

    @get("/streams/{stream}/items", tag=_TAG, operation_id="list_items", is_content=True)
    async def items(
        self, stream: StreamName, *, since: Day = None, until: Day = None, cursor: Cursor = None, limit: Limit = 50
    ) -> Page[StoredItem]:
        """List items. They are sorted by key, each in its newest revision.

        With `since` or `until` they are sorted by time: what happened on these UTC days, both ends included.
        """

    each_item = Each(items)

    @get("/streams/{stream}/newest", tag=_TAG, operation_id="list_newest_items")
    async def newest_items(
        self,
        stream: StreamName,
        *,
        since: Annotated[Annotated[datetime, Meta(tz=True)] | None, Query("Only items since this time.")] = None,
        cursor: Cursor = None,
        limit: Limit = 50,
    ) -> Page[StoredItem]:
        """List the newest items. They are sorted by the time they happened, else by the time they were collected."""

    each_newest_item = Each(newest_items)

    @get("/streams/{stream}/items/{key}", tag=_TAG, operation_id="show_item", is_content=True)
    async def item(
        self,
        stream: StreamName,
        key: Annotated[Text, Path("The key of the item.")],
        *,
        before: Annotated[int | None, Query("Only earlier revisions before this one.", ge=1, le=2**31)] = None,
        limit: Annotated[
            int, Query("The maximum number of earlier revisions.", ge=0, le=MOST_REVISIONS)
        ] = MOST_REVISIONS,
    ) -> ItemHistory:
        """Show an item. The answer includes its earlier revisions."""

    @get("/events", tag=_TAG, operation_id="list_events", is_content=True)
    async def events(
        self,
        *,
        after: Annotated[int, Query("The position of the last event you have processed.", ge=0, le=FARTHEST)] = 0,
        stream: Annotated[Text | None, Query("Only of this stream or job.")] = None,
        cursor: Cursor = None,
        limit: Annotated[int, Query("The maximum number.", ge=1, le=MOST_EVENTS)] = 100,
    ) -> EventPage:
        """Read events. There is one event for each new or changed item, in order.

        To follow them, keep the last `position` and ask for events `after` it.
        """

    each_event = Each(events)

    @Derived
    async def last_position(self) -> int:
        """Return the position of the newest event."""
        return (await self.events(limit=1)).last_position


def _state_of(moved: WatermarkMoved) -> StreamState:
    assert moved.watermark is not None
    return moved.watermark
