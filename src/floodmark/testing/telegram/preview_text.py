"""Write the text of a message as HTML, as the web preview does."""

from collections.abc import Sequence
from html import escape
from typing import Any
from urllib.parse import quote

from telethon.tl import types

_TAGS = {
    types.MessageEntityBold: "b",
    types.MessageEntityItalic: "i",
    types.MessageEntityUnderline: "u",
    types.MessageEntityStrike: "s",
    types.MessageEntityCode: "code",
    types.MessageEntityPre: "pre",
    types.MessageEntitySpoiler: "tg-spoiler",
    types.MessageEntityBlockquote: "blockquote",
}


def html_of(text: str, entities: Sequence[Any]) -> str:
    """Return the HTML of a text. Entities may be nested, but not overlap otherwise."""
    # Two bytes for each unit that offsets count.
    units = text.encode("utf-16-le")
    opens: dict[int, list[str]] = {}
    closes: dict[int, list[str]] = {}
    for entity in sorted(entities, key=lambda entity: (entity.offset, -entity.length)):
        content = units[2 * entity.offset : 2 * (entity.offset + entity.length)].decode("utf-16-le")
        begin, end = _marks(entity, content)
        opens.setdefault(entity.offset, []).append(begin)
        closes.setdefault(entity.offset + entity.length, []).insert(0, end)
    edges = sorted({0, len(units) // 2, *opens, *closes})
    made = []
    for edge, following in zip(edges, [*edges[1:], edges[-1]], strict=True):
        made += closes.get(edge, [])
        made += opens.get(edge, [])
        made.append(_plain(units[2 * edge : 2 * following].decode("utf-16-le")))
    return "".join(made)


def _plain(text: str) -> str:
    written = escape(text, quote=False).replace("\n", "<br/>")
    # One emoji is enough: they are pictures with the character inside.
    return written.replace("🔥", '<i class="emoji" style="background-image:url()"><b>🔥</b></i>')


def _marks(entity: Any, content: str) -> tuple[str, str]:
    kind = type(entity)
    if kind in _TAGS:
        return f"<{_TAGS[kind]}>", f"</{_TAGS[kind]}>"
    if kind is types.MessageEntityCustomEmoji:
        return f'<tg-emoji emoji-id="{entity.document_id}">', "</tg-emoji>"
    address = _address(entity, content)
    return ("", "") if address is None else (f'<a href="{escape(address)}" target="_blank" rel="noopener">', "</a>")


def _address(entity: Any, content: str) -> str | None:
    if isinstance(entity, types.MessageEntityTextUrl):
        return str(entity.url)
    if isinstance(entity, types.MessageEntityUrl):
        return content if "://" in content else f"http://{content}"
    if isinstance(entity, types.MessageEntityMention):
        return f"https://t.me/{content[1:]}"
    return f"?q={quote(content)}" if isinstance(entity, types.MessageEntityHashtag) else None
