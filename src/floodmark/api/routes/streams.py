"""What was collected, and how far: watermarks, items, events."""

from datetime import UTC, date, datetime, time, timedelta
from typing import Annotated, Any

from fastapi import Path as InPath
from fastapi import Query
from msgspec.structs import asdict
from pydantic import AwareDatetime, BaseModel, Field
from starlette.responses import Response

from floodmark.api.deps import Operating, Reading
from floodmark.api.models import AuditOut, Given, Text, model_of
from floodmark.api.paging import Cursor, Limit, Page, key_of, page
from floodmark.api.routing import answer, router
from floodmark.errors import InvalidInput, NotFound
from floodmark.model.shapes import event_shape
from floodmark.operations.local import LocalOffice
from floodmark.sources.telegram.stored_posts import ChatShown, Posts, StreamShown
from floodmark.store.events import StoredItem
from floodmark.store.port import Event
from floodmark.store.watermarks import StreamState

streams = router(tag="Streams")

MOST_EVENTS = 1000
_FAR = 2**62

StreamName = Annotated[
    str,
    InPath(
        description="A stream, or a job that collects it. Write a `/` in its name as `%2F`.",
        min_length=1,
        max_length=2000,
        examples=["telegram:@example_news"],
    ),
]
Day = Annotated[
    str | None,
    Query(
        description="A UTC day.",
        pattern=r"^\d{4}-\d{2}-\d{2}$",
        examples=["2026-01-31"],
        json_schema_extra={"format": "date"},
    ),
]
DryRun = Annotated[bool, Query(description="Only tell what would be done.")]

WatermarkOut: Any = model_of(
    "WatermarkOut",
    StreamState,
    "How far a stream is collected.",
    {
        "value": "Only its source understands it; null before the first run.",
        "fence": "Grows whenever the stream changes hands.",
        "holder": "The execution that collects it, while lease_until is in the future.",
        "high_water": "The newest thing kept by a run that has not finished.",
        "items_stream": "Where its items are, when that is not the stream itself.",
    },
)
ItemOut: Any = model_of(
    "ItemOut",
    StoredItem,
    "One revision of an item.",
    {"data": "The item itself.", "deleted": "Gone at its source; what was kept of it stays."},
)
ChatOut: Any = model_of(
    "ChatOut",
    ChatShown,
    "A Telegram chat.",
    {"id": "Its number, which never changes.", "username": "As far as it is known.", "title": "As far as it is known."},
)
_EventFields: Any = model_of("EventFields", Event, "Something new or changed in a stream.")


class EventOut(_EventFields):  # type: ignore[misc] # a model that is made at run time
    """Something new or changed in a stream. `event_id` is stable: deduplicate by it."""

    data: Any = Field(description="The item, or what the schema named by `type` describes.")


class WatermarkMovedOut(BaseModel):
    """What a watermark was, and is now."""

    stream: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    applied: bool = Field(description="False for a dry run.")
    watermark: WatermarkOut | None = Field(description="As it is now; null if the stream was never collected.")


class WatermarkIn(Given):
    """Where to go on from."""

    value: dict[str, Any] = Field(description="As its source writes it.", examples=[{"id": 4812}])


class StreamOut(BaseModel):
    """A stream and how much it holds."""

    stream: str = Field(description="Where the items are.")
    items: int = Field(description="How many, tombstones included. Counted each time it is asked for.")
    chat: ChatOut | None = Field(description="Whose posts these are; null if they are something else.")


class StreamShownOut(BaseModel):
    """A stream that holds something."""

    stream: str
    chat: ChatOut | None = Field(description="Whose posts these are; null if they are something else.")


class ItemHistoryOut(BaseModel):
    """An item as it is now, and as it was before."""

    newest: ItemOut
    earlier: list[ItemOut] = Field(description="Earlier revisions, newest first.")


class EventsOut(Page[EventOut]):
    """Events in order."""

    last_position: int = Field(description="The position of the newest event there is.")


