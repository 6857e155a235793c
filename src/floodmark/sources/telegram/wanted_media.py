"""Which files of a message a job wants. Imports Telethon."""

from collections.abc import Sequence
from typing import Any

from telethon.tl import types

from floodmark.model.batch import Item, WantedFile
from floodmark.model.clean_text import clean
from floodmark.model.media import THUMB
from floodmark.model.sizes import format_size

from .targets import MediaRules

_LONGEST_NAME = 200

_KIND_OF = {
    "photo": "photo",
    "video": "video",
    "round_video": "video",
    "animation": "animation",
    "audio": "audio",
    "voice": "audio",
    "sticker": "sticker",
    "custom_emoji": "sticker",
    "document": "document",
}


def wanted_files(messages: Sequence[Any], items: Sequence[Item], rules: MediaRules | None) -> list[WantedFile]:
    """Return the files of messages that a job wants, and their thumbnails."""
    if rules is None:
        return []
    by_id = {item.data["id"]: item for item in items if not item.deleted and "media" in item.data}
    return [file for one in messages if one.id in by_id for file in _files(one, by_id[one.id], rules)]


def _files(message: Any, item: Item, rules: MediaRules) -> list[WantedFile]:
    described = item.data["media"]
    kind, media_id = _KIND_OF.get(described["type"]), described.get("id")
    if kind is None or media_id is None or kind not in rules.kinds:
        return []
    post = {"key": item.key, "channel_id": item.data["channel_id"], "message_id": message.id}
    size = described.get("size")
    is_large = rules.max_size is not None and (size or 0) > rules.max_size
    file = WantedFile(
        media_id,
        kind,
        **post,
        size=size,
        media_type=_short(described.get("mime")) or ("image/jpeg" if kind == "photo" else None),
        filename=_short(described.get("filename")),
        skipped=f"larger than {format_size(rules.max_size or 0)}" if is_large else None,
    )
    thumb = thumb_of(message.media)
    if thumb is None:
        return [file]
    small = WantedFile(f"{media_id}{THUMB}", "thumbnail", **post, size=thumb.size, media_type="image/jpeg")
    return [small, file]


def _short(text: str | None) -> str | None:
    """Return a text of the poster so that every database can store it."""
    return clean(text[:_LONGEST_NAME]) if text else None


def thumb_of(media: Any) -> Any | None:
    """Return the size of the thumbnail: that of about 320 pixels, or else the smallest; None if there is none.

    A photo that has only one size is its own thumbnail.
    """
    sizes = _sizes(media)
    if not sizes or (isinstance(media, types.MessageMediaPhoto) and len(sizes) == 1):
        return None
    return next((size for size in sizes if size.type == "m"), min(sizes, key=lambda size: size.w))


def location_of(media: Any, *, is_thumb: bool) -> tuple[Any, int] | None:
    """Return where a file of a message is downloaded from, and the number of its data centre; None if it has none."""
    held = getattr(media, "photo", None) or getattr(media, "document", None)
    if not isinstance(held, types.Photo | types.Document):
        return None
    thumb = thumb_of(media) if is_thumb else None
    if is_thumb and thumb is None:
        return None
    reference = (held.id, held.access_hash, held.file_reference)
    if isinstance(held, types.Document):
        return types.InputDocumentFileLocation(*reference, thumb.type if thumb is not None else ""), held.dc_id
    chosen = thumb or max(_all_sizes(held), key=lambda size: size.w, default=None)
    return None if chosen is None else (types.InputPhotoFileLocation(*reference, chosen.type), held.dc_id)


def _sizes(media: Any) -> list[Any]:
    held = getattr(media, "photo", None) or getattr(media, "document", None)
    return [size for size in _all_sizes(held) if isinstance(size, types.PhotoSize)]


def _all_sizes(held: Any) -> list[Any]:
    found = getattr(held, "sizes", None) or getattr(held, "thumbs", None) or ()
    return [size for size in found if isinstance(size, types.PhotoSize | types.PhotoSizeProgressive)]
