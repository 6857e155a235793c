"""Feeds: RSS and Atom, as they are found. Pure."""

import hashlib
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from xml.etree.ElementTree import Element

from msgspec import Struct

from .extract import moment_of, text_in
from .trees import NotXml, parse, text_of

MOST_ENTRIES = 1000
_ROOTS = ("rss", "feed", "rdf")


class Entry(Struct, frozen=True, kw_only=True):
    """One entry. `id` is what the feed calls it, else its link, else made from what it says."""

    id: str
    link: str | None = None
    title: str = ""
    summary: str = ""
    content: str = ""
    author: str | None = None
    published: datetime | None = None
    updated: datetime | None = None
    tags: tuple[str, ...] = ()


class Feed(Struct, frozen=True, kw_only=True):
    """What a feed says."""

    title: str = ""
    link: str | None = None
    language: str | None = None
    entries: tuple[Entry, ...] = ()


def parse_feed(content: bytes) -> Feed:
    """The feed in this document, or `NotXml`."""
    root = parse(content)
    kind = root.tag.lower()
    if kind not in _ROOTS:
        raise NotXml(f"is no feed: it begins with <{root.tag[:40]}>")
    head = root if kind == "feed" else _child(root, "channel")
    if head is None:
        raise NotXml("is a feed without a channel")
    # RSS 1.0 has its items beside the channel.
    holder = root if kind == "rdf" else head
    entries = [child for child in holder if child.tag in {"item", "entry"}][:MOST_ENTRIES]
    return Feed(
        title=_line(_child(head, "title")),
        link=_link(head),
        language=_said(head, "language") or head.get("lang"),
        entries=tuple(_entry(child) for child in entries),
    )


def _entry(element: Element) -> Entry:
    link = _link(element)
    title = _line(_child(element, "title"))
    summary, content = _text(element, "description", "summary"), _text(element, "encoded", "content")
    known = _said(element, "guid", "id") or element.get("about") or link
    return Entry(
        id=(known or hashlib.blake2b(f"{title}\n{summary}".encode(errors="replace"), digest_size=16).hexdigest())[
            :1000
        ],
        link=link,
        title=title,
        summary=summary,
        content=content,
        author=_author(element),
        published=_moment(_said(element, "pubDate", "published", "issued", "date")),
        updated=_moment(_said(element, "updated", "modified")),
        tags=tuple(dict.fromkeys(filter(None, map(_tag, _children(element, "category")))))[:50],
    )


def _link(element: Element) -> str | None:
    fallback = None
    for child in _children(element, "link"):
        address = child.get("href") or text_of(child)
        if not address:
            continue
        if child.get("rel", "alternate") == "alternate":
            return address
        fallback = fallback or (address if child.get("rel") != "self" else None)
    guid = _child(element, "guid")
    if fallback is None and guid is not None and guid.get("isPermaLink", "true") == "true":
        said = text_of(guid)
        return said if said.startswith(("http://", "https://")) else None
    return fallback


def _author(element: Element) -> str | None:
    for child in element:
        if child.tag in {"author", "creator"}:
            name = _child(child, "name")
            said = text_of(child if name is None else name)
            if said:
                return " ".join(said.split())[:500]
    return None


def _text(element: Element, *names: str) -> str:
    """The text of a part that holds HTML, escaped or not."""
    found = next((child for name in names if (child := _child(element, name)) is not None), None)
    if found is None:
        return ""
    return text_in(text_of(found))


def _tag(element: Element) -> str:
    return (element.get("term") or text_of(element))[:200]


def _line(element: Element | None) -> str:
    return text_in(text_of(element)).replace("\n", " ")[:500]


def _said(element: Element, *names: str) -> str | None:
    for name in names:
        said = text_of(_child(element, name))
        if said:
            return said
    return None


def _child(element: Element, name: str) -> Element | None:
    return next((child for child in element if child.tag == name), None)


def _children(element: Element, name: str) -> list[Element]:
    return [child for child in element if child.tag == name]


def _moment(text: str | None) -> datetime | None:
    if text is None:
        return None
    found = moment_of(text)
    if found is not None:
        return found
    try:
        read = parsedate_to_datetime(text)
        return (read.replace(tzinfo=UTC) if read.tzinfo is None else read).astimezone(UTC)
    except (ValueError, TypeError, OverflowError):
        return None
