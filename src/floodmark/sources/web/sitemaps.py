"""Sitemaps: lists of pages, and lists of such lists; XML, plain text, packed or not. Pure."""

import zlib
from xml.etree.ElementTree import Element

from msgspec import Struct

from .charsets import decoded
from .trees import NotXml, read_tree, text_of

# As the protocol has it: so many addresses in one file, so many bytes when unpacked.
MOST_ADDRESSES, MOST_BYTES = 50_000, 50 * 1024 * 1024
_ENTRIES = frozenset({"url", "sitemap"})


class Sitemap(Struct, frozen=True):
    """Addresses as they stand there."""

    pages: tuple[str, ...] = ()
    sitemaps: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    """What is wrong with it, though it could be read."""


def is_packed(content: bytes) -> bool:
    """Whether it is a file packed by gzip."""
    return content.startswith(b"\x1f\x8b")


def unpacked(content: bytes) -> bytes:
    """What is in a file packed by gzip, or `NotXml` if that is broken or more than a sitemap may be."""
    if not is_packed(content):
        return content
    unpacking = zlib.decompressobj(wbits=31)
    try:
        found = unpacking.decompress(content, MOST_BYTES)
    except zlib.error as error:
        raise NotXml(f"cannot be unpacked: {error}") from error
    if unpacking.unconsumed_tail or not unpacking.eof:
        raise NotXml("is cut short" if not unpacking.unconsumed_tail else f"is more than {MOST_BYTES:,} bytes")
    return found


def parse_sitemap(content: bytes, charset: str | None = None) -> Sitemap:
    """What a sitemap lists, or `NotXml`. `charset` is what its header says."""
    content = unpacked(content)
    text = decoded(content, charset)
    if text.lstrip()[:8].lower().startswith(("http://", "https://")):
        lines = [line for line in text.split() if line.startswith("http")]
        return Sitemap(pages=tuple(lines[:MOST_ADDRESSES]), faults=_faults(len(lines), None))
    tree = read_tree(text, _ENTRIES, _location, most=MOST_ADDRESSES)
    places = tuple(filter(None, tree.entries))
    if tree.root.tag not in {"sitemapindex", "urlset"}:
        raise NotXml(f"is no sitemap: it begins with <{tree.root.tag[:40]}>")
    if tree.fault is not None and not places:
        raise NotXml(f"not well-formed: {tree.fault}")
    faults = _faults(tree.total, tree.fault)
    if tree.root.tag == "sitemapindex":
        return Sitemap(sitemaps=places, faults=faults)
    return Sitemap(pages=places, faults=faults)


def _location(element: Element, _: str | None) -> str:
    return next((text_of(child) for child in element if child.tag == "loc"), "")


def _faults(total: int, fault: str | None) -> tuple[str, ...]:
    found = [] if fault is None else [f"this sitemap is not well-formed ({fault}): it is read as far as it goes"]
    if total > MOST_ADDRESSES:
        found.append(f"this sitemap lists {total:,} addresses: only the first {MOST_ADDRESSES:,} are read")
    return tuple(found)
