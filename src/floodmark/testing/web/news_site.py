"""A site of many pages to try a crawl: articles that change over time, and unusual pages of real sites.

The same plan gives the same site. Its changes are random with the same seed.
"""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from random import Random

from aiohttp import web
from msgspec import Struct

from floodmark.testing.telegram.texts import sentence

from .behaviours import redirect, status
from .documents import Entry, atom, document, rss, sitemap, sitemap_index
from .site import ServedPage, Site

_BEGAN = datetime(2026, 1, 1, 8, tzinfo=UTC)
_ENGLISH = 0
_PER_SECTION = 20
_IN_FEED = 20


class SitePlan(Struct, frozen=True, kw_only=True):
    """The parameters of the site. `change_every` is the time in seconds between two changes, None for never."""

    pages: int = 200
    change_every: float | None = 10.0
    busy_every: float | None = None
    """Seconds between two responses with 429."""
    seed: int = 7


class _Article(Struct):
    number: int
    title: str
    paragraphs: list[str]
    changed: datetime
    is_gone: bool = False

    @property
    def path(self) -> str:
        return f"/articles/{self.number}"


class NewsSite:
    """Fills a site with articles according to a plan; `run` changes them over time."""

    def __init__(self, site: Site, plan: SitePlan) -> None:
        self.site, self.plan = site, plan
        self.changes = self.waits = 0
        self._chance = Random(plan.seed)  # noqa: S311 - the same for the same seed
        self._articles = [self._article(number) for number in range(1, plan.pages + 1)]

    def build(self) -> None:
        """Create all pages. The site must be listening, because some links contain its port."""
        for article in self._articles:
            self._show(article)
        self._show_lists()
        self._put_oddities()

    async def run(self) -> None:
        """Change articles and respond with 429 from time to time, until cancelled."""
        tasks = []
        if self.plan.change_every is not None:
            tasks.append(asyncio.create_task(_every(self.plan.change_every, self.change)))
        if self.plan.busy_every is not None:
            tasks.append(asyncio.create_task(_every(self.plan.busy_every, self.respond_busy)))
        try:
            await asyncio.gather(*tasks)
            await asyncio.Event().wait()
        finally:
            for task in tasks:
                task.cancel()

    def change(self) -> None:
        """Change one article: most get another paragraph, a few are removed."""
        there = [article for article in self._articles if not article.is_gone]
        if not there:
            return
        article = self._chance.choice(there)
        article.changed = datetime.now(UTC).replace(microsecond=0)
        if self._chance.random() < 0.1 and len(there) > 1:
            article.is_gone = True
            self.site.remove(article.path)
        else:
            article.paragraphs.append(self._paragraph())
            self._show(article)
        self._show_lists()
        self.changes += 1

    def respond_busy(self) -> None:
        """Respond to the next request with 429."""
        self.waits += 1
        self.site.trouble("/articles/*", status(429, retry_after=str(self._chance.randrange(4, 15))))

    # Articles and their lists

    def _article(self, number: int) -> _Article:
        chance = self._chance
        return _Article(
            number=number,
            title=sentence(chance, _ENGLISH).partition(".")[0],
            paragraphs=[self._paragraph() for _ in range(chance.randrange(3, 7))],
            changed=_BEGAN + timedelta(minutes=30 * number),
        )

    def _paragraph(self) -> str:
        return " ".join(sentence(self._chance, _ENGLISH) for _ in range(self._chance.randrange(3, 8)))

    def _show(self, article: _Article) -> ServedPage:
        # One third of the articles has an ETag, one third a date, and one third neither.
        kind = article.number % 3
        near = [self._articles[(article.number + step) % len(self._articles)].path for step in (0, 2, 10)]
        date = f'<meta property="article:published_time" content="{article.changed.isoformat()}">'
        return self.site.page(
            article.path,
            "\n\n".join(article.paragraphs),
            title=f"{article.title} ({article.number})",
            links=["/", f"/sections/{article.number // _PER_SECTION}", *near],
            head=f'{date}\n<link rel="canonical" href="{article.path}">',
            has_etag=kind == 0,
            last_modified=article.changed if kind == 1 else None,
            encoding="gzip" if article.number % 2 else None,
        )

    def _show_lists(self) -> None:
        site, there = self.site, [article for article in self._articles if not article.is_gone]
        sections = sorted({article.number // _PER_SECTION for article in there})
        for section in sections:
            of = [article for article in there if article.number // _PER_SECTION == section]
            site.page(f"/sections/{section}", f"{len(of)} articles.", links=[article.path for article in of])
        feeds = (
            '<link rel="alternate" type="application/rss+xml" href="/feed.xml">\n'
            '<link rel="alternate" type="application/atom+xml" href="/atom.xml">'
        )
        links = [*(f"/sections/{section}" for section in sections), "/oddities/"]
        site.page("/", "A site on this machine.", title="News", links=links, head=feeds, has_etag=True)
        self._show_maps(there)
        self._show_feeds(there)

    def _show_maps(self, there: list[_Article]) -> None:
        half = len(there) // 2
        parts = {"/sitemap-1.xml": there[:half], "/sitemap-2.xml.gz": there[half:]}
        for path, of in parts.items():
            self.site.xml(path, sitemap({self.site.at("127.0.0.1", each.path): each.changed for each in of}))
        self.site.xml("/sitemap.xml", sitemap_index(self.site.at("127.0.0.1", path) for path in parts))
        rules = "User-agent: *\nDisallow: /private/\nDisallow: /*?session=\n"
        self.site.robots(f"{rules}Sitemap: {self.site.at('127.0.0.1', '/sitemap.xml')}\n")

    def _show_feeds(self, there: list[_Article]) -> None:
        newest = sorted(there, key=lambda article: article.changed, reverse=True)[:_IN_FEED]
        entries = [
            Entry(
                id=f"article-{each.number}",
                link=self.site.at("127.0.0.1", each.path),
                title=each.title,
                text=each.paragraphs[-1],
                at=each.changed,
            )
            for each in newest
        ]
        self.site.xml("/feed.xml", rss(entries, title="News"), content_type="application/rss+xml", has_etag=True)
        self.site.xml("/atom.xml", atom(entries, title="News"), content_type="application/atom+xml", has_etag=True)

    # Oddities

    def _put_oddities(self) -> None:
        put = (
            self._put_redirects,
            self._put_charsets,
            self._put_doubles,
            self._put_absences,
            self._put_traps,
            self._put_scripts,
        )
        links = [link for each in put for link in each()]
        self.site.page("/oddities/", "Unusual pages of real sites.", title="Oddities", links=links)

    def _put_redirects(self) -> list[str]:
        self.site.always("/oddities/moved", redirect("/articles/1", 301))
        self.site.always("/oddities/inside", redirect("http://192.168.0.1/", 302))
        self.site.always("/oddities/loop", redirect("/oddities/loop"))
        self.site.always("/oddities/farther*", redirect("/oddities/farther?{n}"))
        return ["moved", "../oddities/moved", "inside", "loop", "farther", "mailto:news@example.com", "#top"]

    def _put_charsets(self) -> list[str]:
        cafe = document("Café", "Crème brûlée, smørrebrød, Spätzle.")
        latin = cafe.replace('<meta charset="utf-8">', "").encode("latin-1")
        self.site.put("/oddities/latin-1", latin, content_type="text/html; charset=ISO-8859-1")
        self.site.put("/oddities/no-charset", latin, content_type="text/html")
        self.site.put("/oddities/wrong-charset", latin, content_type="text/html; charset=utf-8")
        self.site.put("/oddities/caf%C3%A9", cafe)
        self.site.put("/oddities/picture.png", b"\x89PNG\r\n\x1a\n" + bytes(100), content_type="image/png")
        self.site.put("/oddities/unsaid", cafe, content_type=None)
        return ["latin-1", "no-charset", "wrong-charset", "caf%C3%A9", "/oddities/café", "picture.png", "unsaid"]

    def _put_doubles(self) -> list[str]:
        article = self._articles[0]
        text = "\n\n".join(article.paragraphs)
        self.site.page("/oddities/print", text, title=f"{article.title} ({article.number})")
        canonical = f'<link rel="canonical" href="{article.path}">'
        self.site.page("/oddities/shared", text, title=article.title, head=canonical)
        noindex = '<meta name="robots" content="noindex, nofollow">'
        self.site.page("/oddities/noindex", "Not to be collected.", head=noindex, links=["/oddities/behind-nofollow"])
        self.site.page("/oddities/behind-nofollow", "Nobody should come here.")
        self.site.page("/private/", "Robots are not welcome here.")
        return ["print", "shared", "shared?utm_source=news", "noindex", "/private/", "/?session=1"]

    def _put_absences(self) -> list[str]:
        self.site.page("/oddities/soft-404", "Sorry, the page you are looking for was not found.", title="Not found")
        self.site.always("/oddities/gone", status(410))
        self.site.always("/oddities/broken", status(500))
        self.site.always("/oddities/forbidden", status(403))
        return ["soft-404", "gone", "broken", "forbidden", "nothing-here"]

    def _put_traps(self) -> list[str]:
        self.site.always("/oddities/calendar/*", _calendar)
        return ["calendar/2026/1"]

    def _put_scripts(self) -> list[str]:
        script = "<script>document.cookie='seen=1; path=/'; localStorage.setItem('visits', '1');</script>"
        self.site.page(
            "/oddities/script",
            "Some of this is written by a script.",
            body=f'<div id="late"></div>{script}<script>late.textContent = "Written late.";</script>',
            cookies=("visitor=42; Path=/; HttpOnly; SameSite=Lax", "tracker=x; Path=/; Max-Age=31536000"),
        )
        return ["script"]


async def _calendar(request: web.Request) -> web.StreamResponse:
    """Link every month to the next one, endlessly."""
    year, month = (int(part) if part.isdigit() else 1 for part in request.path.split("/")[3:5])
    after = f"/oddities/calendar/{year + month // 12}/{month % 12 + 1}"
    made = document(f"{year}-{month:02}", "Nothing is planned for this month.", [after])
    return web.Response(text=made, content_type="text/html")


async def _every(seconds: float, do: Callable[[], None]) -> None:
    while True:
        await asyncio.sleep(seconds)
        do()