@streams.get("/watermarks", response_model=Page[WatermarkOut], summary="List watermarks")
async def list_watermarks(office: Reading, cursor: Cursor = None, limit: Limit = 50) -> Response:
    """How far each stream is collected, in order of name."""
    key = key_of("watermarks", cursor, str)
    found = await office.watermarks(after=None if key is None else key[0], limit=limit + 1)
    return answer(page(found, limit, "watermarks", lambda row: [row.stream], asdict))


@streams.get("/watermarks/{stream}", response_model=WatermarkOut, summary="Show a watermark")
async def show_watermark(office: Reading, stream: StreamName) -> Response:
    """How far one stream is collected."""
    return answer(asdict(await office.watermark(stream)))


@streams.get("/watermarks/{stream}/history", response_model=Page[AuditOut], summary="Show who moved a watermark")
async def watermark_history(office: Reading, stream: StreamName, cursor: Cursor = None, limit: Limit = 50) -> Response:
    """Every time it was set or reset by someone, newest first. What runs move is in their executions."""
    name, _ = await _found(office, stream)
    key = key_of("watermark-history", cursor, int)
    before = None if key is None else key[0]
    rows = await office.audit(what=f"stream:{name}", before=before, limit=limit + 1)
    return answer(page(rows, limit, "watermark-history", lambda row: [row.seq], asdict))


@streams.put("/watermarks/{stream}", response_model=WatermarkMovedOut, summary="Set a watermark")
async def set_watermark(office: Operating, stream: StreamName, body: WatermarkIn, dry_run: DryRun = False) -> Response:
    """Go on from there. A run that is under way keeps nothing more; items that are kept stay known."""
    name, before = await _found(office, stream)
    after = before if dry_run else await office.set_watermark(name, body.value)
    return _moved(name, before, body.value, after, is_applied=not dry_run)


@streams.delete("/watermarks/{stream}", response_model=WatermarkMovedOut, summary="Reset a watermark")
async def reset_watermark(office: Operating, stream: StreamName, dry_run: DryRun = False) -> Response:
    """Let the next run begin at the beginning. Items that are kept stay known, and are not collected twice."""
    name, before = await _found(office, stream)
    after = before if dry_run else await office.reset_watermark(name)
    return _moved(name, before, None, after, is_applied=not dry_run)


