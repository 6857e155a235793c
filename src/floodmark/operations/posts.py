"""Posts by chat and day, of this installation or of a server, for writing files."""

from array import array
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import date, datetime, timedelta
from tempfile import SpooledTemporaryFile
from typing import Any

import msgspec
from msgspec import Struct

from floodmark.errors import NotFound
from floodmark.model.posts import Chat, message_id_of, stream_of
from floodmark.sources.telegram.stored_posts import ChatDay, ChatNames, PostReader, StoredPost

from .declared import AsyncOperations

_PAGE = 500
# A larger day is stored on disk, not in memory.
_IN_MEMORY = 1_000_000
# The most chats that are written at the same time.
_DAYS_HELD = 64


@asynccontextmanager
async def read_posts(operations: AsyncOperations) -> AsyncIterator[PostReader]:
    """Yield a reader of the posts of an installation."""
    posts = CollectedPosts(operations)
    try:
        yield posts
    finally:
        posts.close()


class CollectedPosts:
    """Reads posts by chat and day. A day is read once by time, and stored to be read by message number."""

    def __init__(self, operations: AsyncOperations) -> None:
        self._operations = operations
        self._names: dict[Chat, ChatNames] = {}
        self._days: OrderedDict[Chat, _Day] = OrderedDict()

    async def streams(self, after: str = "") -> AsyncIterator[str]:
        """Yield the streams that contain posts, sorted by name."""
        async for row in self._operations.each_stream(chats=True):
            if row.stream > after and row.chat is not None:
                chat = Chat(row.chat.id, row.chat.tenant_id)
                self._names[chat] = ChatNames(row.chat.username, row.chat.title)
                yield row.stream

    async def days(self, stream: str, since: date | None = None, until: date | None = None) -> AsyncIterator[ChatDay]:
        """Yield the days of a stream that have posts, both ends included."""
        beginning = since or date.min
        while until is None or beginning <= until:
            try:
                found = (await self._operations.items(stream, since=beginning, until=until, limit=1)).items
            except NotFound:
                return
            if not found or found[0].occurred_at is None:
                return
            day = found[0].occurred_at.date()
            yield ChatDay(stream, day)
            beginning = day + timedelta(days=1)

    async def numbers(self, of: ChatDay) -> "array[int]":
        """Return the sorted numbers of a day's posts."""
        chat, day = of.chat, _Day()
        self._forget(chat)
        self._days[chat] = day
        if len(self._days) > _DAYS_HELD:
            self._forget(next(iter(self._days)))
        try:
            async for item in self._operations.each_item(of.stream, since=of.day, until=of.day):
                number = message_id_of(chat, item.key)
                if number is not None and item.occurred_at is not None:
                    day.put(StoredPost(number, item.occurred_at, item.deleted, item.data))
        except NotFound:
            # It was never collected.
            pass
        return array("q", sorted(day.places))

    async def pages(self, chat: Chat, numbers: "array[int]") -> AsyncIterator[list[StoredPost]]:
        """Yield the posts with these numbers, which are of the day of the last call of `numbers`."""
        for start in range(0, len(numbers), _PAGE):
            yield [self._days[chat].get(number) for number in numbers[start : start + _PAGE]]

    async def names(self, chat: Chat) -> ChatNames:
        """Return the names of a chat."""
        if chat not in self._names:
            try:
                found = await self._operations.chat(stream_of(chat))
            except NotFound:
                found = None
            self._names[chat] = ChatNames() if found is None else ChatNames(found.username, found.title)
        return self._names[chat]

    def close(self) -> None:
        """Delete the stored days."""
        for chat in list(self._days):
            self._forget(chat)

    def _forget(self, chat: Chat) -> None:
        day = self._days.pop(chat, None)
        if day is not None:
            day.file.close()


class _Put(Struct, array_like=True):
    posted_at: datetime
    deleted: bool
    data: Any


class _Day:
    """The posts of one day in a file, and the place of each."""

    def __init__(self) -> None:
        self.file = SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115 - closed by its owner
        self.places: dict[int, tuple[int, int]] = {}

    def put(self, post: StoredPost) -> None:
        line = msgspec.json.encode(_Put(post.posted_at, post.deleted, post.data))
        self.places[post.message_id] = (self.file.seek(0, 2), len(line))
        self.file.write(line)

    def get(self, number: int) -> StoredPost:
        place, length = self.places[number]
        self.file.seek(place)
        put = msgspec.json.decode(self.file.read(length), type=_Put)
        return StoredPost(number, put.posted_at, put.deleted, put.data)
