"""What is stored beside posts, for exports: their files, and the latest sample of their engagement."""

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from floodmark.model.clock import Clock
from floodmark.model.engagement import COUNTS, EngagementSample
from floodmark.model.exports import ExportRow
from floodmark.model.media import THUMB, MediaRow, content_path
from floodmark.model.posts import chat_of
from floodmark.store.database import Database

from .engagement import Engagement
from .media_files import MediaFiles


class _Media(Struct):
    id: str | None = None


class _Post(Struct):
    media: _Media | None = None


_DECODER = msgspec.json.Decoder(_Post)


class PostDetails:
    """Adds to rows of posts what is stored beside them, with one query for each kind and stream of a page."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._files, self._engagement = MediaFiles(database, clock), Engagement(database)

    async def add_to(self, rows: Sequence[ExportRow]) -> list[ExportRow]:
        """Return the rows in their order; those that are no posts stay as they are."""
        by_stream: dict[str, list[ExportRow]] = {}
        for row in rows:
            by_stream.setdefault(row.stream, []).append(row)
        posts = {stream: some for stream, some in by_stream.items() if chat_of(stream) is not None}
        if not posts:
            return list(rows)
        media_of = {(row.stream, row.key, row.revision): _media_id(row) for some in posts.values() for row in some}
        ids = {media_id for media_id in media_of.values() if media_id is not None}
        files = await self._files.with_ids({*ids, *(f"{media_id}{THUMB}" for media_id in ids)}) if ids else {}
        samples = {stream: await self._latest(stream, some) for stream, some in posts.items()}

        def add(row: ExportRow) -> ExportRow:
            sample = samples.get(row.stream, {}).get(row.key)
            beside = describe_files(media_of.get((row.stream, row.key, row.revision)), files) | _describe(sample)
            return replace(row, beside=beside) if beside else row

        return [add(row) for row in rows]

    async def _latest(self, stream: str, rows: Sequence[ExportRow]) -> dict[str, EngagementSample]:
        found = await self._engagement.of_posts(stream, sorted({row.key for row in rows}))
        return {key: samples[-1] for key, samples in found.items()}


def _media_id(row: ExportRow) -> str | None:
    if '"media"' not in row.data:
        return None
    try:
        media = _DECODER.decode(row.data).media
    except msgspec.DecodeError:
        # Changed by hand, or of another collector.
        return None
    return None if media is None else media.id


def describe_files(media_id: str | None, files: dict[str, MediaRow]) -> dict[str, Any]:
    """Return the column `files` of a post; empty if none of its files is known."""
    rows = [] if media_id is None else [files.get(media_id), files.get(f"{media_id}{THUMB}")]
    found = [
        {
            "sha256": row.sha256,
            "kind": row.kind,
            "size": row.size,
            "state": row.state,
            "path": content_path(row.sha256) if row.sha256 is not None and row.state == "stored" else None,
        }
        for row in rows
        if row is not None
    ]
    return {"files": found} if found else {}


def _describe(sample: EngagementSample | None) -> dict[str, Any]:
    if sample is None:
        return {}
    counts = {f"latest_{name}": getattr(sample, name) for name in COUNTS}
    return {**counts, "latest_seen_at": sample.seen_at.isoformat()}
