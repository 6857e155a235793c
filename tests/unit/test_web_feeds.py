"""Feeds as they are found: broken, in any encoding, in any dialect, and made to do harm."""

import json
import time
from datetime import UTC, datetime
from typing import Any

import pytest

from floodmark.sources.feed.keys import Keys
from floodmark.sources.feed.source import make_items
from floodmark.sources.web.feeds import Feed, FeedEntry, parse_feed
from floodmark.sources.web.xml_trees import NotXml

NOW = datetime(2026, 6, 1, tzinfo=UTC)
TEN = [f"<item><guid>{n}</guid><title>Title {n}</title><description>Words {n}</description></item>" for n in range(10)]


def rss(*items: str, head: str = "", attributes: str = "") -> str:
    return f'<rss version="2.0" {attributes}><channel><title>News</title>{head}{"".join(items)}</channel></rss>'


def titles(content: str | bytes, charset: str | None = None) -> list[str]:
    body = content.encode() if isinstance(content, str) else content
    return [entry.title for entry in parse_feed(body, charset, "https://example.com/feed").entries]


def data_of(content: str) -> dict[str, Any]:
    url = "https://example.com/feed"
    [item] = make_items(parse_feed(content.encode(), None, url), url, NOW)
    assert isinstance(item.data, dict)
    return item.data


@pytest.mark.spec("V12")
@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("euc-kr", "새로운 도서관이 문을 열었습니다"),
        ("gb2312", "今天市中心开设了一座新的图书馆"),
        ("shift_jis", "新しい図書館が開館しました"),
        ("big5", "今天市中心開設了一座新的圖書館"),
        ("koi8-r", "Новая библиотека"),
        ("utf-16", "Neue Bücherei"),
        ("utf-32", "Neue Bücherei"),
    ],
)
def test_feeds_are_read_in_the_encoding_that_document_or_header_name(encoding: str, text: str) -> None:
    item = f"<item><title>{text}</title></item>"
    assert titles(f'<?xml version="1.0" encoding="{encoding}"?>{rss(item)}'.encode(encoding)) == [text]
    assert titles(rss(item).encode(encoding), encoding) == [text]


@pytest.mark.spec("V12")
@pytest.mark.parametrize(
    ("broken", "least"),
    [
        (rss(*TEN).replace("Words 4", "Fish & chips & <b>more"), 10),
        (rss(*TEN).replace("Words 4", "a &nosuch; &#xFFFFFFFF; < b"), 10),
        (rss(*TEN).replace("</title><description>Words 4", "</titel><description>Words 4"), 10),
        (rss(*TEN).replace("</item><item><guid>5", "<item><guid>5"), 10),
        (rss(*TEN)[: rss(*TEN).index("Words 9")], 9),
        (rss(*TEN)[: rss(*TEN).index("</title><description>Words 9") - 3], 9),
        (rss(*TEN).replace("Words 4", "<![CDATA[ never closed"), 9),
        (rss(*TEN).replace("Words 4", "<!-- never closed"), 9),
        (rss(*TEN).replace("Words 4", "\x00\x08 control"), 10),
        (rss(*TEN).replace("<guid>4", '<media:content url="a>b" url="twice"/><guid>4'), 10),
        (f'\n\n<?xml version="1.0"?>{rss(*TEN)}<', 10),
        (f"<!DOCTYPE rss [<!ENTITY a 'b'>]>{rss(*TEN).replace('Words 4', '&a;')}", 10),
        (rss(*TEN).replace("</item><item><guid>5", "</item></channel></rss><item><guid>5"), 10),
    ],
)
def test_a_fault_costs_at_most_one_entry(broken: str, least: int) -> None:
    feed = parse_feed(broken.encode())
    assert len(feed.entries) >= least
    assert feed.fault is not None
    good = {f"Title {n}" for n in range(10) if n != 4 and f"Title {n}<" in broken}
    assert len(good - {entry.title for entry in feed.entries}) <= 1


