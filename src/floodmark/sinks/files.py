"""Artifacts: one file for each chat and UTC day, made from what is kept.

    <folder>/<channel_id>/<YYYY-MM-DD>.json
    <folder>/tenant-<tenant_id>/<channel_id>/<YYYY-MM-DD>.json

A file is a picture of the store: written again from unchanged posts it has the same bytes, and is left alone. Its JSON
Schema is `floodmark/schemas/artifact-1.0.0.json`.
"""

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from floodmark.coordination.leader import Leader
from floodmark.model.posts import Chat, idempotency_key
from floodmark.sources.telegram.stored_posts import ChatDay, ChatNames, PostReader, Posts, StoredPost
from floodmark.store.fleet import Fleet

from .atomic import Replacement, alone_in

CURSOR = "files.position"

# One step of the projector: bounded, so that a leaving process does not wait for it.
_EVENTS_AT_ONCE, _FILES_AT_ONCE = 5000, 20
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyz0123456789_-")
_LONGEST_NAME = 120

_encoder = msgspec.json.Encoder(order="deterministic")


def path_of(folder: Path, of: ChatDay) -> Path:
    """Where the artifact of a day is. Built from ids alone: no name or title has a say in it."""
    return folder_of(folder, of.chat) / f"{of.day.isoformat()}.json"


def folder_of(folder: Path, chat: Chat) -> Path:
    """Where the artifacts of a chat are."""
    whose = folder if chat.tenant_id is None else folder / f"tenant-{_spelled(chat.tenant_id)}"
    return whose / str(chat.id)


def _spelled(text: str) -> str:
    """A name for a folder on any file system, another one for every text: what is not plain is written as %xx."""
    spelled = "".join(c if c in _PLAIN else "".join(f"%{byte:02x}" for byte in c.encode()) for c in text)
    if len(spelled) <= _LONGEST_NAME:
        return spelled
    return f"{spelled[:60]}%{hashlib.blake2b(text.encode(), digest_size=16).hexdigest()}"


class Artifacts:
    """Writes artifacts into a folder."""

    def __init__(self, posts: PostReader, folder: Path, *, schema_version: str = "1.0.0") -> None:
        self._posts, self.folder, self._schema_version = posts, folder, schema_version

    async def write(self, of: ChatDay) -> bool:
        """Bring the file of a day up to date; False if it already was. There is always a whole one in its place."""
        path = path_of(self.folder, of)
        async with alone_in(path.parent):
            file = await asyncio.to_thread(Replacement, path)
            try:
                async for content in self._content(of):
                    await asyncio.to_thread(file.write, content)
                return await asyncio.to_thread(file.commit)
            finally:
                file.discard()

    async def _content(self, of: ChatDay) -> AsyncIterator[bytes]:
        chat, numbers = of.chat, await self._posts.numbers(of)
        names = await self._names(chat, numbers[-1:])
        head = {
            "schema_version": self._schema_version,
            "timezone": "UTC",
            "chat": {"id": chat.id, "username": names.username, "title": names.title},
            "date": of.day,
            "last_processed_msg_id": numbers[-1] if numbers else None,
            "message_count": len(numbers),
        }
        yield msgspec.json.encode(head)[:-1] + b',"messages":['
        between = b"\n"
        async for page in self._posts.pages(chat, numbers):
            yield between + b",\n".join(_message(chat, post) for post in page)
            between = b",\n"
        yield b"\n]}\n"

    async def _names(self, chat: Chat, newest: Any) -> ChatNames:
        """What the chat is called; if no account has said so, what its newest post said."""
        names = await self._posts.names(chat)
        if names == ChatNames():
            async for page in self._posts.pages(chat, newest):
                names = ChatNames(username=page[-1].data.get("channel"))
        return names


def _message(chat: Chat, post: StoredPost) -> bytes:
    head: dict[str, Any] = {"idempotency_key": idempotency_key(chat, post.posted_at, post.message_id)}
    if post.deleted:
        head["deleted"] = True
    return msgspec.json.encode(head)[:-1] + b"," + _encoder.encode(post.data)[1:]


class _Cursor(Struct, frozen=True):
    """How far the files in a folder are up to date."""

    folder: str
    position: int
    """Everything up to this event is in the files, apart from what is still being filled in."""
    filling: ChatDay | None = None
    """The last day that was filled in, while the folder is being filled for the first time."""


class FilesProjector:
    """Keeps a folder of artifacts up to date, by following the events. Only the leader writes.

    A folder that is new, or that was left behind for longer than events are kept, is first filled with everything there
    is. Stopped or killed anywhere, it goes on from its cursor; what it writes twice says the same.
    """

    def __init__(self, artifacts: Artifacts, posts: Posts, fleet: Fleet, leader: Leader) -> None:
        self._artifacts, self._posts, self._fleet, self._leader = artifacts, posts, fleet, leader
        self._rests_until = 0.0

    async def step(self) -> timedelta | None:
        """One portion; asks to go on at once while there is more.

        It rests four times as long as it worked: a large day that grows all the time must not be written all the time.
        """
        began = time.monotonic()
        if not self._leader.is_leader or began < self._rests_until:
            return None
        cursor = await self._cursor()
        is_done = await (self._follow(cursor) if cursor.filling is None else self._fill(cursor, cursor.filling))
        if not is_done:
            return timedelta()
        now = time.monotonic()
        self._rests_until = now + 4 * (now - began)
        return None

    async def _cursor(self) -> _Cursor:
        folder = str(self._artifacts.folder.absolute())
        stored = await self._fleet.get_fact(CURSOR)
        oldest, newest = await self._posts.positions()
        if stored is not None:
            cursor = msgspec.convert(stored, _Cursor)
            # Not when events behind it have been pruned, nor when the store was restored to a time before it.
            if cursor.folder == folder and oldest - 1 <= cursor.position <= newest:
                return cursor
        return _Cursor(folder, newest, filling=ChatDay("", date.min))

    async def _follow(self, cursor: _Cursor) -> bool:
        touched = await self._posts.touched(cursor.position, events=_EVENTS_AT_ONCE, days=_FILES_AT_ONCE)
        for day in touched.days:
            await self._artifacts.write(day)
        if touched.position != cursor.position:
            await self._move(_Cursor(cursor.folder, touched.position))
        return touched.is_all

    async def _fill(self, cursor: _Cursor, filled: ChatDay) -> bool:
        written = 0
        async for day in self._unfilled(filled):
            if written == _FILES_AT_ONCE:
                await self._move(_Cursor(cursor.folder, cursor.position, filled))
                return False
            await self._artifacts.write(day)
            filled, written = day, written + 1
        await self._move(_Cursor(cursor.folder, cursor.position))
        return False

    async def _unfilled(self, filled: ChatDay) -> AsyncIterator[ChatDay]:
        if filled.stream:
            async for day in self._posts.days(filled.stream, filled.day + timedelta(days=1)):
                yield day
        async for stream in self._posts.streams(filled.stream):
            async for day in self._posts.days(stream):
                yield day

    async def _move(self, cursor: _Cursor) -> None:
        await self._fleet.set_fact(CURSOR, msgspec.to_builtins(cursor))
