"""Items of a source, and the watermark after them."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct

from .completeness import Coverage

Watermark = dict[str, Any]
"""How far a target is collected. Only its source reads it; it must survive a round trip through JSON."""


class Item(Struct, frozen=True, gc=False):
    """One collected object. `key` is its permanent identity within the stream.

    `fingerprint`, any plain data, decides whether a repeated item has changed; without it all of `data` does. `deleted`
    marks a tombstone: the item was deleted at the source, and its stored content stays.
    """

    key: str
    data: Any
    occurred_at: datetime | None = None
    fingerprint: Any = None
    deleted: bool = False


class SitePage(Struct, frozen=True, gc=False):
    """One URL of a site, and its state in crawls. The unvisited pages are the frontier of the crawl.

    `crawl` is the number of the crawl that visited it last; 0: found, but never visited. The state of a later crawl is
    newer.
    """

    url: str
    depth: int = 0
    place: int = 0
    """Among pages of one depth, those found first are visited first."""
    crawl: int = 0
    status: int | None = None
    etag: str | None = None
    last_modified: str | None = None
    content_hash: str | None = None
    misses: int = 0
    """How often in a row it was not found."""
    note: str | None = None
    """Why it has no item."""


class PageMatches(Struct, frozen=True, gc=False):
    """The keys of all matches on a page, of a job that selects parts of pages; without the URL of the page."""

    url: str
    keys: Sequence[str]


class Blob(Struct, frozen=True, gc=False):
    """A picture or a document that belongs to items. Its name is derived from its content, so it is stored once."""

    sha256: str
    media_type: str
    content: bytes


class WantedFile(Struct, frozen=True, gc=False):
    """A file of a message that is downloaded later. `media_id` is its permanent identity, however often it is posted.

    `skipped` is why it is not downloaded unless a person asks for it.
    """

    media_id: str
    kind: str
    key: str
    channel_id: int
    message_id: int
    size: int | None = None
    media_type: str | None = None
    filename: str | None = None
    skipped: str | None = None


class Poll(Struct, frozen=True, gc=False):
    """A poll of a source whose job has a budget: when it began, and the requests since the last batch."""

    at: datetime
    requests: int = 0


class Batch(Struct, frozen=True, gc=False):
    """Items, oldest first, and the watermark that is valid once they are stored (None: unchanged).

    `stream` is the stream of the items, if it is not that of the target; items that two targets share are stored once.
    `is_aside`: these are further items of the target in a stream of their own, such as comments; its other items count
    as those of its jobs.
    `tenant_id` and `user_id` are the owner, if the job has none. `pages`, `matches`, `blobs` and `files` are stored in
    the same transaction. `is_backfill`: the items are from the past, so their age does not count for freshness.
    `has_times_of_change`: `occurred_at` is when an item was changed last, so that changes teach an adaptive job as new
    items do. `coverage` says which part of the target is complete with this batch. The worker sets `poll`.
    """

    items: Sequence[Item]
    watermark: Watermark | None = None
    stream: str | None = None
    tenant_id: str | None = None
    user_id: str | None = None
    pages: Sequence[SitePage] = ()
    blobs: Sequence[Blob] = ()
    matches: Sequence[PageMatches] = ()
    files: Sequence[WantedFile] = ()
    is_backfill: bool = False
    has_times_of_change: bool = False
    is_aside: bool = False
    coverage: Coverage | None = None
    poll: Poll | None = None


class PollResult(Struct, frozen=True, gc=False):
    """What a batch of a poll found, and what was expected since the last poll: items of the same second count once.

    `delays` are the seconds from the creation of each new item to its storage.
    """

    found: int
    expected: float
    delays: Sequence[float] = ()


class Kept(Struct, frozen=True, gc=False):
    """The result of storing a batch: the number of new, changed and known items.

    `poll` is set if the batch was found by a poll whose job has a budget.
    """

    new: int = 0
    changed: int = 0
    known: int = 0
    poll: PollResult | None = None

    def __add__(self, other: "Kept") -> "Kept":
        return Kept(self.new + other.new, self.changed + other.changed, self.known + other.known)
