"""What is known about the completeness of a channel, and how its gaps are filled. Imports Telethon.

The history of a channel returns every message that exists, so a page says that the ids up to its last message are
complete. Ids that it leaves out were deleted, or never existed: `channels.getMessages` tells by id. The ids of a basic
group are shared with other chats of the account, so those that are missing there mean nothing.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, NamedTuple

from telethon.tl import types

from floodmark.model.batch import Item
from floodmark.model.completeness import Coverage, Gap
from floodmark.rules.intervals import missing, union
from floodmark.sources.collected_items import CollectedItems

from .history import ChannelHistory, read_pages

# The ids of one request for messages.
_AT_ONCE = 200
_EMPTY = types.MessageEmpty


class FilledPart(NamedTuple):
    """A part of a gap that was read: its messages, their items, and the coverage that closes it."""

    messages: Sequence[Any]
    items: Sequence[Item]
    coverage: Coverage


def coverage_of(history: ChannelHistory, after: int, upto: int, messages: Sequence[Any]) -> Coverage | None:
    """Return what the messages of a page say, which were read after the id `after`; None if that is nothing."""
    if upto <= after:
        return None
    channel_id = history.channel.channel_id
    deleted = [(message.id, message.id) for message in messages if type(message) is _EMPTY]
    dates = [message.date for message in messages if message.date is not None]
    unseen = missing(after + 1, upto, [message.id for message in messages]) if channel_id > 0 else ()
    return Coverage(
        ranges=((after + 1, upto),),
        unseen=unseen,
        deleted=union(deleted),
        begins_at=min(dates, default=None),
        ends_at=max(dates, default=None),
        scope=str(channel_id),
    )


async def fill_gaps(
    history: ChannelHistory, collected: CollectedItems, stream: str, gaps: Sequence[Gap]
) -> AsyncGenerator[FilledPart, None]:
    """Read gaps part by part: unread ranges from the history, unseen ids one by one."""
    for gap in gaps:
        if gap.first is None or gap.last is None:
            continue
        if gap.kind == "unread":
            parts = _read_range(history, gap.first, gap.last)
        elif gap.kind == "unseen":
            parts = _ask_ids(history, collected, stream, gap.first, gap.last)
        else:
            continue
        async with aclosing(parts) as found:
            async for part in found:
                yield part


async def _read_range(history: ChannelHistory, first: int, last: int) -> AsyncGenerator[FilledPart, None]:
    at = first - 1
    async with aclosing(read_pages(history, at)) as pages:
        async for page in pages:
            messages = [message for message in page.messages if message.id <= last]
            items = [item for item in page.items if item.data["id"] <= last]
            is_past = len(messages) < len(page.messages) or page.is_last
            upto = last if is_past else int(messages[-1].id)
            coverage = coverage_of(history, at, upto, messages)
            if coverage is not None:
                yield FilledPart(messages, items, coverage)
            at = upto
            if at >= last:
                return
    coverage = coverage_of(history, at, last, ())
    if coverage is not None:
        yield FilledPart((), (), coverage)


async def _ask_ids(
    history: ChannelHistory, collected: CollectedItems, stream: str, first: int, last: int
) -> AsyncGenerator[FilledPart, None]:
    channel_id = history.channel.channel_id
    for start in range(first, last + 1, _AT_ONCE):
        end = min(start + _AT_ONCE - 1, last)
        keys = {f"{channel_id}:{number}": number for number in range(start, end + 1)}
        stored = await collected.existing(stream, list(keys))
        wanted = [number for key, number in keys.items() if key not in stored]
        messages: list[Any] = []
        items: Sequence[Item] = ()
        if wanted:
            answer = await history.messages(wanted)
            messages = [message for message in answer.messages if type(message) is not _EMPTY]
            items = await history.items(answer)
        found = {message.id for message in messages}
        deleted = [(number, number) for number in wanted if number not in found]
        coverage = Coverage(checked=((start, end),), deleted=union(deleted), scope=str(channel_id))
        yield FilledPart(messages, items, coverage)
