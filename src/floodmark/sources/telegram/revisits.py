"""Recent posts are read again: edits become revisions, missing posts become tombstones. Imports Telethon."""

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from floodmark.model.batch import Item
from floodmark.sources.collected_items import CollectedItems, CollectedKey

from .history import PAGE, ChannelHistory


class RevisitedPage(NamedTuple):
    """Posts as they are now, up to the stored post `upto`, and their messages."""

    items: Sequence[Item]
    messages: Sequence[Any]
    upto: CollectedKey
    is_last: bool


async def revisit(
    history: ChannelHistory,
    collected: CollectedItems,
    stream: str,
    *,
    since: datetime,
    after: CollectedKey | None,
    upto: int | None,
) -> AsyncIterator[RevisitedPage]:
    """Read all stored posts since a time again, page by page; posts with an id above `upto` were read just now."""
    while True:
        stored = await collected.keys(stream, since=since, after=after, limit=PAGE)
        by_id = {int(entry.key.rpartition(":")[2]): entry for entry in stored}
        wanted = [number for number in by_id if upto is None or number <= upto]
        if not wanted:
            return
        answer = await history.messages(wanted)
        found = await history.items(answer)
        seen = {item.key for item in found}
        gone = [by_id[number] for number in wanted if by_id[number].key not in seen]
        items = [*found, *await _tombstones(collected, stream, gone)]
        items.sort(key=lambda item: (item.occurred_at, item.key))
        after, is_last = stored[-1], len(stored) < PAGE
        yield RevisitedPage(items, answer.messages, after, is_last)
        if is_last:
            return


async def _tombstones(collected: CollectedItems, stream: str, gone: Sequence[CollectedKey]) -> list[Item]:
    if not gone:
        return []
    data = await collected.data(stream, [entry.key for entry in gone])
    return [Item(entry.key, data.get(entry.key), entry.occurred_at, "gone", deleted=True) for entry in gone]
