"""robots.txt, sitemaps and feeds, as they are found."""

import gzip
from datetime import UTC, datetime, timedelta

import pytest

from floodmark.sources.feed.source import make_items
from floodmark.sources.web.feeds import parse_feed
from floodmark.sources.web.robots import Robots
from floodmark.sources.web.sitemaps import parse_sitemap, read_exact_time, read_latest_time
from floodmark.sources.web.xml_trees import NotXml

ROBOTS = """
User-agent: *
Disallow: /private/
Crawl-delay: 2

User-agent: floodmark
Disallow: /drafts/*.html$
Crawl-delay: 0.5
Sitemap: https://example.com/map.xml
"""

RSS = """<?xml version="1.0"?>
<rss version="2.0" xmlns:content="http://purl.org/rss/1.0/modules/content/" xmlns:dc="http://purl.org/dc/elements/1.1/">
<channel><title>News &amp; more</title><link>https://example.com/</link><language>en</language>
<item><title>Second&nbsp;one</title><link>/two</link><guid isPermaLink="false">id-2</guid>
  <pubDate>Tue, 02 Jun 2026 08:00:00 +0200</pubDate>
  <description>&lt;p&gt;Short &lt;b&gt;text&lt;/b&gt;.&lt;/p&gt;</description>
  <content:encoded><![CDATA[<p>Long</p><p>text</p>]]></content:encoded><dc:creator>Ann</dc:creator>
  <category>a</category><category>b</category></item>
<item><title>First one</title><guid>https://example.com/one</guid>
  <pubDate>Mon, 01 Jun 2026 08:00:00 GMT</pubDate></item>
<item><title>Nameless</title></item>
</channel></rss>"""

ATOM = """<feed xmlns="http://www.w3.org/2005/Atom" xml:lang="de"><title>Blog</title>
<link rel="self" href="https://example.com/atom"/><link href="https://example.com/"/>
<entry><id>tag:1</id><title type="html">A &amp;lt;b&amp;gt;</title><link rel="alternate" href="https://example.com/a"/>
<author><name>Bo</name></author><updated>2026-06-01T10:00:00Z</updated>
<content type="xhtml"><div xmlns="http://www.w3.org/1999/xhtml"><p>Hello</p></div></content></entry></feed>"""


def test_the_rules_for_us_come_before_those_for_all() -> None:
    ours, others = Robots(ROBOTS, "floodmark/1.0"), Robots(ROBOTS, "another")

    assert ours.allows("https://example.com/private/a")
    assert not ours.allows("https://example.com/drafts/a.html")
    assert not others.allows("https://example.com/private/a")
    assert ours.delay == timedelta(seconds=0.5)
    assert others.delay == timedelta(seconds=2)
    assert ours.sitemaps == ["https://example.com/map.xml"]


def test_the_rules_are_for_the_name_in_our_user_agent() -> None:
    rules = "User-agent: bot\nDisallow: /"

    assert not Robots(rules, "Mozilla/5.0 (compatible; bot/2.1; +https://example.com)").allows("https://example.com/")
    assert not Robots(rules, "bot").allows("https://example.com/")
    assert Robots(rules, "Mozilla/5.0").allows("https://example.com/")


def test_remarks_and_sitemaps_are_no_rules() -> None:
    """What has changed in the rules makes a crawl begin anew; a date in a remark must not."""
    assert Robots("# today\nDisallow: /a # x\nSitemap: /1", "x").terms == Robots("Disallow: /a\n# now", "x").terms
    assert not Robots(ROBOTS, "x").is_long
    assert Robots("User-agent: *\n" + "".join(f"Disallow: /*{n}\n" for n in range(3000)), "x").is_long


def test_a_site_without_rules_allows_everything() -> None:
    rules = Robots("", "floodmark")

    assert rules.allows("https://example.com/anything")
    assert rules.delay == timedelta()
    assert Robots("<html>not found</html>\x00", "floodmark").allows("https://example.com/")
    assert Robots("User-agent: *\nCrawl-delay: 1e99", "floodmark").delay <= timedelta(hours=1)


