"""Artifacts: one file for each chat and UTC day, written from the stored posts.

    <folder>/<channel_id>/<YYYY-MM-DD>.json
    <folder>/tenant-<tenant_id>/<channel_id>/<YYYY-MM-DD>.json

Unchanged posts give the same bytes, and then the file is not written again. Its JSON Schema is
`floodmark/schemas/artifact-1.0.0.json`.
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

from .atomic import Replacement, lock_folder
from .options import SinkOptions
from .port import SinkTraits

# Files written by one step: limited, because a stopping process waits for it.
_FILES_AT_ONCE = 20
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyz0123456789_-")
_LONGEST_NAME = 120

_encoder = msgspec.json.Encoder(order="deterministic")


def path_of(folder: Path, of: ChatDay) -> Path:
    """Return the path of the artifact of a day. It contains only ids, no names or titles."""
    return folder_of(folder, of.chat) / f"{of.day.isoformat()}.json"


def folder_of(folder: Path, chat: Chat) -> Path:
    """Return the folder of the artifacts of a chat."""
    parent = folder if chat.tenant_id is None else folder / f"tenant-{_escape(chat.tenant_id)}"
    return parent / str(chat.id)


def _escape(text: str) -> str:
    """Return a unique folder name for a text, valid on any file system: other characters are written as %xx."""
    escaped = "".join(c if c in _PLAIN else "".join(f"%{byte:02x}" for byte in c.encode()) for c in text)
    if len(escaped) <= _LONGEST_NAME:
        return escaped
    return f"{escaped[:60]}%{hashlib.blake2b(text.encode(), digest_size=16).hexdigest()}"


class Artifacts:
    """Writes artifacts into a folder."""

    def __init__(self, posts: PostReader, folder: Path, *, schema_version: str = "1.0.0") -> None:
        self._posts, self.folder, self._schema_version = posts, folder, schema_version

    async def write(self, of: ChatDay) -> bool:
        """Bring the file of a day up to date; return False if it was. Readers always find a complete file."""
        path = path_of(self.folder, of)
        async with lock_folder(self.folder, path.parent):
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
        """Return the names of the chat; if no account has reported them, those in its newest post."""
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
    """Make the sink: that of ARTIFACTS_DIR, or one that SINKS names."""
    settings, folder = services.settings, services.settings.artifacts_dir
    if services.instance is not None:
        options = SinkOptions(services.instance, services.section)
        folder = Path(options.require("folder", "/data/posts"))
        options.finish()
    if folder is None:
        return None
    posts = Posts(services.database)
    return FilesSink(Artifacts(posts, folder, schema_version=settings.schema_version), posts)


class FilesSink:
    """Keeps a folder of artifacts up to date. A new folder is first filled with all stored days."""

    # A large file must not be written all the time.
    traits = SinkTraits(rest=4)

    def __init__(self, artifacts: Artifacts, posts: PostReader) -> None:
        self._artifacts, self._posts = artifacts, posts
        self.place = str(artifacts.folder.absolute())

    async def send(self, events: Sequence[Event]) -> int:
        """Write the files of the changed days. Writing a file again gives the same content."""
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