@streams.get("/streams", response_model=Page[StreamShownOut], summary="List streams")
async def list_streams_of_items(
    office: Reading,
    chats: Annotated[bool, Query(description="Only those that hold the posts of a chat.")] = False,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> Response:
    """The streams that hold items, in order of name."""
    posts, key = Posts(office.parts.database), key_of("streams", cursor, str)
    after = "" if key is None else key[0]
    found: list[StreamShown] = []
    async for name in posts.streams(after) if chats else posts.every_stream(after):
        found.append(await posts.shown(name))
        if len(found) > limit:
            break
    return answer(page(found, limit, "streams", lambda row: [row.stream], asdict))


@streams.get("/streams/{stream}", response_model=StreamOut, summary="Count the items of a stream")
async def show_stream(office: Reading, stream: StreamName) -> Response:
    """Where the items of a stream or job are, and how many."""
    name = await office.items_stream(stream)
    shown = await Posts(office.parts.database).shown(name)
    return answer({"stream": name, "items": await office.count_items(name), "chat": shown.chat})


@streams.get("/streams/{stream}/items", response_model=Page[ItemOut], summary="List items")
async def list_items(
    office: Reading,
    stream: StreamName,
    *,
    since: Day = None,
    until: Day = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> Response:
    """The items of a stream or job in order of key, each in its newest revision.

    With `since` or `until` in order of time: what happened on these UTC days, both ends included.
    """
    if since is None and until is None:
        key = key_of("items", cursor, str)
        found = await office.items(stream, after=None if key is None else key[0], limit=limit + 1)
        return answer(page(found, limit, "items", lambda row: [row.key], asdict), is_content=True)
    after = key_of("items-by-time", cursor, datetime, str)
    first, end = _midnight("since", since), _midnight("until", until, days=1)
    found = await office.items_between(stream, first, end, after=_in_utc(after), limit=limit + 1)
    return answer(page(found, limit, "items-by-time", lambda row: [row.occurred_at, row.key], asdict), is_content=True)


@streams.get("/streams/{stream}/newest", response_model=Page[ItemOut], summary="List the newest items")
async def list_newest_items(
    office: Reading,
    stream: StreamName,
    *,
    since: Annotated[AwareDatetime | None, Query(description="Only from this moment on.")] = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> Response:
    """The items of a stream or job, newest first: by when they happened, else by when they were collected."""
    key = key_of("newest-items", cursor, str)
    before = None if key is None else key[0]
    found = await office.newest_items(stream, since=since, before=before, limit=limit + 1)
    return answer(page(found, limit, "newest-items", lambda row: [row.key], asdict))


@streams.get("/streams/{stream}/items/{key}", response_model=ItemHistoryOut, summary="Show an item")
async def show_item(
    office: Reading,
    stream: StreamName,
    key: Annotated[str, InPath(description="The key of the item.", min_length=1, max_length=2000)],
) -> Response:
    """One item with its earlier revisions."""
    return answer(await office.item(stream, key), is_content=True)


@streams.get("/events", response_model=EventsOut, summary="Read events")
async def list_events(
    office: Reading,
    *,
    after: Annotated[int, Query(ge=0, le=_FAR, description="The position of the last event you have dealt with.")] = 0,
    stream: Annotated[Text | None, Query(description="Only of this stream or job.")] = None,
    cursor: Cursor = None,
    limit: Annotated[int, Query(ge=1, le=MOST_EVENTS - 1, description="How many at most.")] = 100,
) -> Response:
    """One event for each new or changed item, in order. To follow them, keep the last `position` and ask `after` it."""
    key = key_of("events", cursor, int)
    last = await office.last_position()
    position = after if key is None else max(0, min(key[0], _FAR))
    found = await office.events(after=position, limit=limit + 1, stream=stream)
    shown = page(found, limit, "events", lambda event: [event.position], event_shape)
    return answer({**shown, "last_position": max(last, found[-1].position if found else 0)}, is_content=True)


def _midnight(name: str, text: str | None, days: int = 0) -> datetime | None:
    """The beginning of a UTC day, or of one so many days later."""
    if text is None:
        return None
    try:
        return datetime.combine(date.fromisoformat(text), time(), UTC) + timedelta(days=days)
    except OverflowError:
        # The last day there is has none behind it.
        return None
    except ValueError:
        raise InvalidInput(f"{name} {text!r} is not a day", hint="write it like 2026-01-31") from None


def _in_utc(after: tuple[Any, ...] | None) -> tuple[datetime, str] | None:
    if after is None:
        return None
    moment, key = after
    if moment.tzinfo is None:
        raise InvalidInput("that is not a cursor of this list", hint="use `next` of the page before, or leave it out")
    return moment, key


async def _found(office: LocalOffice, text: str) -> tuple[str, StreamState | None]:
    """The name of a stream, and how far it is collected, if it ever was."""
    try:
        state = await office.watermark(text)
    except NotFound:
        # A job that has not run yet has a stream all the same; anything else is told as it is.
        try:
            return (await office.job(text)).stream, None
        except NotFound:
            pass
        raise
    return state.stream, state


def _moved(
    stream: str, before: StreamState | None, value: Any, after: StreamState | None, *, is_applied: bool
) -> Response:
    return answer(
        {
            "stream": stream,
            "before": None if before is None else before.value,
            "after": value,
            "applied": is_applied,
            "watermark": None if after is None else asdict(after),
        }
    )