def test_sitemaps_list_pages_or_other_sitemaps() -> None:
    pages = b'<urlset xmlns="http://x"><url><loc> https://e.com/a </loc></url><url><loc>https://e.com/b</loc></url></urlset>'
    index = b'<sitemapindex xmlns="http://x"><sitemap><loc>https://e.com/1.xml.gz</loc></sitemap></sitemapindex>'

    assert parse_sitemap(pages).pages == ("https://e.com/a", "https://e.com/b")
    assert parse_sitemap(gzip.compress(pages)).pages == ("https://e.com/a", "https://e.com/b")
    assert parse_sitemap(index).sitemaps == ("https://e.com/1.xml.gz",)
    assert parse_sitemap(b"https://e.com/a\nhttps://e.com/b\n").pages == ("https://e.com/a", "https://e.com/b")


@pytest.mark.spec("B3")
def test_sitemaps_say_when_pages_were_changed() -> None:
    listed = parse_sitemap(
        b"<urlset><url><loc>https://e.com/a</loc><lastmod> 2026-06-01T10:00:00+02:00 </lastmod></url>"
        b"<url><lastmod>2026-06-01</lastmod><loc>https://e.com/b</loc></url><url><loc>https://e.com/c</loc></url></urlset>"
    )
    assert listed.lastmods == {"https://e.com/a": "2026-06-01T10:00:00+02:00", "https://e.com/b": "2026-06-01"}
    exact = datetime(2026, 6, 1, 8, tzinfo=UTC)
    assert (read_exact_time("2026-06-01T10:00:00+02:00"), read_exact_time("2026-06-01T08:00Z")) == (exact, exact)
    for inexact in ("2026-06-01", "2026-06-01T10:00:00", "2026-06", "2026", "yesterday", "", "9999-12-31T23:59-23:59"):
        assert read_exact_time(inexact) is None, inexact
    assert read_latest_time("2026-06-01T08:00Z") == exact
    assert read_latest_time("2026-06-01") == datetime(2026, 6, 2, 12, tzinfo=UTC)
    for unknown in ("2026-06", "2026", "yesterday", "", "9999-12-31"):
        assert read_latest_time(unknown) is None, unknown


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"<html><body>not found</body></html>",
        b"<urlset><url>",
        gzip.compress(b"<urlset/>", mtime=0)[:-9],
        gzip.compress(b"0" * 60_000_000, mtime=0),
        b"\x1f\x8bnothing",
    ],
)
def test_what_is_no_sitemap_is_told(content: bytes) -> None:
    with pytest.raises(NotXml):
        parse_sitemap(content)


def test_rss_is_read_as_it_is_found() -> None:
    feed = parse_feed(RSS.encode())
    second, first, nameless = feed.entries

    assert (feed.title, feed.language) == ("News & more", "en")
    assert (second.id, second.title, second.author, second.tags) == ("id-2", "Second one", "Ann", ("a", "b"))
    assert (second.summary, second.content) == ("Short text.", "Long\ntext")
    assert second.published == datetime(2026, 6, 2, 6, tzinfo=UTC)
    assert first.id == first.link == "https://example.com/one"
    assert nameless.id != first.id


def test_atom_is_read_as_it_is_found() -> None:
    [entry] = parse_feed(ATOM.encode()).entries

    assert (entry.id, entry.link, entry.author) == ("tag:1", "https://example.com/a", "Bo")
    assert entry.content == "Hello"
    assert entry.updated == datetime(2026, 6, 1, 10, tzinfo=UTC)


def test_entries_come_oldest_first_with_their_links_in_full() -> None:
    items = make_items(parse_feed(RSS.encode()), "https://example.com/feed", datetime(2026, 6, 3, tzinfo=UTC))

    assert [item.data["title"] for item in items] == ["Nameless", "First one", "Second one"]
    assert items[-1].data["link"] == "https://example.com/two"
    later = make_items(parse_feed(RSS.encode()), "https://example.com/feed", datetime(2027, 1, 1, tzinfo=UTC))
    assert [item.fingerprint for item in later] == [item.fingerprint for item in items]
