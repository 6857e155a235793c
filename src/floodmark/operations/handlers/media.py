"""Handlers of files of posts."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from floodmark.errors import Conflict, InvalidInput
from floodmark.model.media import MediaChanged, MediaRow, MediaState
from floodmark.model.page import Page, last_key, page_of
from floodmark.operations.media import LARGEST_PART, MediaOperations
from floodmark.sources.telegram.media_files import MediaFiles
from floodmark.sources.telegram.media_folder import read_part

from .base import Handlers


class MediaHandlers(MediaOperations, Handlers):
    """Files of posts in the store."""

    async def media(
        self,
        *,
        state: MediaState | None = None,
        stream: str | None = None,
        ids: Sequence[str] = (),
        cursor: str | None = None,
        limit: int = 50,
    ) -> Page[MediaRow]:
        name, after = await self._stream(stream), last_key("media", cursor, str)
        rows = await self._files.page(state=state, stream=name, ids=ids, after=after, limit=limit + 1)
        return page_of(rows, limit, "media", lambda row: [row.media_id])

    async def media_file(self, media_id: str) -> MediaRow:
        return await self._files.show(media_id)

    async def media_content(self, media_id: str, *, offset: int = 0, length: int = LARGEST_PART) -> bytes:
        row, folder = await self._files.show(media_id), self.resources.settings.artifacts_dir
        if row.state != "stored" or row.sha256 is None:
            raise Conflict(f"the file {row.media_id} is {row.state}", hint=f"floodmark media show {row.media_id}")
        if folder is None:
            raise Conflict(
                "this process does not know where files are", hint="set ARTIFACTS_DIR for it, and restart it"
            )
        try:
            return await asyncio.to_thread(read_part, folder, row.sha256, offset, length)
        except OSError as error:
            raise Conflict(
                f"the file {row.media_id} cannot be read on this machine: {error.strerror}",
                hint="ARTIFACTS_DIR must be a folder that workers and API servers share",
            ) from error

    async def retry_media(
        self,
        *,
        media_id: str | None = None,
        state: MediaState | None = None,
        stream: str | None = None,
        dry_run: bool = False,
    ) -> MediaChanged:
        if state in ("wanted", "stored"):
            raise InvalidInput(f"files that are {state} cannot be tried again", hint="failed, skipped, gone or pruned")
        if media_id is not None:
            await self._files.show(media_id)
        name = await self._stream(stream)
        async with self.transaction():
            count, size = await self._files.retry(media_id=media_id, state=state, stream=name, is_dry=dry_run)
            if count and not dry_run:
                which = {"media_id": media_id, "state": state, "stream": name, "files": count}
                await self.record("media.retried", f"media:{media_id or '*'}", after=which)
        return MediaChanged(files=count, size=size, applied=not dry_run)

    async def prune_media(
        self, older_than_seconds: float, *, stream: str | None = None, dry_run: bool = False
    ) -> MediaChanged:
        name = await self._stream(stream)
        before = self.resources.clock.now() - timedelta(seconds=older_than_seconds)
        async with self.transaction():
            count, size = await self._files.prune(before=before, stream=name, is_dry=dry_run)
            if count and not dry_run:
                which = {"stored_before": before, "stream": name, "files": count, "size": size}
                await self.record("media.pruned", "media:*", after=which)
        return MediaChanged(files=count, size=size, applied=not dry_run)

    @property
    def _files(self) -> MediaFiles:
        return MediaFiles(self.resources.database, self.resources.clock)

    async def _stream(self, text: str | None) -> str | None:
        return None if text is None else await self.find_items_stream(text)
