"""A message of Telegram as an item: plain data, its identity, and what counts as a change of it.

This is done for every message, so it reads attributes one by one and makes nothing that is not kept; what is empty
is left out. Imports Telethon, which takes a while: import this only where a client is at hand.
"""

import re
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from telethon.tl import types

from floodmark.model.batch import Item

_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
# A kind of media, and what of it only its author can change.
Described = tuple[dict[str, Any], str]
_EMPTY = types.MessageEmpty
_SERVICE = types.MessageService
_EMOJI = types.ReactionEmoji


def items_of(messages: Iterable[Any], channel_id: int, username: str | None) -> list[Item]:
    """The items of a page, in the order of the messages; those that are no longer there are left out."""
    return [item_of(m, channel_id, username) for m in messages if type(m) is not _EMPTY]


def key_of(channel_id: int, message_id: int) -> str:
    """The identity of a post, for ever."""
    return f"{channel_id}:{message_id}"


def item_of(message: Any, channel_id: int, username: str | None) -> Item:
    """One message. What others do with it (views, reactions, replies) is data, but no change of it."""
    text = message.message or ""
    date = message.date
    data: dict[str, Any] = {
        "id": message.id,
        "channel_id": channel_id,
        "channel": username,
        # Written by whoever stores it, as text in UTC.
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
        _edit(message, data, fingerprint)
    if type(message) is _SERVICE:
        _service(message, data, fingerprint)
    _rarer(message, data)
    return Item(f"{channel_id}:{message.id}", data, date, fingerprint)


def _edit(message: Any, data: dict[str, Any], fingerprint: list[Any]) -> None:
    edited = _time(message.edit_date)
    if message.edit_hide:
        # Telegram moves the date of an edit for reactions and the like, and shows it to nobody.
        data["hidden_edit_date"] = edited
    else:
        data["edit_date"] = edited
        fingerprint.append(edited)


def _service(message: Any, data: dict[str, Any], fingerprint: list[Any]) -> None:
    data["kind"] = "service"
    if message.action is not None:
        data["action"] = action = _plain(message.action, "MessageAction")
        fingerprint.append(action)


def _rarer(message: Any, data: dict[str, Any]) -> None:
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


# -- entities: offsets and lengths count UTF-16 units, as they come

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


_WITH_MORE = {*_TEXTS, *_IDS, types.MessageEntityBlockquote, types.MessageEntityFormattedDate}


def _entity(entity: Any) -> dict[str, Any]:
    kind = type(entity)
    made = {"type": _KINDS.get(kind) or _snake(kind.__name__), "offset": entity.offset, "length": entity.length}
    return made | _more(entity, kind) if kind in _WITH_MORE else made


def _more(entity: Any, kind: type) -> dict[str, Any]:
    if kind in _TEXTS:
        return {_TEXTS[kind]: getattr(entity, _TEXTS[kind])}
    if kind in _IDS:
        return {_IDS[kind]: str(getattr(entity, _IDS[kind]))}
    if kind is types.MessageEntityBlockquote:
        return {"collapsed": True} if entity.collapsed else {}
    return {} if entity.date is None else {"date": _time(entity.date)}


# -- who and where from


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
    describe = _MEDIA.get(type(media))
    if describe is None:
        made = _plain(media, "MessageMedia")
        return made, made["type"]
    return describe(media)


def _photo(media: Any) -> Described:
    made = {"type": "photo", **_photo_facts(media.photo)}
    if media.spoiler:
        made["spoiler"] = True
    if media.ttl_seconds is not None:
        made["ttl_seconds"] = media.ttl_seconds
    return made, made.get("id", "photo")


def _photo_facts(photo: Any) -> dict[str, Any]:
    if not isinstance(photo, types.Photo):
        return {}
    made: dict[str, Any] = {"id": str(photo.id)}
    widest = 0
    for size in photo.sizes:
        width = getattr(size, "w", 0)
        if width > widest:
            widest = width
            made["width"], made["height"] = width, size.h
            bytes_of = getattr(size, "size", None) or max(getattr(size, "sizes", None) or (0,))
            if bytes_of:
                made["size"] = bytes_of
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
        _ATTRIBUTES.get(type(attribute), _no_facts)(attribute, made)
    if media.spoiler:
        made["spoiler"] = True
    if media.ttl_seconds is not None:
        made["ttl_seconds"] = media.ttl_seconds
    return made, made["id"]


def _no_facts(_attribute: Any, _made: dict[str, Any]) -> None:
    pass


def _video(attribute: Any, made: dict[str, Any]) -> None:
    if made["type"] != "animation":
        made["type"] = "round_video" if attribute.round_message else "video"
    made["duration"], made["width"], made["height"] = attribute.duration, attribute.w, attribute.h


def _audio(attribute: Any, made: dict[str, Any]) -> None:
    made["type"] = "voice" if attribute.voice else "audio"
    made["duration"] = attribute.duration
    if attribute.title:
        made["title"] = attribute.title
    if attribute.performer:
        made["performer"] = attribute.performer


def _sticker(attribute: Any, made: dict[str, Any]) -> None:
    made["type"], made["emoji"] = "sticker", attribute.alt


def _custom_emoji(attribute: Any, made: dict[str, Any]) -> None:
    made["type"], made["emoji"] = "custom_emoji", attribute.alt


def _animation(_attribute: Any, made: dict[str, Any]) -> None:
    made["type"] = "animation"


def _image_size(attribute: Any, made: dict[str, Any]) -> None:
    made["width"], made["height"] = attribute.w, attribute.h


def _filename(attribute: Any, made: dict[str, Any]) -> None:
    made["filename"] = attribute.file_name


_ATTRIBUTES: dict[type, Callable[[Any, dict[str, Any]], None]] = {
    types.DocumentAttributeVideo: _video,
    types.DocumentAttributeAudio: _audio,
    types.DocumentAttributeSticker: _sticker,
    types.DocumentAttributeCustomEmoji: _custom_emoji,
    types.DocumentAttributeAnimated: _animation,
    types.DocumentAttributeImageSize: _image_size,
    types.DocumentAttributeFilename: _filename,
}


def _webpage(media: Any) -> Described:
    # No identity: a preview is made by Telegram some time after the post, and made anew now and then.
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
    answers = [{"text": _said(answer.text), "voters": voters.get(answer.option)} for answer in poll.answers]
    made: dict[str, Any] = {"type": "poll", "id": str(poll.id), "question": _said(poll.question), "answers": answers}
    if results.total_voters is not None:
        made["total_voters"] = results.total_voters
    made |= {name: True for name in ("closed", "quiz", "multiple_choice") if getattr(poll, name)}
    # Votes are not the author's.
    return made, f"{poll.id}:{made['question']}:{[a['text'] for a in answers]}:{bool(poll.closed)}"


def _said(text: Any) -> str:
    """Texts that may carry entities are objects since some layer, plain before."""
    return text if isinstance(text, str) else str(text.text)


def _point(geo: Any) -> dict[str, Any]:
    return {"lat": geo.lat, "long": geo.long} if isinstance(geo, types.GeoPoint) else {}


def _geo(media: Any) -> Described:
    made = {"type": "geo", **_point(media.geo)}
    return made, str(made)


def _geo_live(media: Any) -> Described:
    # It moves by itself for as long as `period` says.
    return {"type": "geo_live", **_point(media.geo), "period": media.period}, "geo_live"


def _venue(media: Any) -> Described:
    made = {"type": "venue", **_point(media.geo), "title": media.title, "address": media.address}
    return made, str(made)


def _contact(media: Any) -> Described:
    made: dict[str, Any] = {"type": "contact", "phone": media.phone_number, "first_name": media.first_name}
    if media.last_name:
        made["last_name"] = media.last_name
    if media.user_id:
        made["user_id"] = str(media.user_id)
    return made, str(made)


def _dice(media: Any) -> Described:
    made = {"type": "dice", "emoji": media.emoticon, "value": media.value}
    return made, str(made)


def _story(media: Any) -> Described:
    made = {"type": "story", "story_id": media.id, **_peer(media.peer)}
    return made, str(made)


def _game(media: Any) -> Described:
    game = media.game
    return {"type": "game", "id": str(game.id), "title": game.title, "description": game.description}, str(game.id)


def _invoice(media: Any) -> Described:
    made = {
        "type": "invoice",
        "title": media.title,
        "description": media.description,
        "currency": media.currency,
        "amount": media.total_amount,
    }
    return made, str(made)


def _todo(media: Any) -> Described:
    tasks = [_said(task.title) for task in media.todo.list]
    made = {"type": "to_do", "title": _said(media.todo.title), "tasks": tasks}
    return made, str(made)


def _paid(media: Any) -> Described:
    # Whether what is in it can be seen depends on who looks.
    return {"type": "paid_media", "stars": media.stars_amount, "count": len(media.extended_media)}, "paid_media"


_MEDIA: dict[type, Callable[[Any], Described]] = {
    types.MessageMediaPhoto: _photo,
    types.MessageMediaDocument: _document,
    types.MessageMediaWebPage: _webpage,
    types.MessageMediaPoll: _poll,
    types.MessageMediaGeo: _geo,
    types.MessageMediaGeoLive: _geo_live,
    types.MessageMediaVenue: _venue,
    types.MessageMediaContact: _contact,
    types.MessageMediaDice: _dice,
    types.MessageMediaStory: _story,
    types.MessageMediaGame: _game,
    types.MessageMediaInvoice: _invoice,
    types.MessageMediaToDo: _todo,
    types.MessageMediaPaidMedia: _paid,
}


# -- the rest: what Telegram invents next is kept as far as it is plain


def _plain(thing: Any, prefix: str) -> dict[str, Any]:
    made: dict[str, Any] = {"type": _snake(type(thing).__name__.removeprefix(prefix))}
    for name, value in vars(thing).items():
        told = _told(name, value)
        if told is not None:
            # An action has a field `type` of its own now and then.
            made[name if name != "type" else "of_type"] = told
    return made


def _told(name: str, value: Any) -> Any:
    if value is None or value is False or name.startswith("_"):
        return None
    if isinstance(value, list):
        return [told for told in (_told(name, entry) for entry in value) if told is not None] or None
    tell = _TELL.get(type(value))
    if tell is None:
        return None
    # Numbers of 64 bits are text, as everywhere; those of channels and messages are not.
    return str(value) if type(value) is int and abs(value) >= 2**31 and name != "channel_id" else tell(value)


_TELL: dict[type, Callable[[Any], Any]] = {
    bool: bool,
    int: int,
    float: float,
    str: str,
    datetime: _time,
    types.PeerChannel: _peer,
    types.PeerUser: _peer,
    types.PeerChat: _peer,
    types.TextWithEntities: _said,
}
