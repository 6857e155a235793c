"""What a source found, and how far that takes us."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct

Watermark = dict[str, Any]
"""How far a target is collected. Opaque to all but its source; must survive a round trip through JSON."""


class Item(Struct, frozen=True, gc=False):
    """One thing that was collected. `key` is its identity within the stream, for ever.

    `fingerprint`, any plain data, decides whether a second sighting is a change; without it the whole of `data` does.
    `deleted` marks a tombstone: the item is gone upstream, what was kept of it stays.
    """

    key: str
    data: Any
    occurred_at: datetime | None = None
    fingerprint: Any = None
    deleted: bool = False


class Page(Struct, frozen=True, gc=False):
    """One address of a site, and what a crawl knows of it. The pages that wait are the frontier of the crawl.

    `crawl` is the crawl that visited it last; 0: found, but never visited. Who was visited by a later crawl knows more.
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
    """How often in a row it was not there."""
    note: str | None = None
    """Why it made no item, in words."""


class Blob(Struct, frozen=True, gc=False):
    """A picture or a document that belongs to items. Its name is its content, so it is stored once."""

    sha256: str
    media_type: str
    content: bytes


class Batch(Struct, frozen=True, gc=False):
    """Items, oldest first, and the watermark that is true once they are kept (None: unmoved).

    `stream` says where the items belong, if not in the stream of the target: what two targets share is kept once.
    `tenant_id` and `user_id` say whose they are, if the job does not.
    `pages` and `blobs` are kept in the same transaction.
    `is_backfill`: what is collected is past, so that its age says nothing of how fast we are.
    """

    items: Sequence[Item]
    watermark: Watermark | None = None
    stream: str | None = None
    tenant_id: str | None = None
    user_id: str | None = None
    pages: Sequence[Page] = ()
    blobs: Sequence[Blob] = ()
    is_backfill: bool = False


class Kept(Struct, frozen=True, gc=False):
    """What became of a batch: how many items were new, changed, or already known."""

    new: int = 0
    changed: int = 0
    known: int = 0

    def __add__(self, other: "Kept") -> "Kept":
        return Kept(self.new + other.new, self.changed + other.changed, self.known + other.known)
