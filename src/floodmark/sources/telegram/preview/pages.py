"""Page of the web preview of a channel: its posts, its number, and whether older posts exist. Pure.

Only classes and attributes decide, never words: a post can quote the words of the page.
"""

import base64
import binascii
import re
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Struct
from selectolax.lexbor import LexborHTMLParser, LexborNode

from floodmark.sources.web.nesting import check_nesting

from .media import media_of, members_of
from .texts import plain_text, read_text

_POST = re.compile(r"(?P<name>[A-Za-z0-9_]+)/(?P<id>\d{1,10})", re.ASCII)
_LINK = re.compile(r"(?:https?://)?(?:t|telegram)\.me/(?P<name>[A-Za-z0-9_]+)(?:/(?P<id>\d{1,10}))?", re.IGNORECASE)
_COUNT = re.compile(r"(\d+(?:\.\d+)?)\s*([KMB]?)", re.ASCII)
_FACTORS = {"": 1, "K": 1_000, "M": 1_000_000, "B": 1_000_000_000}
# Other tools and pages add this to the number of a channel.
_MARKED = 10**12


class ShownPost(Struct, frozen=True, kw_only=True):
    """A post as the preview shows it: one message, or all messages of an album."""

    ids: tuple[int, ...]
    """Ascending; more than one for an album."""
    date: datetime | None
    text: str = ""
    entities: list[dict[str, Any]] = []
    media: dict[int, dict[str, Any] | None] = {}
    """The media of each message."""
    is_service: bool = False
    details: dict[str, Any] = {}
    """Fields of the data of posts: views, author, origin and others."""


class PreviewPage(Struct, frozen=True, kw_only=True):
    """A page of the preview. Posts are in ascending order of ids."""

    posts: tuple[ShownPost, ...]
    channel_id: int | None = None
    """None if no post names it, as on a page without posts."""
    name: str | None = None
    title: str | None = None
    has_older: bool = False

    @property
    def lowest(self) -> int:
        """Return the lowest id on the page; 0 without posts."""
        return min((post.ids[0] for post in self.posts), default=0)

    @property
    def highest(self) -> int:
        """Return the highest id on the page; 0 without posts."""
        return max((post.ids[-1] for post in self.posts), default=0)


def parse_page(html: str) -> PreviewPage | None:
    """Return the posts of a page; None if it is not the preview of a channel."""
    check_nesting(html)
    tree = LexborHTMLParser(html)
    nodes = tree.css("div.tgme_widget_message[data-post]")
    if not nodes and tree.css_first("section.tgme_channel_history, .tgme_channel_info") is None:
        return None
    posts = [post for node in nodes if (post := _read_post(node)) is not None]
    posts.sort(key=lambda post: post.ids)
    numbers = (number for node in nodes if (number := _channel_number(node)) is not None)
    return PreviewPage(
        posts=tuple(posts),
        channel_id=next(numbers, None),
        name=next((found["name"] for node in nodes if (found := _identify(node)) is not None), None),
        title=plain_text(tree.css_first(".tgme_channel_info_header_title")) or None,
        # The link to the page itself (canonical) may look alike.
        has_older=tree.css_first("link[rel=prev], a.tme_messages_more[data-before]") is not None,
    )


def describe_landing(html: str) -> str:
    """Return what a name is whose preview redirects: `missing`, `group`, `channel` or `other`."""
    tree = LexborHTMLParser(html)
    extra = plain_text(tree.css_first(".tgme_page_extra")).lower()
    if "subscriber" in extra:
        return "channel"
    if "member" in extra:
        return "group"
    title = plain_text(tree.css_first("title"))
    return "missing" if title.startswith("Telegram: Contact") and not extra else "other"


def _identify(node: LexborNode) -> re.Match[str] | None:
    return _POST.fullmatch(node.attributes.get("data-post") or "")