@pytest.mark.spec("V12")
def test_a_bad_byte_costs_no_entry() -> None:
    body = rss(*TEN).encode().replace(b"Words 4", "Größe, Maße, Übung ".encode() + b"\xff")
    assert len(titles(body)) == 10
    assert "Größe" in parse_feed(body).entries[4].summary


@pytest.mark.spec("V12")
def test_json_feeds_are_feeds() -> None:
    items: list[dict[str, Any]] = [
        {"id": 7, "url": "/7", "title": "Seven", "content_html": "<p>Long <b>text</b></p>", "tags": ["a", 1],
         "date_published": "2026-06-01T10:00:00+02:00", "authors": [{"name": "Ann"}],
         "attachments": [{"url": "https://example.com/7.mp3", "mime_type": "audio/mpeg", "size_in_bytes": 9}]},
        {"id": "8", "external_url": "https://other.example/", "content_text": "Plain"},
        {},
    ]  # fmt: skip
    version = "https://jsonfeed.org/version/1.1"
    written = json.dumps({"version": version, "title": "News", "language": "en", "items": items})
    feed = parse_feed(written.encode())
    seven, eight = feed.entries
    assert (feed.title, feed.language, feed.total, feed.empty) == ("News", "en", 3, 1)
    assert (seven.id, seven.title, seven.content, seven.author, seven.tags) == (
        "7",
        "Seven",
        "Long text",
        "Ann",
        ("a", "1"),
    )
    assert (seven.published, seven.enclosures[0].length) == (datetime(2026, 6, 1, 8, tzinfo=UTC), 9)
    assert (eight.link, eight.content) == ("https://other.example/", "Plain")
    # One that is cut short loses what is cut.
    assert [entry.id for entry in parse_feed(written[: written.index('"external_url"') + 5].encode()).entries] == ["7"]
    for other in ("{}", '{"items": 3}', '{"a": 1}', "{" * 100_000):
        with pytest.raises(NotXml):
            parse_feed(other.encode())


@pytest.mark.spec("V12")
def test_what_belongs_to_an_entry_is_kept_and_other_vocabularies_do_not_replace_it() -> None:
    media = 'xmlns:media="http://search.yahoo.com/mrss/"'
    item = """<item><media:title>The picture</media:title><title>The entry</title>
      <media:description>Alt</media:description><description>Words</description>
      <link>https://example.com/day?utm_source=x#two</link>
      <enclosure url="https://example.com/a.mp3" type="audio/mpeg" length="1234"/>
      <media:group><media:content url="/b.jpg" type="image/jpeg"/></media:group></item>"""
    data = data_of(rss(item, attributes=media))
    assert (data["title"], data["summary"]) == ("The entry", "Words")
    assert data["link"] == "https://example.com/day#two"
    assert data["enclosures"] == [
        {"url": "https://example.com/a.mp3", "type": "audio/mpeg", "length": 1234},
        {"url": "https://example.com/b.jpg", "type": "image/jpeg"},
    ]
    # Without a title it has none; a prefix that is not declared is no other vocabulary.
    assert "title" not in data_of(rss("<item><guid>1</guid><media:title>P</media:title></item>", attributes=media))
    assert data_of(rss("<item><dc:title>T</dc:title></item>"))["title"] == "T"


@pytest.mark.spec("V12")
def test_entries_that_have_only_markup_are_entries() -> None:
    """A picture without a word, a guid or a link: as many entries as feedparser reads."""
    pictures = "".join(f"<item><description>&lt;img src='/{n}.jpg'/&gt;</description></item>" for n in range(3))
    feed = parse_feed(rss(pictures + "<item><title><![CDATA[<img/>]]></title></item><item> </item>").encode())
    assert (len({entry.id for entry in feed.entries}), feed.empty) == (4, 1)


@pytest.mark.spec("V12")
def test_links_are_relative_to_the_base_of_their_element() -> None:
    atom = """<feed xmlns="http://www.w3.org/2005/Atom" xml:base="https://other.example/blog/">
      <entry xml:base="2026/"><id>1</id><link href="one.html"/><link rel="enclosure" href="one.mp3"/></entry></feed>"""
    data = data_of(atom)
    assert data["link"] == "https://other.example/blog/2026/one.html"
    assert data["enclosures"] == [{"url": "https://other.example/blog/2026/one.mp3"}]
    assert data_of(rss("<item><link>/a</link></item>"))["link"] == "https://example.com/a"


