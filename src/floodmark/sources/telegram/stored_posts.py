"""Read stored posts by chat and UTC day, for files and exports.

Tables: `items` by its index (stream, occurred_at), `telegram_channels` for names. All queries read page by page, so
memory does not grow with the length of a day or a history.
"""

from array import array
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, Protocol

import msgspec
from msgspec import Struct
from sqlalchemy import ColumnElement, and_, select

from floodmark.model.posts import Chat, chat_of, message_id_of, post_key, stream_of
from floodmark.model.streams import ChatShown, StreamShown
from floodmark.repositories.item_pages import next_streams
from floodmark.store.database import Database
from floodmark.store.dialects import raw
from floodmark.store.tables import items

from .tables import telegram_channels

_PAGE = 500
# Streams that are listed at once.
_STREAMS = 50
_DAY = timedelta(days=1)


class ChatDay(Struct, frozen=True, order=True):
    """One UTC day of one chat; `stream` contains its posts."""

    stream: str
    day: date

    @property
    def chat(self) -> Chat:
        """Return the chat of the stream."""
        found = chat_of(self.stream)
        assert found is not None
        return found


class ChatNames(Struct, frozen=True):
    """The username and title of a chat, if they are known."""

    username: str | None = None
    title: str | None = None


class StoredPost(Struct, frozen=True):
    """The newest revision of a post."""

    message_id: int
    posted_at: datetime
    deleted: bool
    data: Any


class PostReader(Protocol):
    """Reads posts by chat and day, from the store or from a server."""

    def streams(self, after: str = "") -> AsyncIterator[str]:
        """Yield the streams that contain posts, in order of name."""
        ...

    def days(self, stream: str, since: date | None = None, until: date | None = None) -> AsyncIterator[ChatDay]:
        """Yield the days of a stream with posts, from `since` to `until`, both included."""
        ...

    async def numbers(self, of: ChatDay) -> "array[int]":
        """Return the message ids of a day's posts, in order."""
        ...

    def pages(self, chat: Chat, numbers: "array[int]") -> AsyncIterator[list[StoredPost]]:
        """Yield the posts with these message ids, in that order; they must be those of the last call of `numbers`."""
        ...

    async def names(self, chat: Chat) -> ChatNames:
        """Return the names of a chat."""
        ...


class Posts:
    """Reads posts from the store; see `PostReader`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def streams(self, after: str = "") -> AsyncIterator[str]:
        """Yield the streams that contain posts, in order of name."""
        async for stream in self.every_stream(after):
            if chat_of(stream) is not None:
                yield stream

    async def every_stream(self, after: str = "") -> AsyncIterator[str]:
        """Yield all streams with items, in order of name."""
        last = after
        while found := await next_streams(self._database, last, _STREAMS):
            for stream in found:
                yield stream
            last = found[-1]

    async def describe(self, stream: str) -> StreamShown:
        """Return a stream with its chat, if it contains posts of one."""
        chat = chat_of(stream)
        if chat is None:
            return StreamShown(stream=stream, chat=None)
        names = await self.names(chat)
        shown = ChatShown(id=chat.id, tenant_id=chat.tenant_id, username=names.username, title=names.title)
        return StreamShown(stream=stream, chat=shown)

    async def days(self, stream: str, since: date | None = None, until: date | None = None) -> AsyncIterator[ChatDay]:
        """Yield the days of a stream with posts, from `since` to `until`, both included."""
        beginning = _midnight(since) if since is not None else datetime.min.replace(tzinfo=UTC)
        while True:
            later = and_(items.c.stream == stream, items.c.occurred_at >= beginning)
            found = await self._least(items.c.occurred_at, later)
            if found is None or (until is not None and found.date() > until):
                return
            yield ChatDay(stream, found.date())
            beginning = _midnight(found.date()) + _DAY

    async def numbers(self, of: ChatDay) -> "array[int]":
        """Return the message ids of a day's posts, in order; each takes eight bytes."""
        query = select(items.c.key).where(_within(of)).execution_options(yield_per=_PAGE)
        chat, found = of.chat, array("q")
        async with self._database.reading_long() as connection, connection.stream(query) as rows:
            async for page in rows.partitions(_PAGE):
                numbers = (message_id_of(chat, row.key) for row in page)
                found.extend(number for number in numbers if number is not None)
        return array("q", sorted(found))

    async def pages(self, chat: Chat, numbers: "array[int]") -> AsyncIterator[list[StoredPost]]:
        """Yield the posts with these message ids, in that order."""
        for start in range(0, len(numbers), _PAGE):
            yield await self._page(chat, numbers[start : start + _PAGE])

    async def names(self, chat: Chat) -> ChatNames:
        """Return the names of a chat that an account has stored last."""
        table = telegram_channels.c
        query = select(table.username, table.title).where(table.channel_id == chat.id)
        async with self._database.reading() as connection:
            row = (await connection.execute(query.order_by(table.updated_at.desc(), table.account).limit(1))).first()
        return ChatNames() if row is None else ChatNames(row.username, row.title)

    async def _least(self, column: Any, where: ColumnElement[bool]) -> Any:
        query = select(column).where(where).order_by(column).limit(1)
        async with self._database.reading() as connection:
            return (await connection.execute(query)).scalar()

    async def _page(self, chat: Chat, numbers: Sequence[int]) -> list[StoredPost]:
        keys = [post_key(chat, number) for number in numbers]
        query = select(items.c.key, items.c.occurred_at, items.c.deleted, raw(items.c.data).label("data"))
        async with self._database.reading() as connection:
            rows = await connection.execute(query.where(items.c.stream == stream_of(chat), items.c.key.in_(keys)))
            by_key = {row.key: row for row in rows}
        return [
            StoredPost(number, row.occurred_at, bool(row.deleted), msgspec.json.decode(row.data))
            for number, key in zip(numbers, keys, strict=True)
            if (row := by_key.get(key)) is not None
        ]


def _within(of: ChatDay) -> ColumnElement[bool]:
    begins = _midnight(of.day)
    return and_(items.c.stream == of.stream, items.c.occurred_at >= begins, items.c.occurred_at < begins + _DAY)


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)
