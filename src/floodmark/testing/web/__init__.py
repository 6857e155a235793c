"""Local web sites with the unusual pages of real ones, and with faults on demand.

    from floodmark.testing.web import Site, status

    async with Site() as site:
        site.page("/", "Welcome", links=["/a", "/b"])
        site.page("/a", "Some text", has_etag=True)
        site.robots("User-agent: *\\nDisallow: /private")
        site.trouble("/a", status(429, retry_after="30"))
        answer = await http.get(site.url)

Modules: `site` serves pages and records requests; `behaviours` are special responses; `documents` creates pages,
sitemaps and feeds; `news_site` is a site with many pages that changes over time.
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
from .documents import Entry, atom, document, rss, sitemap, sitemap_index
from .site import SeenRequest, ServedPage, Site

__all__ = [
    "Behaviour",
    "Entry",
    "SeenRequest",
    "ServedPage",
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
