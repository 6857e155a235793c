"""Sitemaps: lists of pages, and lists of such lists; XML, plain text, packed or not. Pure."""

import zlib

from msgspec import Struct

from .trees import NotXml, parse, text_of

# As the protocol has it: so many addresses in one file, so many bytes when unpacked.
MOST_ADDRESSES, MOST_BYTES = 50_000, 50 * 1024 * 1024


class Sitemap(Struct, frozen=True):
    """Addresses as they stand there."""

    pages: tuple[str, ...] = ()
    sitemaps: tuple[str, ...] = ()


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


def parse_sitemap(content: bytes) -> Sitemap:
    """What a sitemap lists, or `NotXml`."""
    content = unpacked(content)
    if content.lstrip()[:8].lower().startswith((b"http://", b"https://")):
        lines = content.decode("utf-8", "replace").split()
        return Sitemap(pages=tuple(line for line in lines if line.startswith("http"))[:MOST_ADDRESSES])
    root = parse(content)
    places = [text_of(location) for entry in root for location in entry if location.tag == "loc"]
    if root.tag == "sitemapindex":
        return Sitemap(sitemaps=tuple(places[:MOST_ADDRESSES]))
    if root.tag == "urlset":
        return Sitemap(pages=tuple(places[:MOST_ADDRESSES]))
    raise NotXml(f"is no sitemap: it begins with <{root.tag[:40]}>")
