"""Convert messages of Telegram to items: plain data, a key, and the fingerprint that decides what is a change.

This runs for every message, so it reads attributes one by one and creates nothing that is not stored. Empty fields are
left out. Imports Telethon, which takes a while.
"""

import re
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from telethon.tl import types

from floodmark.model.batch import Item

_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
# The description of media, and the part of it that only the author can change.
Described = tuple[dict[str, Any], str]
_EMPTY = types.MessageEmpty
_SERVICE = types.MessageService
_EMOJI = types.ReactionEmoji


def items_of(messages: Iterable[Any], channel_id: int, username: str | None) -> list[Item]:
    """Return the items of messages, in their order; deleted messages are left out."""
    return [item_of(m, channel_id, username) for m in messages if type(m) is not _EMPTY]


def item_of(message: Any, channel_id: int, username: str | None) -> Item:
    """Return the item of a message. Views, reactions and replies are data, but no change of the message."""
    text = message.message or ""
    date = message.date
    data: dict[str, Any] = {
        "id": message.id,
        "channel_id": channel_id,
        "channel": username,
        # The sink writes it as text in UTC.
        "date": date,
        "text": text,
        "kind": "message",
    }
    fingerprint: list[Any] = [text]
    if message.entities:
        data["entities"] = entities = [_entity(entity) for entity in message.entities]
        fingerprint.append(entities)
    if message.media is not None:
        data["media"], identity = _media(message.media)
        if identity:
            fingerprint.append(identity)
    if message.views is not None:
        data["views"] = message.views
    if message.forwards is not None:
        data["forwards"] = message.forwards
    if message.replies is not None:
        data["replies"] = message.replies.replies
    if message.reactions is not None:
        data["reactions"] = [_reaction(result) for result in message.reactions.results]
    if message.grouped_id is not None:
        data["grouped_id"] = str(message.grouped_id)
    if message.edit_date is not None:
        _add_edit(message, data, fingerprint)
    if type(message) is _SERVICE:
        _add_action(message, data, fingerprint)
    _add_rare_fields(message, data)
    return Item(f"{channel_id}:{message.id}", data, date, fingerprint)


def _add_edit(message: Any, data: dict[str, Any], fingerprint: list[Any]) -> None:
    edited = _time(message.edit_date)
    if message.edit_hide:
        # Telegram changes the edit date for reactions and the like, and does not show it.
        data["hidden_edit_date"] = edited
    else:
        data["edit_date"] = edited
        fingerprint.append(edited)


def _add_action(message: Any, data: dict[str, Any], fingerprint: list[Any]) -> None:
    data["kind"] = "service"
    if message.action is not None:
        data["action"] = action = _plain(message.action, "MessageAction")
        fingerprint.append(action)


def _add_rare_fields(message: Any, data: dict[str, Any]) -> None:
    if message.reply_to is not None:
        data["reply_to"] = _reply(message.reply_to)
    if message.fwd_from is not None:
        data["forwarded_from"] = _origin(message.fwd_from)
    if message.from_id is not None:
        data["from"] = _peer(message.from_id)
    if message.post_author is not None:
        data["author"] = message.post_author
    if message.via_bot_id is not None:
        data["via_bot"] = str(message.via_bot_id)
    if message.pinned:
        data["pinned"] = True
    if message.silent:
        data["silent"] = True
    if message.noforwards:
        data["noforwards"] = True
    if message.ttl_period is not None:
        data["ttl_seconds"] = message.ttl_period


def _time(moment: datetime) -> str:
    return moment.isoformat()[:19] + "Z"


def _snake(name: str) -> str:
    return _WORD.sub("_", name).lower()


# -- entities: offsets and lengths are in UTF-16 units, as in the protocol

_KINDS = {
    kind: _snake(name.removeprefix("MessageEntity"))
    for name, kind in vars(types).items()
    if name.startswith("MessageEntity")
}
_TEXTS: dict[type, str] = {
    types.MessageEntityTextUrl: "url",
    types.MessageEntityPre: "language",
    types.MessageEntityDiffReplace: "old_text",
}
_IDS: dict[type, str] = {
    types.MessageEntityMentionName: "user_id",
    types.InputMessageEntityMentionName: "user_id",
    types.MessageEntityCustomEmoji: "document_id",
}


_WITH_DETAILS = {*_TEXTS, *_IDS, types.MessageEntityBlockquote, types.MessageEntityFormattedDate}


def _entity(entity: Any) -> dict[str, Any]:
    kind = type(entity)
    made = {"type": _KINDS.get(kind) or _snake(kind.__name__), "offset": entity.offset, "length": entity.length}
    return made | _entity_details(entity, kind) if kind in _WITH_DETAILS else made


def _entity_details(entity: Any, kind: type) -> dict[str, Any]:
    if kind in _TEXTS:
        return {_TEXTS[kind]: getattr(entity, _TEXTS[kind])}
    if kind in _IDS:
        return {_IDS[kind]: str(getattr(entity, _IDS[kind]))}
    if kind is types.MessageEntityBlockquote:
        return {"collapsed": True} if entity.collapsed else {}
    return {} if entity.date is None else {"date": _time(entity.date)}


# -- peers, replies, forwards and reactions


