"""Files of posts for browsers: only pictures of known kinds are shown, everything else is saved.

Nothing in a file of a stranger may run on our address: the kind of a file follows from its first bytes, never from its
name or from what its source says about it.
"""

from collections.abc import AsyncIterator, Mapping
from typing import Any
from urllib.parse import quote

from msgspec import Struct
from starlette.responses import Response, StreamingResponse

from floodmark.model.media import THUMB, MediaRow
from floodmark.operations.media import LARGEST_PART

from .view import View

_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; sandbox",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    # The address names a file of the source, which does not change.
    "Cache-Control": "private, max-age=3600",
}


class PostFile(Struct, frozen=True):
    """A file of a post, and its thumbnail."""

    row: MediaRow
    thumb: MediaRow | None = None

    @property
    def picture(self) -> MediaRow | None:
        """What can be shown of it: its thumbnail, or itself if it is a photo."""
        shown = [self.thumb, *([self.row] if self.row.kind == "photo" else [])]
        return next((one for one in shown if one is not None and one.state == "stored"), None)


def picture_type(content: bytes) -> str | None:
    """Return the media type of a picture that browsers show safely, by its first bytes; None for anything else."""
    if content.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if content.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if content[:6] in (b"GIF87a", b"GIF89a"):
        return "image/gif"
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "image/webp"
    return None


def media_ids_of(data: Any) -> list[str]:
    """Return the numbers of the files that a post may have: its media and their thumbnail."""
    media = data.get("media") if isinstance(data, Mapping) else None
    number = media.get("id") if isinstance(media, Mapping) else None
    return [number, f"{number}{THUMB}"] if isinstance(number, str) and 0 < len(number) <= 40 else []


def group_files(rows: list[MediaRow]) -> list[PostFile]:
    """Return files with their thumbnails."""
    thumbs = {row.media_id.removesuffix(THUMB): row for row in rows if row.media_id.endswith(THUMB)}
    return [PostFile(row, thumbs.get(row.media_id)) for row in rows if not row.media_id.endswith(THUMB)]


async def send_file(view: View, media_id: str) -> Response:
    """Return the response that sends a file in parts. Errors before the first part are raised here."""
    row = await view.operations.media_file(media_id)
    tag = f'"{row.sha256}"'
    if row.sha256 is not None and view.request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers={"ETag": tag, **_HEADERS})
    first = await view.operations.media_content(media_id)
    kind = picture_type(first)
    headers = {**_HEADERS, "ETag": tag, "Content-Disposition": disposition_of(row, is_picture=kind is not None)}
    if row.size is not None:
        headers["Content-Length"] = str(row.size)
    media_type = kind or "application/octet-stream"
    if len(first) < LARGEST_PART:
        return Response(first, headers={**headers, "Content-Length": str(len(first))}, media_type=media_type)

    async def parts() -> AsyncIterator[bytes]:
        part, offset = first, 0
        while part:
            yield part
            offset += len(part)
            part = b"" if len(part) < LARGEST_PART else await view.operations.media_content(media_id, offset=offset)

    return StreamingResponse(parts(), headers=headers, media_type=media_type)


def disposition_of(row: MediaRow, *, is_picture: bool) -> str:
    """Return how a browser handles a file; its name at the source is only suggested."""
    name = row.filename or f"{row.kind}-{row.media_id.replace(':', '-')}"
    # A name without folders, control characters and quotes.
    plain = "".join(one for one in name.replace("\\", "/").rpartition("/")[2] if one.isprintable())[:150] or "file"
    return f"{'inline' if is_picture else 'attachment'}; filename*=UTF-8''{quote(plain, safe='')}"