def entry(**said: Any) -> FeedEntry:
    return FeedEntry(**{"id": "same", **said})


@pytest.mark.spec("V12", "G3")
def test_entries_under_one_id_are_told_apart_by_what_they_say() -> None:
    """The same key on the next poll: in whatever order, when others are gone, and when only the text has changed."""
    days = [entry(title=f"Day {n}", summary="Words", published=datetime(2026, 6, n, tzinfo=UTC)) for n in (1, 2, 3)]
    keys = Keys()
    first = keys.assign_keys(days)
    assert len(first) == 3
    assert "same" not in first
    later = Keys(keys.levels)
    assert set(later.assign_keys(days[::-1])) == set(first)
    [alone] = later.assign_keys([entry(title="Day 2", summary="Corrected", published=days[1].published)])
    assert first[alone].title == "Day 2"

    # Nothing but text: that is what sets them apart. What is the same in everything is one entry.
    texts = [entry(content=f"Text {n}") for n in range(5)]
    assert len(Keys().assign_keys([*texts, texts[0]])) == 5
    # Those of ordinary feeds stay what they are.
    plain = [FeedEntry(id=f"id-{n}", title="Same", link="/same") for n in range(3)]
    ordinary = Keys()
    assert list(ordinary.assign_keys(plain)) == ["id-0", "id-1", "id-2"]
    assert ordinary.levels == {}


def test_an_id_that_comes_again_in_the_next_slice_is_told_apart() -> None:
    keys = Keys()
    assert list(keys.assign_keys([entry(title="One")], is_last=False)) == ["same"]
    [second] = keys.assign_keys([entry(title="Two")])
    assert second.startswith("same#")


@pytest.mark.spec("V12")
def test_entries_without_any_name_are_called_by_what_they_say() -> None:
    encoded = 'xmlns:content="http://purl.org/rss/1.0/modules/content/"'
    items = [f"<item><content:encoded>Text {n}</content:encoded></item>" for n in range(6)]
    feed = parse_feed(rss(*items, "<item/>", attributes=encoded).encode())
    assert len({entry.id for entry in feed.entries}) == 6
    assert (feed.total, feed.empty) == (7, 1)


@pytest.mark.spec("G6")
@pytest.mark.parametrize(
    "content",
    [
        "<rss><channel>" + "<a>" * 300_000,
        rss("<item><title>x" + "<b>" * 100_000 + "</title></item>"),
        "<rss><channel>" + "<item><title>" * 40_000,
        rss("<item><description>" + "<![CDATA[" * 100_000 + "</description></item>"),
        rss("<item><description>" + "<!--" * 100_000 + "</description></item>"),
        rss("<item><description>" + '<a b="' * 100_000 + "</description></item>"),
        rss(*["<item/>"] * 50_000),
        rss("<item><title>" + "&amp;" * 1_000_000 + "</title></item>"),
        '<!DOCTYPE r [<!ENTITY a "aaaaaaaaaa">'
        + "".join(f'<!ENTITY a{n} "{f"&a{n - 1 or str()};" * 10}">' for n in range(1, 12))
        + "]>"
        + rss("<item><title>&a11;</title></item>"),
        '<!DOCTYPE r [<!ENTITY a SYSTEM "file:///etc/passwd">]>' + rss("<item><title>&a;</title></item>"),
    ],
    ids=["nested", "nested-in-entry", "unclosed", "cdata", "comments", "quotes", "empty", "escapes", "bomb", "file"],
)
def test_what_is_made_to_do_harm_costs_little(content: str) -> None:
    began = time.process_time()
    feed = parse_feed(content.encode())
    assert time.process_time() - began < 10
    assert not any("root:" in entry.title for entry in feed.entries)
    assert isinstance(feed, Feed)
