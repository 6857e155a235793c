"""Parses sitemaps and sitemap indexes: XML or plain text, with or without gzip. Pure."""

import zlib
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from xml.etree.ElementTree import Element

from msgspec import Struct, field

from .charsets import decode_text
from .xml_trees import NotXml, element_text, read_tree

# The limits of the sitemap protocol for one file, decompressed. Further URLs of a file are read in further visits.
MOST_ADDRESSES, MOST_BYTES = 50_000, 50 * 1024 * 1024
_ENTRIES = frozenset({"url", "sitemap"})
# A day without a time zone ends this long after its midnight in UTC, wherever it was written.
_LONGEST_DAY = timedelta(hours=36)


class Sitemap(Struct, frozen=True):
    """The URLs of a sitemap, as written."""

    pages: tuple[str, ...] = ()
    sitemaps: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    """Problems of a sitemap that could be read."""
    rest: int = 0
    """How many of its URLs to skip to read the remaining ones; 0 if none remain."""
    lastmods: Mapping[str, str] = field(default_factory=dict)
    """When pages were changed last, as written; by their URLs."""


def is_gzip(content: bytes) -> bool:
    """Return whether the content is a gzip file."""
    return content.startswith(b"\x1f\x8b")


def _decompress(content: bytes) -> bytes:
    stream = zlib.decompressobj(wbits=31)
    try:
        found = stream.decompress(content, MOST_BYTES)
    except zlib.error as error:
        raise NotXml(f"cannot be decompressed: {error}") from error
    if stream.unconsumed_tail or not stream.eof:
        raise NotXml(f"is larger than {MOST_BYTES:,} bytes" if stream.unconsumed_tail else "is truncated")
    return found


def parse_sitemap(content: bytes, charset: str | None = None, *, skip: int = 0) -> Sitemap:
    """Return the URLs of a sitemap after the first `skip`, up to a limit; raise `NotXml` if it is no sitemap.

    `charset` is that of its HTTP header.
    """
    text = decode_text(_decompress(content) if is_gzip(content) else content, charset)
    if text.lstrip()[:8].lower().startswith(("http://", "https://")):
        lines = [line for line in text.split() if line.startswith("http")]
        return Sitemap(
            pages=tuple(lines[skip : skip + MOST_ADDRESSES]),
            faults=_describe_faults(len(lines), None),
            rest=_find_rest(skip, len(lines)),
        )
    tree = read_tree(text, _ENTRIES, _read_entry, skip=skip, most=MOST_ADDRESSES)
    entries = [(url, lastmod) for url, lastmod in tree.entries if url]
    urls = tuple(url for url, _ in entries)
    if tree.root.tag not in {"sitemapindex", "urlset"}:
        raise NotXml(f"is not a sitemap: it starts with <{tree.root.tag[:40]}>")
    if tree.fault is not None and not urls and not skip:
        raise NotXml(f"not well-formed: {tree.fault}")
    faults, rest = _describe_faults(tree.total, tree.fault), _find_rest(skip, tree.total)
    if tree.root.tag == "sitemapindex":
        return Sitemap(sitemaps=urls, faults=faults, rest=rest)
    lastmods = {url: lastmod for url, lastmod in entries if lastmod}
    return Sitemap(pages=urls, faults=faults, lastmods=lastmods, rest=rest)


def read_exact_time(lastmod: str) -> datetime | None:
    """Return when a page was changed; None if only the day is known."""
    try:
        found = datetime.fromisoformat(lastmod)
        return None if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def read_latest_time(lastmod: str) -> datetime | None:
    """Return the latest moment at which a page can have been changed; None if it is unknown."""
    try:
        exact = read_exact_time(lastmod)
        return exact or datetime.fromisoformat(lastmod).replace(tzinfo=UTC) + _LONGEST_DAY
    except (ValueError, OverflowError):
        return None


def _read_entry(element: Element, _: str | None) -> tuple[str, str]:
    texts = {child.tag: element_text(child) for child in reversed(element) if child.tag in {"loc", "lastmod"}}
    return texts.get("loc", ""), texts.get("lastmod", "")


def _describe_faults(total: int, fault: str | None) -> tuple[str, ...]:
    found = [] if fault is None else [f"this sitemap is not well-formed ({fault}) and is read as far as possible"]
    if total > MOST_ADDRESSES:
        found.append(f"this sitemap lists {total:,} URLs, which are read in parts of {MOST_ADDRESSES:,}")
    return tuple(found)


def _find_rest(skip: int, total: int) -> int:
    return skip + MOST_ADDRESSES if total > skip + MOST_ADDRESSES else 0
