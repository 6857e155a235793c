"""Artifacts: one file for each chat and UTC day, made from what is kept.

    <folder>/<channel_id>/<YYYY-MM-DD>.json
    <folder>/tenant-<tenant_id>/<channel_id>/<YYYY-MM-DD>.json

A file is a picture of the store: written again from unchanged posts it has the same bytes, and is left alone. Its JSON
Schema is `floodmark/schemas/artifact-1.0.0.json`.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import msgspec

from floodmark.extensions.services import Services
from floodmark.model.posts import Chat, chat_of, idempotency_key
from floodmark.sources.telegram.stored_posts import ChatDay, ChatNames, PostReader, Posts, StoredPost
from floodmark.store.port import Event

from .atomic import Replacement, alone_in

# Files written by one step: bounded, so that a leaving process does not wait for it.
_FILES_AT_ONCE = 20
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


def open_files(services: Services) -> "FilesSink | None":
    """Make the sink if there is an ARTIFACTS_DIR."""
    settings = services.settings
    if settings.artifacts_dir is None:
        return None
    posts = Posts(services.database)
    return FilesSink(Artifacts(posts, settings.artifacts_dir, schema_version=settings.schema_version), posts)


class FilesSink:
    """Keeps a folder of artifacts up to date. A new folder is first filled with everything that is stored."""

    def __init__(self, artifacts: Artifacts, posts: PostReader) -> None:
        self._artifacts, self._posts = artifacts, posts
        self.place = str(artifacts.folder.absolute())

    async def send(self, events: Sequence[Event]) -> int:
        """Write the files of the days on which something changed; a file that is written twice is the same."""
        days, taken = dict[ChatDay, None](), 0
        for event in events:
            if event.occurred_at is not None and chat_of(event.stream) is not None:
                day = ChatDay(event.stream, event.occurred_at.date())
                if day not in days and len(days) == _FILES_AT_ONCE:
                    break
                days[day] = None
            taken += 1
        for day in days:
            await self._artifacts.write(day)
        return taken

    async def fill(self, after: Any) -> Any:
        """Write the files of the next days."""
        filled = msgspec.convert(after, ChatDay) if after else ChatDay("", date.min)
        written = 0
        async for day in self._unfilled(filled):
            if written == _FILES_AT_ONCE:
                return msgspec.to_builtins(filled)
            await self._artifacts.write(day)
            filled, written = day, written + 1
        return None

    async def _unfilled(self, filled: ChatDay) -> AsyncIterator[ChatDay]:
        if filled.stream:
            async for day in self._posts.days(filled.stream, filled.day + timedelta(days=1)):
                yield day
        async for stream in self._posts.streams(filled.stream):
            async for day in self._posts.days(stream):
                yield day
