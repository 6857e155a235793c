"""HTML documents, sitemaps and feeds as text."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from email.utils import format_datetime
from xml.sax.saxutils import escape, quoteattr

from msgspec import Struct

_XML = '<?xml version="1.0" encoding="UTF-8"?>\n'


class Entry(Struct, frozen=True, kw_only=True):
    """An entry of a feed."""

    id: str
    link: str
    title: str = "An entry"
    text: str = ""
    at: datetime | None = None
    author: str | None = None


def document(
    title: str = "A page",
    text: str = "",
    links: Iterable[str] = (),
    *,
    head: str = "",
    body: str = "",
    language: str = "en",
) -> str:
    """Return an HTML page: `text` becomes paragraphs, `links` a list, `head` and `body` are inserted unchanged."""
    paragraphs = "\n".join(f"<p>{escape(part)}</p>" for part in text.split("\n\n") if part.strip())
    listed = "\n".join(f"<li><a href={quoteattr(link)}>{escape(link)}</a></li>" for link in links)
    return (
        f'<!doctype html>\n<html lang="{language}">\n<head>\n<meta charset="utf-8">\n<title>{escape(title)}</title>\n'
        f"{head}\n</head>\n<body>\n<nav><ul>\n{listed}\n</ul></nav>\n"
        f"<main>\n<h1>{escape(title)}</h1>\n{paragraphs}\n{body}\n</main>\n</body>\n</html>\n"
    )


def sitemap(pages: Iterable[str] | Mapping[str, datetime]) -> str:
    """Return a sitemap of these URLs; a mapping contains the last change of each URL."""
    changed = pages if isinstance(pages, Mapping) else {}
    rows = "".join(
        f"<url><loc>{escape(page)}</loc>"
        + (f"<lastmod>{changed[page].isoformat()}</lastmod>" if page in changed else "")
        + "</url>\n"
        for page in pages
    )
    return f'{_XML}<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">\n{rows}</urlset>\n'


def sitemap_index(sitemaps: Iterable[str]) -> str:
    """Return a sitemap index."""
    rows = "".join(f"<sitemap><loc>{escape(address)}</loc></sitemap>\n" for address in sitemaps)
    return f'{_XML}<sitemapindex xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">\n{rows}</sitemapindex>\n'


def rss(entries: Iterable[Entry], *, title: str = "News", link: str = "/") -> str:
    """Return an RSS 2.0 feed."""
    items = "".join(
        f'<item><guid isPermaLink="false">{escape(entry.id)}</guid><link>{escape(entry.link)}</link>'
        f"<title>{escape(entry.title)}</title><description>{escape(entry.text)}</description>"
        + (f"<pubDate>{format_datetime(entry.at)}</pubDate>" if entry.at else "")
        + (f"<author>{escape(entry.author)}</author>" if entry.author else "")
        + "</item>\n"
        for entry in entries
    )
    head = f"<title>{escape(title)}</title><link>{escape(link)}</link><description>{escape(title)}</description>"
    return f'{_XML}<rss version="2.0"><channel>{head}\n{items}</channel></rss>\n'


def atom(entries: Iterable[Entry], *, title: str = "News", link: str = "/") -> str:
    """Return an Atom feed."""
    items = "".join(
        f"<entry><id>{escape(entry.id)}</id><link href={quoteattr(entry.link)}/>"
        f"<title>{escape(entry.title)}</title><content>{escape(entry.text)}</content>"
        + (f"<updated>{entry.at.isoformat()}</updated>" if entry.at else "")
        + (f"<author><name>{escape(entry.author)}</name></author>" if entry.author else "")
        + "</entry>\n"
        for entry in entries
    )
    head = f"<title>{escape(title)}</title><link href={quoteattr(link)}/><id>{escape(link)}</id>"
    return f'{_XML}<feed xmlns="http://www.w3.org/2005/Atom">{head}\n{items}</feed>\n'