def _peer(peer: Any) -> dict[str, Any]:
    if isinstance(peer, types.PeerChannel):
        return {"channel_id": peer.channel_id}
    if isinstance(peer, types.PeerUser):
        return {"user_id": str(peer.user_id)}
    return {"chat_id": str(peer.chat_id)}


def _reply(header: Any) -> dict[str, Any]:
    if isinstance(header, types.MessageReplyStoryHeader):
        return {"story_id": header.story_id, **_peer(header.peer)}
    made: dict[str, Any] = {"id": header.reply_to_msg_id}
    if header.reply_to_peer_id is not None:
        made |= _peer(header.reply_to_peer_id)
    if header.reply_to_top_id is not None:
        made["top_id"] = header.reply_to_top_id
    if header.forum_topic:
        made["forum_topic"] = True
    if header.quote_text is not None:
        made["quote"] = {"text": header.quote_text, "offset": header.quote_offset or 0}
        if header.quote_entities:
            made["quote"]["entities"] = [_entity(entity) for entity in header.quote_entities]
    if header.reply_from is not None:
        made["from"] = _origin(header.reply_from)
    return made


def _origin(header: Any) -> dict[str, Any]:
    made: dict[str, Any] = {} if header.from_id is None else _peer(header.from_id)
    if header.date is not None:
        made["date"] = _time(header.date)
    if header.channel_post is not None:
        made["id"] = header.channel_post
    if header.from_name is not None:
        made["name"] = header.from_name
    if header.post_author is not None:
        made["author"] = header.post_author
    if header.imported:
        made["imported"] = True
    if header.psa_type is not None:
        made["psa_type"] = header.psa_type
    return made


def _reaction(result: Any) -> dict[str, Any]:
    kind = result.reaction
    if type(kind) is _EMOJI:
        return {"emoji": kind.emoticon, "count": result.count}
    if isinstance(kind, types.ReactionCustomEmoji):
        return {"custom_emoji": str(kind.document_id), "count": result.count}
    return {"type": _snake(type(kind).__name__.removeprefix("Reaction")), "count": result.count}


# -- media


def _media(media: Any) -> Described:
    kind = type(media)
    if kind in _MEDIA:
        return _MEDIA[kind](media)
    if kind in _AUTHORED_MEDIA:
        made = _AUTHORED_MEDIA[kind](media)
        return made, str(made)
    made = _plain(media, "MessageMedia")
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
    _add_file_flags(media, made)
    return made, made["id"]


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


def _webpage(media: Any) -> Described:
    # No identity: Telegram creates the preview some time after the post, and renews it from time to time.
    page = media.webpage
    made: dict[str, Any] = {"type": "webpage"}
    for name in ("url", "site_name", "title", "description", "author"):
        value = getattr(page, name, None)
        if value:
            made[name] = value
    return made, ""


def _poll(media: Any) -> Described:
    poll, results = media.poll, media.results
    voters = {result.option: result.voters for result in results.results or ()}
    answers = [{"text": _text(answer.text), "voters": voters.get(answer.option)} for answer in poll.answers]
    made: dict[str, Any] = {"type": "poll", "id": str(poll.id), "question": _text(poll.question), "answers": answers}
    if results.total_voters is not None:
        made["total_voters"] = results.total_voters
    made |= {name: True for name in ("closed", "quiz", "multiple_choice") if getattr(poll, name)}
    # Votes are not part of the identity.
    return made, f"{poll.id}:{made['question']}:{[a['text'] for a in answers]}:{bool(poll.closed)}"


def _text(text: Any) -> str:
    """Return the text of an object with entities; older layers have plain text."""
    return text if isinstance(text, str) else str(text.text)


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
    types.MessageMediaStory: lambda media: {"type": "story", "story_id": media.id, **_peer(media.peer)},
    types.MessageMediaInvoice: lambda media: {
        "type": "invoice",
        "title": media.title,
        "description": media.description,
        "currency": media.currency,
        "amount": media.total_amount,
    },
    types.MessageMediaToDo: lambda media: {
        "type": "to_do",
        "title": _text(media.todo.title),
        "tasks": [_text(task.title) for task in media.todo.list],
    },
}


# -- other and future types: their plain fields


def _plain(thing: Any, prefix: str) -> dict[str, Any]:
    made: dict[str, Any] = {"type": _snake(type(thing).__name__.removeprefix(prefix))}
    for name, value in vars(thing).items():
        converted = _convert(name, value)
        if converted is not None:
            # Some actions have a field `type` of their own.
            made[name if name != "type" else "of_type"] = converted
    return made


def _convert(name: str, value: Any) -> Any:
    if value is None or value is False or name.startswith("_"):
        return None
    if isinstance(value, list):
        return [each for each in (_convert(name, entry) for entry in value) if each is not None] or None
    convert = _CONVERSIONS.get(type(value))
    if convert is None:
        return None
    # 64-bit numbers are text, as everywhere, except ids of channels and messages.
    return str(value) if type(value) is int and abs(value) >= 2**31 and name != "channel_id" else convert(value)


_CONVERSIONS: dict[type, Callable[[Any], Any]] = {
    bool: bool,
    int: int,
    float: float,
    str: str,
    datetime: _time,
    types.PeerChannel: _peer,
    types.PeerUser: _peer,
    types.PeerChat: _peer,
    types.TextWithEntities: _text,
}