def _channel_number(node: LexborNode) -> int | None:
    """Return the number of the channel, which is in the token that counts views."""
    token = node.attributes.get("data-view") or ""
    try:
        found = msgspec.json.decode(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        number = abs(int(found["c"]))
    except (binascii.Error, ValueError, msgspec.DecodeError, KeyError, TypeError):
        return None
    return (number - _MARKED if number > _MARKED else number) or None


def _read_post(node: LexborNode) -> ShownPost | None:
    named = _identify(node)
    if named is None:
        return None
    # Texts and pictures of quoted posts and of link previews have the same classes as those of the post.
    details = _read_details(node, named["name"])
    for quoted in node.css("a.tgme_widget_message_reply"):
        quoted.decompose()
    number, members = int(named["id"]), members_of(node)
    is_service = "service_message" in (node.attributes.get("class") or "").split()
    words = node.css_first(".tgme_widget_message_text")
    text, entities = ("", []) if words is None else read_text(words)
    if is_service:
        details["action"] = {"type": "shown", "text": text}
        text, entities = "", []
    media = members or {number: media_of(node)}
    if not members and media[number] is None and not text and node.css_first(".media_not_supported_cont") is not None:
        media[number] = {"type": "unsupported"}
    return ShownPost(
        ids=tuple(sorted({number, *members})),
        date=_read_date(node),
        text=text,
        entities=entities,
        media=media,
        is_service=is_service,
        details=details,
    )


def _read_date(node: LexborNode) -> datetime | None:
    clock = node.css_first(".tgme_widget_message_date time[datetime]") or node.css_first("time[datetime]")
    try:
        found = datetime.fromisoformat((clock.attributes.get("datetime") or "") if clock is not None else "")
    except ValueError:
        return None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


def _read_details(node: LexborNode, channel: str) -> dict[str, Any]:
    made: dict[str, Any] = {}
    views, is_rounded = _read_count(node.css_first(".tgme_widget_message_views"))
    if views is not None:
        made |= {"views": views, **({"views_approximate": True} if is_rounded else {})}
    if reactions := [_read_reaction(each) for each in node.css(".tgme_reaction")]:
        made["reactions"] = reactions
    if (reply := node.css_first("a.tgme_widget_message_reply")) is not None:
        made |= _given("reply_to", _read_reply(reply, channel))
    if (origin := node.css_first(".tgme_widget_message_forwarded_from_name")) is not None:
        author = plain_text(node.css_first(".tgme_widget_message_forwarded_from_author"))
        made["forwarded_from"] = _read_origin(origin) | _given("author", author)
    made |= _given("author", plain_text(node.css_first(".tgme_widget_message_from_author")))
    if (bot := node.css_first(".tgme_widget_message_via_bot")) is not None:
        made |= _given("via_bot_name", plain_text(bot).removeprefix("@"))
    meta = node.css_first(".tgme_widget_message_meta")
    if meta is not None and "edited" in _own_words(meta):
        made["edited"] = True
    return made


def _own_words(node: LexborNode) -> list[str]:
    """Return the words directly in a node: not those of an author, who may have any name."""
    texts = (child.text(deep=True) for child in node.iter(include_text=True) if child.tag == "-text")
    return " ".join(texts).split()


def _read_count(node: LexborNode | None) -> tuple[int | None, bool]:
    """Return a number such as `4.4K`, and whether it is rounded."""
    found = _COUNT.search(plain_text(node))
    if found is None:
        return None, False
    return round(float(found[1]) * _FACTORS[found[2]]), bool(found[2])


def _read_reaction(node: LexborNode) -> dict[str, Any]:
    custom = node.css_first("tg-emoji[emoji-id]")
    picture = node.css_first("i.emoji")
    count = re.search(r"(\d[\d.]*\s*[KMB]?)\s*$", plain_text(node))
    number = _COUNT.search(count[1]) if count else None
    total = 0 if number is None else round(float(number[1]) * _FACTORS[number[2]])
    if custom is not None:
        return {"custom_emoji": custom.attributes.get("emoji-id") or "", "count": total}
    if picture is not None:
        return {"emoji": plain_text(picture), "count": total}
    return {"type": "paid", "count": total}


def _read_reply(node: LexborNode, channel: str) -> dict[str, Any]:
    found = _LINK.match(node.attributes.get("href") or "")
    if found is None or found["id"] is None:
        return {}
    is_own = found["name"].lower() == channel.lower()
    return {"id": int(found["id"]), **({} if is_own else {"username": found["name"]})}


def _read_origin(node: LexborNode) -> dict[str, Any]:
    made: dict[str, Any] = {"name": plain_text(node)}
    found = _LINK.match(node.attributes.get("href") or "")
    if found is not None:
        made["username"] = found["name"]
        if found["id"] is not None:
            made["id"] = int(found["id"])
    return made


def _given(name: str, value: Any) -> dict[str, Any]:
    return {name: value} if value else {}
