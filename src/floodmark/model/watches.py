"""Watches: what people want to be notified of."""

from datetime import datetime
from typing import Annotated, Literal, get_args

from msgspec import Meta, Struct

from .field import TEN_YEARS

WatchKind = Literal["items", "page_changed", "cookie_before_consent", "cookies_changed", "source_gone", "source_late"]
KINDS: tuple[WatchKind, ...] = get_args(WatchKind)
# States of jobs, not events of items.
SOURCE_KINDS: tuple[WatchKind, ...] = ("source_gone", "source_late")

LONGEST_PATTERN = 1000
MOST_NAMES = 100

_Name = Annotated[str, Meta(min_length=1, max_length=200)]
_Stream = Annotated[str, Meta(min_length=1, max_length=2000)]


class WatchFields(Struct, frozen=True, kw_only=True):
    """The fields of a watch that people set."""

    name: Annotated[
        str, Meta(max_length=200, description="Unique name; made from its words if it is left out.", examples=["fires"])
    ] = ""
    kind: Annotated[WatchKind, Meta(description="What it looks at.")] = "items"
    query: Annotated[
        Annotated[str, Meta(min_length=1, max_length=2000)] | None,
        Meta(description="Words, in the language of searches.", examples=["fire OR smoke"]),
    ] = None
    pattern: Annotated[
        Annotated[str, Meta(min_length=1, max_length=LONGEST_PATTERN)] | None,
        Meta(description="A regular expression in the syntax of RE2.", examples=["(?i)evacuat(e|ion)"]),
    ] = None
    whole_word: Annotated[bool, Meta(description="The pattern matches whole words only.")] = False
    where: Annotated[
        tuple[Annotated[str, Meta(min_length=1, max_length=500)], ...],
        Meta(description="Conditions on the fields of an item; all must hold.", examples=[["views >= 1000"]]),
    ] = ()
    streams: Annotated[
        tuple[_Stream, ...],
        Meta(description="Streams, or jobs that collect them; `*` is any text.", examples=[["telegram:*"]]),
    ] = ()
    sources: Annotated[tuple[_Name, ...], Meta(description="Kinds of sources.", examples=[["telegram"]])] = ()
    tags: Annotated[tuple[_Name, ...], Meta(description="Tags of jobs.", examples=[["news"]])] = ()
    notify: Annotated[tuple[_Name, ...], Meta(description="Channels that are notified.", examples=[["slack"]])] = ()
    threshold_count: Annotated[
        Annotated[int, Meta(ge=2, le=1000)] | None,
        Meta(description="Notify when there are this many matches within threshold_seconds.", examples=[20]),
    ] = None
    threshold_seconds: Annotated[
        Annotated[float, Meta(gt=0, le=604_800)] | None,
        Meta(description="The time of the threshold.", examples=[600]),
    ] = None
    digest: Annotated[
        Literal["hourly", "daily"] | None, Meta(description="One message at the end of each hour or day.")
    ] = None
    quiet: Annotated[
        Annotated[str, Meta(max_length=20)] | None,
        Meta(description="Send nothing in these hours.", examples=["22:00-07:00"]),
    ] = None
    timezone: Annotated[
        Annotated[str, Meta(min_length=1, max_length=200)],
        Meta(description="The time zone of digests and quiet hours.", examples=["Europe/Berlin"]),
    ] = "UTC"
    cooldown_seconds: Annotated[
        Annotated[float, Meta(gt=0, le=TEN_YEARS)] | None,
        Meta(description="The minimum time between two messages.", examples=[1800]),
    ] = None
    max_age_seconds: Annotated[
        Annotated[float, Meta(ge=0, le=TEN_YEARS)] | None,
        Meta(description="Items older than this that a run finds late are back-fill; null: WATCH_MAX_AGE."),
    ] = None


class ChannelState(Struct, frozen=True, kw_only=True):
    """How far a channel was notified of the matches of a watch."""

    channel: str
    waiting: Annotated[int, Meta(description="Matches that are part of no message yet.")]
    due_at: Annotated[datetime | None, Meta(description="When the next message is due; null if there is none.")]
    sent_at: Annotated[datetime | None, Meta(description="When the last message was sent.")]
    attempts: Annotated[int, Meta(description="Failed attempts to send the current message.")] = 0
    error: Annotated[str | None, Meta(description="Why the last attempt failed; null if it succeeded.")] = None


class WatchRow(WatchFields, frozen=True, kw_only=True):
    """A watch, and what it has found."""

    watch_id: str
    paused: bool = False
    matches: Annotated[int, Meta(description="Matches so far, without those of back-fill.")] = 0
    suppressed: Annotated[int, Meta(description="Matches of back-fill: nobody was notified.")] = 0
    last_match_at: datetime | None = None
    channels: Annotated[tuple[ChannelState, ...], Meta(description="The state of each channel.")] = ()
    version: Annotated[int, Meta(description="Counts the changes, from 1.")] = 1
    created_at: datetime
    updated_at: datetime


class WatchMatch(Struct, frozen=True, kw_only=True):
    """A match of a watch: an item, or the state of a source."""

    stream: str
    key: Annotated[str | None, Meta(description="The key of the item; null for the state of a source.")]
    revision: int | None
    position: Annotated[int | None, Meta(description="The position of its event.")]
    at: Annotated[datetime, Meta(description="When it was collected, or found.")]
    title: str
    text: str
    url: str | None


class WatchMatchRow(WatchMatch, frozen=True, kw_only=True):
    """A stored match."""

    seq: Annotated[int, Meta(description="Counts the matches of all watches.")]
    is_due: Annotated[bool, Meta(description="False while the threshold of the watch is not reached.")]


class WatchNotificationRow(Struct, frozen=True, kw_only=True):
    """A message of a watch to one channel."""

    notification_id: Annotated[str, Meta(description="The same in every attempt.")]
    channel: str
    matches: Annotated[int, Meta(description="The number of matches that it reports.")]
    title: str
    attempts: int
    try_at: Annotated[datetime | None, Meta(description="When it is tried again; null once it was sent.")]
    sent_at: datetime | None
    error: Annotated[str | None, Meta(description="Why the last attempt failed.")]
    created_at: datetime


class WatchTrial(Struct, frozen=True, kw_only=True):
    """What a watch would have matched in a part of the stored events."""

    matches: tuple[WatchMatch, ...]
    suppressed: Annotated[int, Meta(description="Matches of back-fill, which would not be notified of.")]
    examined: Annotated[int, Meta(description="The number of events that were examined.")]
    since: Annotated[datetime | None, Meta(description="The time of the first examined event; null if there is none.")]
    next: Annotated[int | None, Meta(description="The position to continue after; null at the end.")]
