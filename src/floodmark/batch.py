"""What a source found, and how far that takes us."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct

Watermark = dict[str, Any]
"""How far a target is collected. Opaque to all but its source; must survive a round trip through JSON."""


class Item(Struct, frozen=True, gc=False):
    """One thing that was collected. `key` is its identity within the stream, for ever.

    `fingerprint` decides whether a second sighting is a change; without it the whole of `data` does.
    `deleted` marks a tombstone: the item is gone upstream, what was kept of it stays.
    """

    key: str
    data: Any
    occurred_at: datetime | None = None
    fingerprint: str | None = None
    deleted: bool = False


class Batch(Struct, frozen=True, gc=False):
    """Items, oldest first, and the watermark that is true once they are kept (None: unmoved).

    `stream` says where the items belong, if not in the stream of the target: what two targets share is kept once.
    `tenant_id` and `user_id` say whose they are, if the job does not.
    """

    items: Sequence[Item]
    watermark: Watermark | None = None
    stream: str | None = None
    tenant_id: str | None = None
    user_id: str | None = None


class Kept(Struct, frozen=True, gc=False):
    """What became of a batch: how many items were new, changed, or already known."""

    new: int = 0
    changed: int = 0
    known: int = 0

    def __add__(self, other: "Kept") -> "Kept":
        return Kept(self.new + other.new, self.changed + other.changed, self.known + other.known)
