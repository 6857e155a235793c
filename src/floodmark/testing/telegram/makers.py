"""Three kinds of generated messages.

    lifelike    several languages, albums, media, polls, replies, forwards, reactions, service messages; 0.1 ms each
    typical     about 1 KB: 400 Cyrillic characters, 2 entities, 2 reactions, every second one a photo; from a template
    plain       a short text and nothing else; from a template

A template is a message that is serialised once; its id, date and number are overwritten at known offsets. A page of a
hundred messages then costs a fraction of a millisecond, so that a benchmark measures the client.
"""

import struct
from collections.abc import Callable
from functools import lru_cache
from random import Random
from typing import Any, Literal

from telethon.tl import types

from floodmark.errors import InvalidInput

from . import media, texts
from .history import MessageMaker
from .raw import pack
from .sessions import number

Kind = Literal["lifelike", "typical", "plain"]

# Values that occur nowhere else in a template, to find their places.
_ID, _DATE, _NUMBER = 0x7ABCDE01, 0x6BCDEF02, "0099887766"
_VARIANTS = 16


def maker(kind: Kind, seed: int, channel_id: int) -> MessageMaker:
    """Return the maker of this kind of messages for a channel."""
    if kind == "lifelike":
        return Lifelike(seed, channel_id)
    if kind == "typical":
        return Templates([_typical(seed, channel_id, variant) for variant in range(_VARIANTS)])
    if kind == "plain":
        return Templates([types.Message(_ID, types.PeerChannel(channel_id), _DATE, f"Post {_NUMBER}", post=True)])
    raise InvalidInput(f"no messages of the kind {kind!r}", hint="lifelike, typical or plain")


class Templates:
    """Messages from templates that differ only in id, date and the number in their text."""

    def __init__(self, messages: list[Any]) -> None:
        self._templates = [_template(pack(message)) for message in messages]

    def raw(self, message_id: int, date: int) -> bytes:
        """Return the message from its template."""
        data, id_at, date_at, number_at = self._templates[message_id % len(self._templates)]
        made = bytearray(data)
        struct.pack_into("<i", made, id_at, message_id)
        struct.pack_into("<i", made, date_at, date)
        made[number_at : number_at + len(_NUMBER)] = b"%010d" % message_id
        return bytes(made)

    def album(self, message_id: int) -> int:
        """Return the id itself: there are no albums."""
        return message_id


def _template(data: bytes) -> tuple[bytes, int, int, int]:
    places = tuple(data.index(mark) for mark in (struct.pack("<i", _ID), struct.pack("<i", _DATE), _NUMBER.encode()))
    return data, places[0], places[1], places[2]


def _typical(seed: int, channel_id: int, variant: int) -> Any:
    chance = Random(f"{seed}:{channel_id}:typical:{variant}")  # noqa: S311 - a likeness, not a secret
    return types.Message(
        _ID,
        types.PeerChannel(channel_id),
        _DATE,
        f"{_NUMBER} {texts.cyrillic(chance, 389)}",
        post=True,
        media=media.photo(seed, channel_id, variant) if variant % 2 else None,
        entities=[types.MessageEntityBold(0, 10), types.MessageEntityItalic(20, 30)],
        views=chance.randrange(100, 90_000),
        forwards=chance.randrange(300),
        replies=types.MessageReplies(chance.randrange(50), 1),
        reactions=_reactions(chance, 2),
    )


