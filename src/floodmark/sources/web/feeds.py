"""Feeds: RSS, Atom and JSON Feed, as they are found. Pure."""

import hashlib
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from xml.etree.ElementTree import Element

from msgspec import Struct

from .charsets import decoded
from .extract import MOST_TEXT, moment_of, text_in
from .trees import NotXml, read_tree, text_of
from .urls import join_address

# Entries that are read at once. A feed with more is read in several slices.
MOST_ENTRIES = 10_000
MOST_ENCLOSURES = 50
_ENTRIES = frozenset({"item", "entry"})
# `channel` alone is CDF, and what is left of RSS when its first lines are cut.
_ROOTS = frozenset({"rss", "feed", "rdf:rdf", "rdf", "channel", "rss:rss"})
_SUMMARY = ("description", "summary", "dc:description", "itunes:summary", "media:description", "abstract")
_CONTENT = ("content:encoded", "encoded", "content", "xhtml:body", "body", "fullitem")
_PUBLISHED = ("pubdate", "published", "issued", "dc:date", "dcterms:issued", "dcterms:created", "date", "created")
_UPDATED = ("updated", "modified", "dcterms:modified")
_AUTHORS = frozenset({"author", "dc:creator", "creator", "itunes:author"})


class Enclosure(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file that belongs to an entry: a recording, a picture."""

    url: str
    type: str | None = None
    length: int | None = None


class FeedEntry(Struct, frozen=True, kw_only=True):
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
    enclosures: tuple[Enclosure, ...] = ()
    is_cut: bool = False
    """Whether its text is longer than what is kept of it, or nested too deeply to be read."""


class Feed(Struct, frozen=True, kw_only=True):
    """What a feed says."""

    title: str = ""
    link: str | None = None
    language: str | None = None
    entries: tuple[FeedEntry, ...] = ()
    total: int = 0
    """How many entries the document has; `entries` are those of one slice of it."""
    empty: int = 0
    """How many of the slice hold nothing at all."""
    fault: str | None = None
    """Why it is not well-formed, if it is not."""


def parse_feed(
    content: bytes, charset: str | None = None, url: str | None = None, *, skip: int = 0, most: int = MOST_ENTRIES
) -> Feed:
    """The feed in this document, or `NotXml`. `charset` is what its header says, `url` where it is from."""
    text = decoded(content, charset)
    if text.lstrip("\ufeff\0 \t\r\n")[:1] == "{":
        from .jsonfeeds import parse_json_feed  # noqa: PLC0415 - it makes the values of this module

        return parse_json_feed(text, skip=skip, most=most)
    tree = read_tree(text, _ENTRIES, lambda element, base: _entry(element, _base(url, base)), skip=skip, most=most)
    root = tree.root
    if root.tag not in _ROOTS:
        raise NotXml(f"is no feed: it begins with <{root.tag[:40]}>")
    channel = _child(root, "channel")
    if channel is None and root.tag in {"rss", "rss:rss"} and not tree.total:
        raise NotXml("is a feed without a channel")
    # RSS 1.0 has its entries beside the channel.
    head = root if channel is None else channel
    parts = _parts(head)
    entries = tuple(entry for entry in tree.entries if entry is not None)
    return Feed(
        title=_line(_first(parts, "title", "dc:title")),
        link=_link(head, _base(url, head.get("xml:base"))),
        language=_said(parts, "language", "dc:language") or head.get("xml:lang") or root.get("xml:lang"),
        entries=entries,
        total=tree.total,
        empty=len(tree.entries) - len(entries),
        fault=tree.fault,
    )


def id_of(known: str | None, title: str, summary: str, content: str) -> str | None:
    """What an entry is called that has no name of its own; None if it holds nothing."""
    if known:
        return known[:1000]
    said = f"{title}\n{summary}" if title or summary else content
    return hashlib.blake2b(said.encode(errors="replace"), digest_size=16).hexdigest() if said else None


def words_of(raw: str) -> tuple[str, bool]:
    """The text of HTML in a feed, and whether some of it had to be left out."""
    text = text_in(raw)
    return text, len(text) >= MOST_TEXT or (not text and len(raw) > MOST_TEXT)


def _base(url: str | None, base: str | None) -> str | None:
    """What links of an element are relative to, if that is not the address of the feed."""
    return None if base is None else join_address(url, base)


def _entry(element: Element, base: str | None) -> FeedEntry | None:
    parts = _parts(element)
    written = _link(element, None)
    link = written if base is None else _link(element, base)
    title = _line(_first(parts, "title", "dc:title"))
    (summary, is_cut), (content, is_content_cut) = _text(parts, _SUMMARY), _text(parts, _CONTENT)
    enclosures = _enclosures(element, base)
    known = _said(parts, "guid", "id") or element.get("rdf:about") or element.get("about") or written
    name = id_of(known or (enclosures[0].url if enclosures else None), title, summary, content)
    if name is None:
        return None
    return FeedEntry(
        id=name,
        link=link,
        title=title,
        summary=summary,
        content=content,
        author=_author(element),
        published=_moment(_said(parts, *_PUBLISHED)),
        updated=_moment(_said(parts, *_UPDATED)),
        tags=tuple(dict.fromkeys(filter(None, map(_tag, _children(element, "category", "dc:subject")))))[:50],
        enclosures=enclosures,
        is_cut=is_cut or is_content_cut,
    )


def _link(element: Element, base: str | None) -> str | None:
    fallback = None
    for child in _children(element, "link"):
        address = child.get("href") or text_of(child)
        if not address:
            continue
        where = join_address(_base(base, child.get("xml:base")) or base, address)
        if child.get("rel", "alternate") == "alternate":
            return where
        fallback = fallback or (where if child.get("rel") not in {"self", "enclosure"} else None)
    guid = _child(element, "guid")
    if fallback is None and guid is not None and guid.get("ispermalink", "true") == "true":
        said = text_of(guid)
        return said if said.startswith(("http://", "https://")) else None
    # CDF has its link on the entry itself.
    return fallback or element.get("href")


def _enclosures(element: Element, base: str | None) -> tuple[Enclosure, ...]:
    found: dict[str, Enclosure] = {}
    inside = [child for group in _children(element, "media:group") for child in group]
    for child in [*element, *inside]:
        if child.tag == "enclosure" or (child.tag == "media:content" and child.get("url")):
            address = child.get("url") or child.get("href")
        elif child.tag == "link" and child.get("rel") == "enclosure":
            address = child.get("href")
        else:
            continue
        if address and address.strip() and len(found) < MOST_ENCLOSURES:
            where = join_address(base, address.strip())[:2000]
            length = child.get("length") or child.get("filesize") or ""
            size = int(length) if length.isascii() and length.isdigit() and len(length) < 16 else None
            found.setdefault(where, Enclosure(url=where, type=(child.get("type") or "")[:200] or None, length=size))
    return tuple(found.values())


def _author(element: Element) -> str | None:
    for child in element:
        if child.tag in _AUTHORS:
            name = _child(child, "name")
            said = text_of(child if name is None else name)
            if said:
                return " ".join(said.split())[:500]
    return None


def _parts(element: Element) -> dict[str, Element]:
    """The first child of each name."""
    return {child.tag: child for child in reversed(element)}


def _text(parts: dict[str, Element], names: tuple[str, ...]) -> tuple[str, bool]:
    """The text of the first part that holds any: HTML, escaped or not."""
    for name in names:
        said = text_of(parts.get(name))
        if said:
            return words_of(said)
    return "", False


def _tag(element: Element) -> str:
    return (element.get("term") or text_of(element))[:200]


def _line(element: Element | None) -> str:
    return text_in(text_of(element)).replace("\n", " ")[:500]


def _said(parts: dict[str, Element], *names: str) -> str | None:
    for name in names:
        said = text_of(parts.get(name))
        if said:
            return said
    return None


def _first(parts: dict[str, Element], *names: str) -> Element | None:
    return next((parts[name] for name in names if name in parts), None)


def _child(element: Element, name: str) -> Element | None:
    return next((child for child in element if child.tag == name), None)


def _children(element: Element, *names: str) -> list[Element]:
    return [child for child in element if child.tag in names]


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
