"""Plain data for the values that occur in many types of the protocol. Imports Telethon."""

import re
from collections.abc import Callable
from datetime import datetime
from typing import Any

from telethon.tl import types

_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def time_text(moment: datetime) -> str:
    """Return a time as text in UTC."""
    return moment.isoformat()[:19] + "Z"


def snake_case(name: str) -> str:
    """Return the name of a class in lower case, with underscores between its words."""
    return _WORD.sub("_", name).lower()


# -- entities: offsets and lengths are in UTF-16 units, as in the protocol

_KINDS = {
    kind: snake_case(name.removeprefix("MessageEntity"))
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


def entity_of(entity: Any) -> dict[str, Any]:
    """Return a link, mention or formatting of a text."""
    kind = type(entity)
    made = {"type": _KINDS.get(kind) or snake_case(kind.__name__), "offset": entity.offset, "length": entity.length}
    return made | _entity_details(entity, kind) if kind in _WITH_DETAILS else made


def _entity_details(entity: Any, kind: type) -> dict[str, Any]:
    if kind in _TEXTS:
        return {_TEXTS[kind]: getattr(entity, _TEXTS[kind])}
    if kind in _IDS:
        return {_IDS[kind]: str(getattr(entity, _IDS[kind]))}
    if kind is types.MessageEntityBlockquote:
        return {"collapsed": True} if entity.collapsed else {}
    return {} if entity.date is None else {"date": time_text(entity.date)}


# -- peers and texts


def peer_of(peer: Any) -> dict[str, Any]:
    """Return a user, channel or basic group by its number."""
    if isinstance(peer, types.PeerChannel):
        return {"channel_id": peer.channel_id}
    if isinstance(peer, types.PeerUser):
        return {"user_id": str(peer.user_id)}
    return {"chat_id": str(peer.chat_id)}


def text_of(text: Any) -> str:
    """Return the text of an object with entities; older layers have plain text."""
    return text if isinstance(text, str) else str(text.text)


# -- other and future types: their plain fields


def plain_fields(thing: Any, prefix: str) -> dict[str, Any]:
    """Return the plain fields of an object, and its `type`: the name of its class without `prefix`."""
    made: dict[str, Any] = {"type": snake_case(type(thing).__name__.removeprefix(prefix))}
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
    datetime: time_text,
    types.PeerChannel: peer_of,
    types.PeerUser: peer_of,
    types.PeerChat: peer_of,
    types.TextWithEntities: text_of,
}