class Lifelike:
    """Messages that look like those of real channels; they depend only on seed, channel and id."""

    def __init__(self, seed: int, channel_id: int) -> None:
        self._seed, self._channel_id = seed, channel_id
        self._peer = types.PeerChannel(channel_id)
        # A collector reads the same newest page again and again.
        self.raw: Callable[[int, int], bytes] = lru_cache(maxsize=500)(self._raw)

    def album(self, message_id: int) -> int:
        """Return the first id of the album: in every fourth block of sixteen ids, the first two to five messages are an
        album.
        """
        block, place = divmod(message_id, 16)
        size = number(self._seed, self._channel_id, "album", block) % 16
        return message_id - place if size < 4 and place <= size + 1 and block else message_id

    def _raw(self, message_id: int, date: int) -> bytes:
        chance = Random(f"{self._seed}:{self._channel_id}:{message_id}")  # noqa: S311 - a likeness, not a secret
        if message_id == 1:
            return pack(self._service(message_id, date, types.MessageActionChannelCreate(texts.sentence(chance, 0))))
        first = self.album(message_id)
        if first != message_id or self.album(message_id + 1) == message_id:
            return pack(self._member(chance, message_id, date, first))
        if chance.random() < 0.01:
            return pack(self._service(message_id, date, types.MessageActionPinMessage()))
        return pack(self._post(chance, message_id, date))

    def _service(self, message_id: int, date: int, action: Any) -> Any:
        return types.MessageService(message_id, self._peer, date, post=True, action=action)

    def _member(self, chance: Random, message_id: int, date: int, first: int) -> Any:
        return types.Message(
            message_id,
            self._peer,
            date,
            texts.post(chance) if first == message_id else "",
            post=True,
            media=media.photo(self._seed, self._channel_id, message_id),
            grouped_id=number(self._seed, self._channel_id, "group", first),
            **_counts(chance),
        )

    def _post(self, chance: Random, message_id: int, date: int) -> Any:
        text = texts.post(chance)
        link = f"https://example.org/{message_id}"
        return types.Message(
            message_id,
            self._peer,
            date,
            text,
            post=True,
            silent=chance.random() < 0.05 or None,
            media=self._media(chance, message_id, link),
            entities=_entities(chance, text, link),
            reply_to=_reply(chance, message_id),
            fwd_from=_forward(chance, date),
            edit_date=date + chance.randrange(30, 3_000) if chance.random() < 0.08 else None,
            post_author="A. Helm" if chance.random() < 0.05 else None,
            **_counts(chance),
        )

    def _media(self, chance: Random, message_id: int, link: str) -> Any:
        draw, parts = chance.random(), (self._seed, self._channel_id, message_id)
        if draw < 0.3:
            return media.photo(*parts)
        if draw < 0.4:
            return media.video(*parts, seconds=float(chance.randrange(3, 90)))
        if draw < 0.45:
            return media.document(*parts, name=f"timetable-{message_id}.pdf")
        if draw < 0.55:
            return media.webpage(link, texts.sentence(chance, 0))
        if draw < 0.57:
            return media.poll("Which pier?", ["North", "East", "South"], [chance.randrange(900) for _ in range(3)])
        return None


def _counts(chance: Random) -> dict[str, Any]:
    views = int(100 + chance.random() ** 3 * 90_000)
    return {
        "views": views,
        "forwards": views // chance.randrange(50, 900),
        "replies": types.MessageReplies(chance.randrange(200), 1) if chance.random() < 0.3 else None,
        "reactions": _reactions(chance, chance.randrange(1, 4)) if chance.random() < 0.6 else None,
    }


def _reactions(chance: Random, kinds: int) -> Any:
    drawn = chance.sample(("👍", "❤", "🔥", "😢", "🤔", "🎉"), kinds)
    return types.MessageReactions(
        [types.ReactionCount(types.ReactionEmoji(e), chance.randrange(1, 900)) for e in drawn]
    )


def _entities(chance: Random, text: str, link: str) -> list[Any] | None:
    # Offsets count UTF-16 units, as the protocol has it.
    length = len(text.partition(" ")[0].encode("utf-16-le")) // 2
    draw = chance.random()
    if draw < 0.25:
        return [types.MessageEntityBold(0, length)]
    if draw < 0.4:
        return [types.MessageEntityTextUrl(0, length, link)]
    return None


def _reply(chance: Random, message_id: int) -> Any:
    if message_id > 20 and chance.random() < 0.06:
        return types.MessageReplyHeader(reply_to_msg_id=message_id - chance.randrange(1, 20))
    return None


def _forward(chance: Random, date: int) -> Any:
    if chance.random() < 0.07:
        origin = types.PeerChannel(1_400_000_000 + chance.randrange(1_000))
        return types.MessageFwdHeader(
            date - chance.randrange(60, 9_000), from_id=origin, channel_post=chance.randrange(1, 9_000)
        )
    return None
