"""Parses RSS and Atom feeds, and JSON Feed with `json_feeds`. Pure."""

import hashlib
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from xml.etree.ElementTree import Element

from msgspec import Struct

from .charsets import decode_text
from .extract import MOST_TEXT, extract_text, parse_time
from .urls import join_address
from .xml_trees import NotXml, element_text, read_tree

# Entries read at once. A larger feed is read in several slices.
MOST_ENTRIES = 10_000
MOST_ENCLOSURES = 50
_ENTRIES = frozenset({"item", "entry"})
# `channel` is CDF, or RSS without its first lines.
_ROOTS = frozenset({"rss", "feed", "rdf:rdf", "rdf", "channel", "rss:rss"})
_SUMMARY = ("description", "summary", "dc:description", "itunes:summary", "media:description", "abstract")
_CONTENT = ("content:encoded", "encoded", "content", "xhtml:body", "body", "fullitem")
_PUBLISHED = ("pubdate", "published", "issued", "dc:date", "dcterms:issued", "dcterms:created", "date", "created")
_UPDATED = ("updated", "modified", "dcterms:modified")
_AUTHORS = frozenset({"author", "dc:creator", "creator", "itunes:author"})


class Enclosure(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file that belongs to an entry, such as a recording or a picture."""

    url: str
    type: str | None = None
    length: int | None = None


class FeedEntry(Struct, frozen=True, kw_only=True):
    """One entry. `id` is that of the feed, or else its link, or else a hash of its text."""

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
    """Whether its text is cut or is nested too deeply to be read."""


class Feed(Struct, frozen=True, kw_only=True):
    """The content of a feed."""

    title: str = ""
    link: str | None = None
    language: str | None = None
    entries: tuple[FeedEntry, ...] = ()
    total: int = 0
    """All entries of the document; `entries` are those of one slice."""
    empty: int = 0
    """Entries of the slice without any content."""
    fault: str | None = None
    """Why the document is not well-formed; None if it is."""
    hub: str | None = None
    """The WebSub hub that the document names, as written."""
    self_link: str | None = None
    """The URL of the feed that the document names, as written."""


def parse_feed(content: bytes, charset: str | None = None, url: str | None = None, *, skip: int = 0) -> Feed:
    """Return the feed in a document from entry `skip` on; raise `NotXml` if it is none.

    `charset` is that of its HTTP header.
    """
    text = decode_text(content, charset)
    if text.lstrip("\ufeff\0 \t\r\n")[:1] == "{":
        from .json_feeds import parse_json_feed  # noqa: PLC0415 - imports this module

        return parse_json_feed(text, skip=skip, most=MOST_ENTRIES)
    tree = read_tree(
        text, _ENTRIES, lambda element, base: _read_entry(element, _base(url, base)), skip=skip, most=MOST_ENTRIES
    )
    root = tree.root
    if root.tag not in _ROOTS:
        raise NotXml(f"is not a feed: it starts with <{root.tag[:40]}>")
    channel = _child(root, "channel")
    if channel is None and root.tag in {"rss", "rss:rss"} and not tree.total:
        raise NotXml("is a feed without a channel")
    # In RSS 1.0 entries are siblings of the channel.
    head = root if channel is None else channel
    parts = _parts(head)
    entries = tuple(entry for entry in tree.entries if entry is not None)
    return Feed(
        title=_line(_first(parts, "title", "dc:title")),
        link=_find_link(head, _base(url, head.get("xml:base"))),
        language=_first_text(parts, "language", "dc:language") or head.get("xml:lang") or root.get("xml:lang"),
        entries=entries,
        total=tree.total,
        empty=len(tree.entries) - len(entries),
        fault=tree.fault,
        hub=_find_related(head, "hub"),
        self_link=_find_related(head, "self"),
    )


def entry_id(known: str | None, title: str, summary: str, content: str, markup: str = "") -> str | None:
    """Return the id of an entry: `known`, or a hash of its text; None if it has no content.

    `markup` is hashed if there is no text, for example the tag of a picture.
    """
    if known:
        return known[:1000]
    text = f"{title}\n{summary}" if title or summary else content or markup.strip()
    return hashlib.blake2b(text.encode(errors="replace"), digest_size=16).hexdigest() if text else None


def bounded_text(raw: str) -> tuple[str, bool]:
    """Return the text of HTML in a feed, and whether some of it was cut."""
    text = extract_text(raw)
    return text, len(text) >= MOST_TEXT or (not text and len(raw) > MOST_TEXT)


def _base(url: str | None, base: str | None) -> str | None:
    """Return the base URL of an element's links; None if it is that of the feed."""
    return None if base is None else join_address(url, base)


def _read_entry(element: Element, base: str | None) -> FeedEntry | None:
    parts = _parts(element)
    written = _find_link(element, None)
    link = written if base is None else _find_link(element, base)
    title = _line(_first(parts, "title", "dc:title"))
    raw = [_first_text(parts, *names) or "" for names in (_SUMMARY, _CONTENT)]
    (summary, is_cut), (content, is_content_cut) = map(bounded_text, raw)
    enclosures = _read_enclosures(element, base)
    known = _first_text(parts, "guid", "id") or element.get("rdf:about") or element.get("about") or written
    markup = "".join([_first_text(parts, "title", "media:title") or "", *raw])
    name = entry_id(known or (enclosures[0].url if enclosures else None), title, summary, content, markup)
    if name is None:
        return None
    return FeedEntry(
        id=name,
        link=link,
        title=title,
        summary=summary,
        content=content,
        author=_find_author(element),
        published=_parse_date(_first_text(parts, *_PUBLISHED)),
        updated=_parse_date(_first_text(parts, *_UPDATED)),
        tags=tuple(dict.fromkeys(filter(None, map(_tag, _children(element, "category", "dc:subject")))))[:50],
        enclosures=enclosures,
        is_cut=is_cut or is_content_cut,
    )


def _find_link(element: Element, base: str | None) -> str | None:
    fallback = None
    for child in _children(element, "link"):
        address = child.get("href") or element_text(child)
        if not address:
            continue
        where = join_address(_base(base, child.get("xml:base")) or base, address)
        if child.get("rel", "alternate") == "alternate":
            return where
        fallback = fallback or (where if child.get("rel") not in {"self", "enclosure"} else None)
    guid = _child(element, "guid")
    if fallback is None and guid is not None and guid.get("ispermalink", "true") == "true":
        text = element_text(guid)
        return text if text.startswith(("http://", "https://")) else None
    # In CDF the link is an attribute of the entry.
    return fallback or element.get("href")


def _find_related(head: Element, rel: str) -> str | None:
    links = (link.get("href") for link in _children(head, "link") if rel in link.get("rel", "").lower().split())
    return next(filter(None, links), None)


def _read_enclosures(element: Element, base: str | None) -> tuple[Enclosure, ...]:
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


def _find_author(element: Element) -> str | None:
    for child in _children(element, *_AUTHORS):
        name = _child(child, "name")
        if text := element_text(child if name is None else name):
            return " ".join(text.split())[:500]
    return None


def _parts(element: Element) -> dict[str, Element]:
    """Return the first child of each name."""
    return {child.tag: child for child in reversed(element)}


def _tag(element: Element) -> str:
    return (element.get("term") or element_text(element))[:200]


def _line(element: Element | None) -> str:
    return extract_text(element_text(element)).replace("\n", " ")[:500]


def _first_text(parts: dict[str, Element], *names: str) -> str | None:
    return next((text for name in names if (text := element_text(parts.get(name)))), None)


def _first(parts: dict[str, Element], *names: str) -> Element | None:
    return next((parts[name] for name in names if name in parts), None)


def _child(element: Element, name: str) -> Element | None:
    return next((child for child in element if child.tag == name), None)


def _children(element: Element, *names: str) -> list[Element]:
    return [child for child in element if child.tag in names]


def _parse_date(text: str | None) -> datetime | None:
    if text is None:
        return None
    if (found := parse_time(text)) is not None:
        return found
    try:
        read = parsedate_to_datetime(text)
        return (read.replace(tzinfo=UTC) if read.tzinfo is None else read).astimezone(UTC)
    except (ValueError, TypeError, OverflowError):
        return None
