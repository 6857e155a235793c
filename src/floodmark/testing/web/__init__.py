"""Web sites on this machine, with every oddity of real ones and trouble on demand.

    from floodmark.testing.web import Site, status

    async with Site() as site:
        site.page("/", "Welcome", links=["/a", "/b"])
        site.page("/a", "Some text", has_etag=True)
        site.robots("User-agent: *\\nDisallow: /private")
        site.trouble("/a", status(429, retry_after="30"))
        answer = await http.get(site.url)

Files: `site` listens, keeps pages and writes down who asked for what; `behaviours` are the answers that are not just a
page; `writing` makes documents, sitemaps and feeds; `town` is a whole site of many pages that changes by itself.
"""

from .behaviours import (
    Behaviour,
    bomb,
    cut,
    drip,
    endless,
    header_flood,
    no_answer,
    raw,
    redirect,
    reset,
    slow,
    status,
    wrong_length,
)
from .site import Page, Seen, Site
from .writing import Entry, atom, document, rss, sitemap, sitemap_index

__all__ = [
    "Behaviour",
    "Entry",
    "Page",
    "Seen",
    "Site",
    "atom",
    "bomb",
    "cut",
    "document",
    "drip",
    "endless",
    "header_flood",
    "no_answer",
    "raw",
    "redirect",
    "reset",
    "rss",
    "sitemap",
    "sitemap_index",
    "slow",
    "status",
    "wrong_length",
]
