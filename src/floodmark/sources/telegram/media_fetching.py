"""Download the files of posts, after the posts and more slowly. Imports Telethon.

Each account downloads one file at a time, part by part. It uses the session that is open for its runs, gives way to
them, and makes at most TELEGRAM_MEDIA_PER_MINUTE requests. Rate limits and the circuit breaker of downloads are their
own, so that they never delay a run.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from telethon import errors
from telethon.tl import types
from telethon.tl.functions.upload import GetFileRequest

from floodmark.errors import AccountLost, FloodmarkError, Gone, SlowDown, SourceError
from floodmark.model.media import THUMB
from floodmark.observability.events import MediaStored, StepFailed

from .channels import KnownChannel
from .history import method_for_messages, request_messages
from .media_files import CLAIM, ClaimedFile, MediaFiles
from .media_folder import PartialFile, delete_content, path_of
from .services import TelegramServices
from .sessions import MEDIA, Session, Sessions, scope_of
from .wanted_media import location_of

# A divisor of 1 MB, as Telegram wants it; larger parts would delay the answers of runs on the same connection.
PART = 256 * 1024
GET_FILE = "upload.getFile"
# Files of one channel: their references are renewed with one request.
_AT_ONCE = 20
_DELETED_AT_ONCE = 100
# How long a part waits for runs of its account.
_PATIENCE_SECONDS = 2.0
_EXPIRED = (errors.FileReferenceExpiredError, errors.FileReferenceInvalidError, errors.FileReferenceEmptyError)


class SessionWanted(FloodmarkError):
    """Another process asks for the session: downloads end, and continue there."""


class MediaFetcher:
    """Downloads wanted files with the accounts of this process."""

    def __init__(
        self, services: TelegramServices, sessions: Sessions, files: MediaFiles, folder: Path, *, per_minute: float
    ) -> None:
        self._services, self._sessions, self._files, self._folder = services, sessions, files, folder
        self._pause = 60.0 / per_minute
        self._next_turn: dict[str, float] = {}

    async def step(self) -> timedelta | None:
        """Download some files with each account, and delete pruned ones."""
        accounts = [row.name for row in await self._services.accounts.active() if self._sessions.may_download(row)]
        counts = await asyncio.gather(*(self._fetch(account) for account in accounts))
        await self._delete_pruned()
        return timedelta() if any(counts) else None

    async def _fetch(self, account: str) -> int:
        """Download some files of one channel, and return how many were settled."""
        calls, scope = self._services.calls, scope_of(account)
        if await self._services.accounts.is_requested(account, holder=self._services.holder):
            return 0
        for key in ((f"{scope}{MEDIA}", GET_FILE), (scope, "connect")):
            if await calls.wait_of(*key) is not None:
                return 0
        claimed = await self._files.claim(account, holder=self._services.holder, limit=_AT_ONCE)
        if not claimed:
            return 0
        download: ChannelDownload | None = None
        try:
            async with self._sessions.borrow(account, is_download=True) as session:
                download = ChannelDownload(
                    self._services, self._files, self._folder, session, claimed, give_way=self.give_way
                )
                await download.run()
        except (SlowDown, SessionWanted):
            # The rest is downloaded later, or by another process.
            pass
        except (SourceError, OSError) as error:
            self._services.events.emit(StepFailed(step="telegram media", error=f"{type(error).__name__}: {error}"))
        finally:
            settled = set() if download is None else download.settled
            rest = [file.media_id for file in claimed if file.media_id not in settled]
            if rest:
                await self._files.release(rest, holder=self._services.holder)
        return len(settled)

    async def give_way(self, session: Session) -> None:
        """Wait for the turn of the next request, and a little for runs of the account."""
        name = session.account.name
        if await self._sessions.is_requested(name):
            raise SessionWanted("another process asks for the session")
        now = time.monotonic()
        turn = max(now, self._next_turn.get(name, 0.0))
        self._next_turn[name] = turn + self._pause
        if turn > now:
            await asyncio.sleep(turn - now)
        await self._sessions.wait_for_runs(name, _PATIENCE_SECONDS)

    async def _delete_pruned(self) -> None:
        hashes = await self._files.deletable(_DELETED_AT_ONCE)
        gone = await asyncio.to_thread(delete_content, self._folder, hashes) if hashes else []
        if gone:
            await self._files.forget_content(gone)


class ChannelDownload:
    """Downloads the claimed files of one channel."""

    def __init__(
        self,
        services: TelegramServices,
        files: MediaFiles,
        folder: Path,
        session: Session,
        claimed: Sequence[ClaimedFile],
        *,
        give_way: Callable[[Session], Awaitable[None]],
    ) -> None:
        self._services, self._files, self._folder = services, files, folder
        self._session, self._claimed, self._wait_for_turn = session, claimed, give_way
        self._extended = time.monotonic()
        self.settled: set[str] = set()

    async def run(self) -> None:
        """Download all claimed files."""
        number = self._claimed[0].channel_id
        channel = await self._services.channels.find(self._session.account.name, channel_id=number)
        if channel is None:
            return
        found = await self._messages(channel, self._claimed)
        # A complete file is made durable while the next one is downloaded.
        placing: asyncio.Task[None] | None = None
        try:
            for file in self._claimed:
                partial = await self._fetch(channel, file, found.get(file.message_id))
                if placing is not None:
                    await placing
                placing = None if partial is None else asyncio.create_task(self._place(file, partial))
        finally:
            if placing is not None:
                await placing

    async def _fetch(self, channel: KnownChannel, file: ClaimedFile, message: Any) -> PartialFile | None:
        """Download a file, and return it if it is complete; otherwise it is settled."""
        try:
            partial = await asyncio.to_thread(PartialFile, self._folder, file.media_id, PART)
        except BlockingIOError:
            # A process that has lost its claim still writes to it.
            await self._files.fail(file, "another process is downloading it")
            self.settled.add(file.media_id)
            return None
        is_complete = False
        try:
            await self._download(channel, file, message, partial)
            is_complete = True
        except (Gone, _NoFile) as error:
            await asyncio.to_thread(partial.discard)
            await self._files.give_up(file, str(error))
        except (SlowDown, AccountLost):
            raise
        except SourceError as error:
            await self._files.fail(file, str(error))
        finally:
            if not is_complete:
                await asyncio.to_thread(partial.close)
        if is_complete:
            return partial
        self.settled.add(file.media_id)
        return None

    async def _place(self, file: ClaimedFile, partial: PartialFile) -> None:
        """Move a complete file to its place, and record it."""
        sha256 = await asyncio.to_thread(partial.place_and_close)
        await self._files.finish(file, sha256=sha256, size=partial.size)
        self.settled.add(file.media_id)
        self._services.events.emit(MediaStored(file.kind, partial.size))
        if not await asyncio.to_thread(path_of(self._folder, sha256).exists):
            # Deleted as pruned in the same moment.
            await self._files.want_again(file.media_id)

    async def _download(self, channel: KnownChannel, file: ClaimedFile, message: Any, partial: PartialFile) -> None:
        """Read all parts that are missing. A reference that has expired is renewed, once for each part."""
        is_renewed, is_complete, offset = False, False, partial.size
        # A part is written while the next one is on its way.
        writing: asyncio.Future[None] | None = None
        try:
            while not is_complete:
                location, dc_id = _location(message, file)
                await self._prepare_request()
                request = GetFileRequest(location, offset, PART)
                try:
                    answer = await self._session.call_media(GET_FILE, request, channel_id=file.channel_id, dc_id=dc_id)
                except SourceError as error:
                    if not isinstance(error.__cause__, _EXPIRED) or is_renewed:
                        raise
                    is_renewed = True
                    message = (await self._messages(channel, [file])).get(file.message_id)
                    continue
                is_renewed = False
                if writing is not None:
                    await writing
                writing = asyncio.ensure_future(asyncio.to_thread(partial.append, answer.bytes))
                offset += len(answer.bytes)
                is_complete = len(answer.bytes) < PART
        finally:
            if writing is not None:
                await writing
        # The announced size of a photo is not always exact.
        if file.size not in (None, partial.size) and file.kind not in ("photo", "thumbnail"):
            await asyncio.to_thread(partial.discard)
            raise SourceError(f"it has {partial.size:,} bytes instead of {file.size:,}")

    async def _messages(self, channel: KnownChannel, files: Sequence[ClaimedFile]) -> dict[int, Any]:
        """Return the messages of files as they are now: the references in them are valid for some hours."""
        numbers = sorted({file.message_id for file in files})
        await self._prepare_request()
        answer = await self._session.call_media(
            method_for_messages(channel), request_messages(channel, numbers), channel_id=channel.channel_id
        )
        return {message.id: message for message in answer.messages if not isinstance(message, types.MessageEmpty)}

    async def _prepare_request(self) -> None:
        """Wait for the next turn, and extend the claim from time to time."""
        await self._wait_for_turn(self._session)
        if time.monotonic() - self._extended > CLAIM.total_seconds() / 3:
            self._extended = time.monotonic()
            await self._files.extend([file.media_id for file in self._claimed], holder=self._services.holder)


class _NoFile(SourceError):
    """The message has no such file any more."""


def _location(message: Any, file: ClaimedFile) -> tuple[Any, int]:
    if message is None:
        raise _NoFile("the post was deleted before its file was downloaded")
    found = location_of(message.media, is_thumb=file.media_id.endswith(THUMB))
    if found is None or str(found[0].id) != file.media_id.removesuffix(THUMB):
        raise _NoFile("the post has another file now")
    return found
