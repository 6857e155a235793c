"""Convert messages of Telegram to items: plain data, a key, and the fingerprint that decides what is a change.

This runs for every message, so it reads attributes one by one and creates nothing that is not stored. Empty fields are
left out. Imports Telethon, which takes a while.
"""

from collections.abc import Iterable
from typing import Any

from telethon.tl import types

from floodmark.model.batch import Item

from .buttons import buttons_of
from .media_data import describe_media
from .peer_names import NO_NAMES, PeerNames
from .plain_values import entity_of, peer_of, plain_fields, snake_case, time_text
from .raw_messages import raw_of

_EMPTY = types.MessageEmpty
_SERVICE = types.MessageService
_EMOJI = types.ReactionEmoji


def items_of(
    messages: Iterable[Any],
    channel_id: int,
    username: str | None,
    names: PeerNames = NO_NAMES,
    *,
    with_raw: bool = False,
) -> list[Item]:
    """Return the items of messages, in their order; deleted messages are left out."""
    items = [item_of(m, channel_id, username, names) for m in messages if type(m) is not _EMPTY]
    if with_raw:
        for item, message in zip(items, (m for m in messages if type(m) is not _EMPTY), strict=True):
            item.data["raw_message"] = raw_of(message)
    return items


def item_of(message: Any, channel_id: int, username: str | None, names: PeerNames = NO_NAMES) -> Item:
    """Return the item of a message.

    Only what its author can change is in the fingerprint. Views, reactions, replies, names, buttons, previews and
    restrictions are data, but no change of the message.
    """
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
        data["entities"] = entities = [entity_of(entity) for entity in message.entities]
        fingerprint.append(entities)
    if message.media is not None:
        data["media"], identity = describe_media(message.media)
        if identity:
            fingerprint.append(identity)
    if message.views is not None:
        data["views"] = message.views
    if message.forwards is not None:
        data["forwards"] = message.forwards
    if message.replies is not None:
        data["replies"] = message.replies.replies
        if message.replies.comments and message.replies.channel_id is not None:
            data["discussion"] = message.replies.channel_id
    if message.reactions is not None:
        data["reactions"] = [_reaction(result) for result in message.reactions.results]
    if message.grouped_id is not None:
        data["grouped_id"] = str(message.grouped_id)
    if message.edit_date is not None:
        _add_edit(message, data, fingerprint)
    if type(message) is _SERVICE:
        _add_action(message, data, fingerprint)
    _add_origin(message, data, names)
    _add_rare_fields(message, data)
    return Item(f"{channel_id}:{message.id}", data, date, fingerprint)


def _add_edit(message: Any, data: dict[str, Any], fingerprint: list[Any]) -> None:
    edited = time_text(message.edit_date)
    if message.edit_hide:
        # Telegram changes the edit date for reactions and the like, and does not show it.
        data["hidden_edit_date"] = edited
    else:
        data["edit_date"] = edited
        fingerprint.append(edited)


def _add_action(message: Any, data: dict[str, Any], fingerprint: list[Any]) -> None:
    data["kind"] = "service"
    if message.action is not None:
        data["action"] = action = plain_fields(message.action, "MessageAction")
        fingerprint.append(action)


def _add_origin(message: Any, data: dict[str, Any], names: PeerNames) -> None:
    """Add who wrote a message, and where it comes from."""
    if message.reply_to is not None:
        data["reply_to"] = _reply(message.reply_to, names)
    if message.fwd_from is not None:
        data["forwarded_from"] = _origin(message.fwd_from, names)
    if message.from_id is not None:
        data["from"] = names.describe(message.from_id)
    if message.post_author is not None:
        data["author"] = message.post_author
    if message.via_bot_id is not None:
        data["via_bot"] = str(message.via_bot_id)
        if username := names.username_of(message.via_bot_id):
            data["via_bot_name"] = username


def _add_rare_fields(message: Any, data: dict[str, Any]) -> None:
    if message.reply_markup is not None and (buttons := buttons_of(message.reply_markup)):
        data["buttons"] = buttons
    if message.restriction_reason:
        data["restrictions"] = [
            {"platform": each.platform, "reason": each.reason, "text": each.text} for each in message.restriction_reason
        ]
    if message.pinned:
        data["pinned"] = True
    if message.silent:
        data["silent"] = True
    if message.noforwards:
        data["noforwards"] = True
    if message.ttl_period is not None:
        data["ttl_seconds"] = message.ttl_period


# -- replies, forwards and reactions


def _reply(header: Any, names: PeerNames) -> dict[str, Any]:
    if isinstance(header, types.MessageReplyStoryHeader):
        return {"story_id": header.story_id, **names.describe(header.peer)}
    made: dict[str, Any] = {"id": header.reply_to_msg_id}
    if header.reply_to_peer_id is not None:
        made |= names.describe(header.reply_to_peer_id)
    if header.reply_to_top_id is not None:
        made["top_id"] = header.reply_to_top_id
    if header.forum_topic:
        made["forum_topic"] = True
    if header.quote_text is not None:
        made["quote"] = {"text": header.quote_text, "offset": header.quote_offset or 0}
        if header.quote_entities:
            made["quote"]["entities"] = [entity_of(entity) for entity in header.quote_entities]
    if header.reply_from is not None:
        made["from"] = _origin(header.reply_from, names)
    return made


def _origin(header: Any, names: PeerNames) -> dict[str, Any]:
    made: dict[str, Any] = {} if header.from_id is None else names.describe(header.from_id)
    if header.date is not None:
        made["date"] = time_text(header.date)
    if header.channel_post is not None:
        made["id"] = header.channel_post
    if header.from_name is not None:
        made["name"] = header.from_name
    if header.post_author is not None:
        made["author"] = header.post_author
    if header.saved_from_peer is not None and header.saved_from_msg_id is not None:
        made["saved_from"] = {**peer_of(header.saved_from_peer), "id": header.saved_from_msg_id}
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
    return {"type": snake_case(type(kind).__name__.removeprefix("Reaction")), "count": result.count}
