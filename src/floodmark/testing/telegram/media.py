"""Media stubs with all metadata of a file, and with content if a client downloads it."""

from datetime import UTC, datetime
from typing import Any

from telethon.tl import types

from .sessions import DC, derive_bytes, number

# References of files expire: the last byte says in which period they are valid.
_REFERENCE = b"\x01floodmar"
THUMB_SIZE = 1_800
# Whole seconds long ago: when a file was uploaded says nothing about the message.
_UPLOADED = datetime(2024, 1, 1, tzinfo=UTC)


def reference(period: int) -> bytes:
    """Return the reference of every file in a period."""
    return _REFERENCE + bytes([period])


def size_of(media_id: int) -> int:
    """Return the size of a file in bytes; it depends only on the id."""
    return 2_000 + media_id % 60_000


def content(media_id: int, offset: int, limit: int) -> bytes:
    """Return a part of a file."""
    size = min(size_of(media_id) - offset, limit)
    return derive_bytes(offset + size, "file", media_id)[offset:] if size > 0 else b""


def thumbnail(media_id: int, offset: int, limit: int) -> bytes:
    """Return a part of the small version of a photo or of the preview of a file."""
    return derive_bytes(THUMB_SIZE, "thumb", media_id)[offset : offset + limit]


def photo(*parts: object) -> Any:
    """Return a photo in two sizes."""
    media_id = number("photo", *parts)
    sizes = [types.PhotoSize("m", 320, 240, THUMB_SIZE), types.PhotoSize("x", 800, 600, size_of(media_id))]
    made = types.Photo(media_id, number("hash", media_id), reference(0), _UPLOADED, sizes, DC)
    return types.MessageMediaPhoto(photo=made)


def document(*parts: object, name: str = "report.pdf", mime: str = "application/pdf") -> Any:
    """Return a file with a name."""
    return types.MessageMediaDocument(
        document=_document(mime, [types.DocumentAttributeFilename(name)], "document", *parts)
    )


def video(*parts: object, seconds: float = 17.0) -> Any:
    """Return a short video."""
    shape = types.DocumentAttributeVideo(seconds, 640, 360, supports_streaming=True)
    return types.MessageMediaDocument(
        document=_document("video/mp4", [shape, types.DocumentAttributeFilename("clip.mp4")], "video", *parts),
        video=True,
    )


def uploaded(media_id: int, size: int, *, name: str, mime: str, has_thumb: bool = False, dc: int = DC) -> Any:
    """Return a file with a given content; the content is in `TelegramBackend.files`."""
    attributes: list[Any] = [types.DocumentAttributeFilename(name)]
    if mime.startswith("video/"):
        attributes.insert(0, types.DocumentAttributeVideo(17.0, 640, 360))
    thumbs = [types.PhotoSize("m", 320, 180, THUMB_SIZE)] if has_thumb else None
    held = types.Document(
        media_id, number("hash", media_id), reference(0), _UPLOADED, mime, size, dc, attributes, thumbs=thumbs
    )
    return types.MessageMediaDocument(document=held)


def webpage(url: str, title: str, description: str = "") -> Any:
    """Return the preview of a link."""
    page = types.WebPage(
        number("page", url), url, url.removeprefix("https://"), 0, type="article", title=title, description=description
    )
    return types.MessageMediaWebPage(page)


def poll(question: str, answers: list[str], votes: list[int] | None = None) -> Any:
    """Return a poll with its results."""
    options = [types.PollAnswer(_plain(text), bytes([index])) for index, text in enumerate(answers)]
    counts = votes or [0] * len(answers)
    results = [
        types.PollAnswerVoters(option.option, voters=count, recent_voters=[])
        for option, count in zip(options, counts, strict=True)
    ]
    return types.MessageMediaPoll(
        types.Poll(number("poll", question), _plain(question), options, 0),
        types.PollResults(results=results, total_voters=sum(counts)),
    )


def _document(mime: str, attributes: list[Any], *parts: object) -> Any:
    media_id = number(*parts)
    return types.Document(
        media_id, number("hash", media_id), reference(0), _UPLOADED, mime, size_of(media_id), DC, attributes
    )


def _plain(text: str) -> Any:
    return types.TextWithEntities(text, [])
