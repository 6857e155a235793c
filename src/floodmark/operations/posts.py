"""Posts by chat and day, of this installation or of a server: what files are made from."""

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
# A day that is larger waits on the disk, not in memory.
_IN_MEMORY = 1_000_000
# As many chats as are ever written at the same time.
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
    """Reads posts by chat and day. A day is read once, in order of time, and stored to be read in order of number."""

    def __init__(self, operations: AsyncOperations) -> None:
        self._operations = operations
        self._names: dict[Chat, ChatNames] = {}
        self._days: OrderedDict[Chat, _Day] = OrderedDict()

    async def streams(self, after: str = "") -> AsyncIterator[str]:
        """The streams that hold posts, in order of name."""
        async for row in self._operations.each_stream(chats=True):
            if row.stream > after and row.chat is not None:
                chat = Chat(row.chat.id, row.chat.tenant_id)
                self._names[chat] = ChatNames(row.chat.username, row.chat.title)
                yield row.stream

    async def days(self, stream: str, since: date | None = None, until: date | None = None) -> AsyncIterator[ChatDay]:
        """The days of a stream on which there are posts, both ends included."""
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
        """The numbers of a day's posts, in order."""
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
            # Nothing was ever collected of it.
            pass
        return array("q", sorted(day.places))

    async def pages(self, chat: Chat, numbers: "array[int]") -> AsyncIterator[list[StoredPost]]:
        """The posts with these numbers, which are of the day whose `numbers` were last asked for, in that order."""
        for start in range(0, len(numbers), _PAGE):
            yield [self._days[chat].get(number) for number in numbers[start : start + _PAGE]]

    async def names(self, chat: Chat) -> ChatNames:
        """What a chat is called."""
        if chat not in self._names:
            try:
                found = await self._operations.chat(stream_of(chat))
            except NotFound:
                found = None
            self._names[chat] = ChatNames() if found is None else ChatNames(found.username, found.title)
        return self._names[chat]

    def close(self) -> None:
        """Throw away what was put aside."""
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
    """The posts of one day, in the order in which they came, and where each of them is."""

    def __init__(self) -> None:
        self.file = SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115 - closed by whoever made it
        self.places: dict[int, tuple[int, int]] = {}

    def put(self, post: StoredPost) -> None:
        told = msgspec.json.encode(_Put(post.posted_at, post.deleted, post.data))
        self.places[post.message_id] = (self.file.seek(0, 2), len(told))
        self.file.write(told)

    def get(self, number: int) -> StoredPost:
        place, length = self.places[number]
        self.file.seek(place)
        told = msgspec.json.decode(self.file.read(length), type=_Put)
        return StoredPost(number, told.posted_at, told.deleted, told.data)
