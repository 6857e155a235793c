"""The text of a Telegram post with its formatting, and its media in words. Pure; everything is escaped."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any
from urllib.parse import quote

from markupsafe import Markup, escape
from msgspec import Struct

from .rendering import format_count, format_size

_LONGEST, _LONGEST_ADDRESS, _MOST_ENTITIES = 20_000, 2000, 500
# The elements of formats, the outermost first. Telegram has the offsets of all of them, in any order.
_ELEMENTS = {
    "blockquote": Markup('<span class="quote">{}</span>'),
    "spoiler": Markup('<span class="spoiler" tabindex="0">{}</span>'),
    "pre": Markup('<code class="block">{}</code>'),
    "code": Markup("<code>{}</code>"),
    "bold": Markup("<b>{}</b>"),
    "italic": Markup("<i>{}</i>"),
    "underline": Markup("<u>{}</u>"),
    "strike": Markup("<s>{}</s>"),
    "hashtag": Markup('<span class="hashtag">{}</span>'),
    "cashtag": Markup('<span class="hashtag">{}</span>'),
}
_ORDER = list(_ELEMENTS)
_ADDRESSES = {"url": "{}", "text_url": "{}", "mention": "https://t.me/{}"}
_NAMES = {"round_video": "Round video", "webpage": "Web page", "geo_live": "Live location", "geo": "Location"}


class Entity(Struct, frozen=True):
    """One format: its type, its begin and end in UTF-16 units, and the address of a link."""

    type: str
    begin: int
    end: int
    url: str | None


class Medium(Struct, frozen=True):
    """Media in words: what it is, its details, a link, and the answers of a poll with their share of votes."""

    name: str
    details: tuple[str, ...] = ()
    url: str | None = None
    title: str | None = None
    text: str | None = None
    answers: tuple[tuple[str, int | None], ...] = ()


def mark_post(text: Any, entities: Any) -> Markup:
    """Return the text of a post, with elements for its formats."""
    shown = text if isinstance(text, str) else ""
    is_cut, shown = len(shown) > _LONGEST, shown[:_LONGEST]
    units = shown.encode("utf-16-le", "surrogatepass")
    found = list(_entities(entities, len(units) // 2))
    edges = sorted({0, len(units) // 2, *(one.begin for one in found), *(one.end for one in found)})
    marked = Markup("")
    for begin, end in pairwise(edges):
        part = units[2 * begin : 2 * end].decode("utf-16-le", "replace")
        marked += _mark(part, [one for one in found if one.begin <= begin and end <= one.end])
    return marked + ("…" if is_cut else "")


def _entities(values: Any, longest: int) -> Iterator[Entity]:
    for value in values[:_MOST_ENTITIES] if isinstance(values, list) else ():
        if not isinstance(value, Mapping):
            continue
        begin, length, url = value.get("offset"), value.get("length"), value.get("url")
        if isinstance(begin, int) and isinstance(length, int) and 0 <= begin < longest and length > 0:
            address = url if isinstance(url, str) else None
            yield Entity(str(value.get("type")), begin, min(begin + length, longest), address)


def _mark(text: str, formats: Sequence[Entity]) -> Markup:
    kinds = {one.type: one for one in formats}
    marked = escape(text)
    for kind, address in _ADDRESSES.items():
        if kind in kinds:
            marked = _link(_address(kinds[kind], address, text), text)
            break
    for kind in reversed(_ORDER):
        if kind in kinds:
            marked = _ELEMENTS[kind].format(marked)
    return marked


def _link(address: str, text: str) -> Markup:
    """Return the whole text as a link, if the address is one of the web."""
    if not address.startswith(("http://", "https://")) or len(address) > _LONGEST_ADDRESS:
        return escape(text)
    return Markup('<a href="{}" rel="noopener noreferrer" target="_blank">{}</a>').format(address, text)


def _address(entity: Entity, pattern: str, text: str) -> str:
    if entity.type == "mention":
        return pattern.format(quote(text.removeprefix("@"), safe=""))
    found = entity.url or text
    return found if "://" in found else f"https://{found}"


def describe_media(media: Any) -> Medium | None:
    """Return the media of a post in words; None if it has none."""
    if not isinstance(media, Mapping):
        return None
    kind = str(media.get("type", "media"))[:60]
    name = _NAMES.get(kind, kind.replace("_", " ").capitalize())
    title = _text(media.get("title")) or _text(media.get("question")) or _text(media.get("filename"))
    return Medium(
        name,
        tuple(_details(media)),
        _text(media.get("url"), 2000),
        title,
        _text(media.get("description"), 600),
        tuple(_answers(media.get("answers"))),
    )


def _details(media: Mapping[str, Any]) -> Iterator[str]:
    width, height, length = media.get("width"), media.get("height"), media.get("duration")
    if isinstance(width, int) and isinstance(height, int):
        yield f"{width} × {height}"
    if isinstance(length, int | float):
        yield f"{int(length) // 60}:{int(length) % 60:02}"
    if isinstance(media.get("size"), int):
        yield format_size(media["size"])
    if isinstance(media.get("lat"), float) and isinstance(media.get("long"), float):
        yield f"{media['lat']:.5f}, {media['long']:.5f}"
    if isinstance(media.get("total_voters"), int):
        yield f"{format_count(media['total_voters'])} votes"
    for field in ("mime", "performer", "site_name", "emoji", "first_name", "last_name", "phone"):
        if text := _text(media.get(field)):
            yield text
    if media.get("spoiler"):
        yield "hidden until touched"


def _answers(answers: Any) -> Iterator[tuple[str, int | None]]:
    for answer in answers[:20] if isinstance(answers, list) else ():
        if isinstance(answer, Mapping):
            voters = answer.get("voters")
            yield _text(answer.get("text")) or "", voters if isinstance(voters, int) else None


def _text(value: Any, most: int = 200) -> str | None:
    return value[:most] if isinstance(value, str) and value else None
