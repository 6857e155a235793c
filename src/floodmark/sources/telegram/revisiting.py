"""Recent posts read again: edits become revisions, what is missing becomes a tombstone. Imports Telethon."""

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import NamedTuple

from floodmark.model.batch import Item
from floodmark.sources.recall import Held

from .history import PAGE, ChannelHistory
from .port import Memory
from .posts import items_of


class Revisited(NamedTuple):
    """Posts as they are now, and up to where that is."""

    items: Sequence[Item]
    upto: Held
    is_last: bool


async def revisit(
    history: ChannelHistory, memory: Memory, stream: str, *, since: datetime, after: Held | None, upto: int | None
) -> AsyncIterator[Revisited]:
    """Everything that is kept from `since` on, a page at a time; what has an id above `upto` was read just now."""
    while True:
        held = await memory.held(stream, since=since, after=after, limit=PAGE)
        ids = {message_id(entry): entry for entry in held}
        wanted = [number for number in ids if upto is None or number <= upto]
        if not wanted:
            return
        channel = history.channel
        found = items_of(await history.by_ids(wanted), channel.channel_id, channel.username)
        seen = {item.key for item in found}
        gone = [ids[number] for number in wanted if ids[number].key not in seen]
        items = [*found, *await _tombstones(memory, stream, gone)]
        items.sort(key=lambda item: (item.occurred_at, item.key))
        after = held[-1]
        is_last = len(held) < PAGE
        yield Revisited(items, after, is_last)
        if is_last:
            return


async def _tombstones(memory: Memory, stream: str, gone: Sequence[Held]) -> list[Item]:
    if not gone:
        return []
    data = await memory.data(stream, [entry.key for entry in gone])
    return [Item(entry.key, data.get(entry.key), entry.occurred_at, "gone", deleted=True) for entry in gone]


def message_id(held: Held) -> int:
    """The number of a post within its channel."""
    return int(held.key.rpartition(":")[2])
