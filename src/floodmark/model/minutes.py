"""Counts by the minute and by the day, for charts."""

from datetime import date, datetime
from typing import Annotated

from msgspec import Meta, Struct

Late = Annotated[float | None, Meta(description="In seconds from due to started; null if none has started.")]


class MinuteRow(Struct, frozen=True, kw_only=True):
    """What happened in a minute, or in several."""

    at: Annotated[datetime, Meta(description="When the minute begins.")]
    done: Annotated[int, Meta(description="Executions that ended with success.")] = 0
    dead: Annotated[int, Meta(description="Executions that failed permanently.")] = 0
    cancelled: int = 0
    skipped: int = 0
    items_new: int = 0
    items_changed: int = 0
    created: Annotated[int, Meta(description="Executions that were created in this minute.")] = 0
    unfinished: Annotated[int, Meta(description="Those of them that have not ended.")] = 0
    started: Annotated[int, Meta(description="Those of them whose first start is known.")] = 0
    lateness_p50_seconds: Late = None
    lateness_p95_seconds: Late = None
    lateness_max_seconds: Late = None
    queued: Annotated[int, Meta(description="The longest queue.")] = 0


class MinuteReport(Struct, frozen=True, kw_only=True):
    """What happened in the last hours, oldest first. Minutes in which nothing happened are included."""

    step_minutes: Annotated[int, Meta(description="The length of each row.")]
    rows: list[MinuteRow]
    counted_at: Annotated[
        datetime | None, Meta(description="When the leader last counted; null if it has not counted yet.")
    ]


class StreamDay(Struct, frozen=True, kw_only=True):
    """The items of a stream that were stored on one UTC day."""

    day: date
    new: int
    changed: Annotated[int, Meta(description="Changed revisions; an item that changed twice counts twice.")]
