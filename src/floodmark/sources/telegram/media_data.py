"""Describe the media of messages: plain data, and the part of it that only the author can change. Imports Telethon."""

from collections.abc import Callable
from typing import Any

from telethon.tl import types

from .plain_values import peer_of, plain_fields, text_of

# The description of media, and the part of it that only the author can change.
Described = tuple[dict[str, Any], str]


def describe_media(media: Any) -> Described:
    """Return the description of media, and its identity; an empty identity if Telegram changes it by itself."""
    kind = type(media)
    if kind in _MEDIA:
        return _MEDIA[kind](media)
    if kind in _AUTHORED_MEDIA:
        made = _AUTHORED_MEDIA[kind](media)
        return made, str(made)
    made = plain_fields(media, "MessageMedia")
    return made, made["type"]


def _photo(media: Any) -> Described:
    made = {"type": "photo", **_photo_details(media.photo)}
    _add_file_flags(media, made)
    return made, made.get("id", "photo")


def _add_file_flags(media: Any, made: dict[str, Any]) -> None:
    if media.spoiler:
        made["spoiler"] = True
    if media.ttl_seconds is not None:
        made["ttl_seconds"] = media.ttl_seconds


def _photo_details(photo: Any) -> dict[str, Any]:
    if not isinstance(photo, types.Photo):
        return {}
    made: dict[str, Any] = {"id": str(photo.id)}
    widest = 0
    for size in photo.sizes:
        width = getattr(size, "w", 0)
        if width > widest:
            widest = width
            made["width"], made["height"] = width, size.h
            byte_count = getattr(size, "size", None) or max(getattr(size, "sizes", None) or (0,))
            if byte_count:
                made["size"] = byte_count
    return made


def _document(media: Any) -> Described:
    document = media.document
    if not isinstance(document, types.Document):
        return {"type": "document"}, "document"
    made = _document_details(document)
    _add_file_flags(media, made)
    return made, made["id"]


def _document_details(document: Any) -> dict[str, Any]:
    made: dict[str, Any] = {
        "type": "document",
        "id": str(document.id),
        "mime": document.mime_type,
        "size": document.size,
    }
    for attribute in document.attributes:
        describe = _ATTRIBUTES.get(type(attribute))
        if describe is not None:
            made |= describe(attribute, made["type"])
    return made


def _video(attribute: Any, kind: str) -> dict[str, Any]:
    if kind != "animation":
        kind = "round_video" if attribute.round_message else "video"
    return {"type": kind, "duration": attribute.duration, "width": attribute.w, "height": attribute.h}


def _audio(attribute: Any, _kind: str) -> dict[str, Any]:
    made = {"type": "voice" if attribute.voice else "audio", "duration": attribute.duration}
    if attribute.title:
        made["title"] = attribute.title
    if attribute.performer:
        made["performer"] = attribute.performer
    return made


# From an attribute and the type of the document so far to fields of the document.
_ATTRIBUTES: dict[type, Callable[[Any, str], dict[str, Any]]] = {
    types.DocumentAttributeVideo: _video,
    types.DocumentAttributeAudio: _audio,
    types.DocumentAttributeSticker: lambda attribute, _: {"type": "sticker", "emoji": attribute.alt},
    types.DocumentAttributeCustomEmoji: lambda attribute, _: {"type": "custom_emoji", "emoji": attribute.alt},
    types.DocumentAttributeAnimated: lambda *_: {"type": "animation"},
    types.DocumentAttributeImageSize: lambda attribute, _: {"width": attribute.w, "height": attribute.h},
    types.DocumentAttributeFilename: lambda attribute, _: {"filename": attribute.file_name},
}


_PAGE_TEXTS = ("url", "site_name", "title", "description", "author", "embed_url", "duration")


def _webpage(media: Any) -> Described:
    # No identity: Telegram creates the preview some time after the post, and renews it from time to time.
    page = media.webpage
    made: dict[str, Any] = {"type": "webpage"}
    for name in _PAGE_TEXTS:
        value = getattr(page, name, None)
        if value:
            made[name] = value
    if isinstance(page, types.WebPage):
        _add_page_details(page, made)
    return made, ""


def _add_page_details(page: Any, made: dict[str, Any]) -> None:
    if page.type:
        made["page_type"] = page.type
    if photo := _photo_details(page.photo):
        made["photo"] = photo
    if isinstance(page.document, types.Document):
        made["document"] = _document_details(page.document)
    if page.cached_page is not None:
        made["instant_view"] = True


def _poll(media: Any) -> Described:
    poll, results = media.poll, media.results
    voters = {result.option: result.voters for result in results.results or ()}
    answers = [{"text": text_of(answer.text), "voters": voters.get(answer.option)} for answer in poll.answers]
    made: dict[str, Any] = {"type": "poll", "id": str(poll.id), "question": text_of(poll.question), "answers": answers}
    if results.total_voters is not None:
        made["total_voters"] = results.total_voters
    made |= {name: True for name in ("closed", "quiz", "multiple_choice") if getattr(poll, name)}
    # Votes are not part of the identity.
    return made, f"{poll.id}:{made['question']}:{[a['text'] for a in answers]}:{bool(poll.closed)}"


def _point(geo: Any) -> dict[str, Any]:
    return {"lat": geo.lat, "long": geo.long} if isinstance(geo, types.GeoPoint) else {}


def _contact(media: Any) -> dict[str, Any]:
    made: dict[str, Any] = {"type": "contact", "phone": media.phone_number, "first_name": media.first_name}
    if media.last_name:
        made["last_name"] = media.last_name
    if media.user_id:
        made["user_id"] = str(media.user_id)
    return made


def _game(media: Any) -> Described:
    game = media.game
    return {"type": "game", "id": str(game.id), "title": game.title, "description": game.description}, str(game.id)


def _geo_live(media: Any) -> Described:
    # The position moves by itself for as long as `period` says.
    return {"type": "geo_live", **_point(media.geo), "period": media.period}, "geo_live"


def _paid(media: Any) -> Described:
    # Whether its content is visible depends on the reader.
    return {"type": "paid_media", "stars": media.stars_amount, "count": len(media.extended_media)}, "paid_media"


_MEDIA: dict[type, Callable[[Any], Described]] = {
    types.MessageMediaPhoto: _photo,
    types.MessageMediaDocument: _document,
    types.MessageMediaWebPage: _webpage,
    types.MessageMediaPoll: _poll,
    types.MessageMediaGeoLive: _geo_live,
    types.MessageMediaGame: _game,
    types.MessageMediaPaidMedia: _paid,
}
# Media that only the author can change. The order of the fields is part of stored fingerprints: do not change it.
_AUTHORED_MEDIA: dict[type, Callable[[Any], dict[str, Any]]] = {
    types.MessageMediaContact: _contact,
    types.MessageMediaGeo: lambda media: {"type": "geo", **_point(media.geo)},
    types.MessageMediaVenue: lambda media: {
        "type": "venue",
        **_point(media.geo),
        "title": media.title,
        "address": media.address,
    },
    types.MessageMediaDice: lambda media: {"type": "dice", "emoji": media.emoticon, "value": media.value},
    types.MessageMediaStory: lambda media: {"type": "story", "story_id": media.id, **peer_of(media.peer)},
    types.MessageMediaInvoice: lambda media: {
        "type": "invoice",
        "title": media.title,
        "description": media.description,
        "currency": media.currency,
        "amount": media.total_amount,
    },
    types.MessageMediaToDo: lambda media: {
        "type": "to_do",
        "title": text_of(media.todo.title),
        "tasks": [text_of(task.title) for task in media.todo.list],
    },
}
