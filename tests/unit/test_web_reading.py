"""What an answer means for the page that was asked for."""

from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace
from multidict import CIMultiDict, CIMultiDictProxy

from floodmark.model.batch import SitePage
from floodmark.outbound.client import HttpAnswer
from floodmark.sources.web.charsets import decode_text
from floodmark.sources.web.responses import SITEMAP, Kind, VisitedPage, is_file, read_response
from floodmark.sources.web.urls import Scope

NOW = datetime(2026, 6, 1, tzinfo=UTC)
SCOPE = Scope("https://example.com/")
PAGE = SitePage(url="https://example.com/a", depth=1)
KEPT = replace(PAGE, crawl=1, status=200, content_hash="old", etag='"1"')


def answered(page: SitePage, body: str = "", status: Any = 200, skip: int = 0, **headers: str) -> VisitedPage:
    said = CIMultiDict({"Content-Type": "text/html", **{name.replace("_", "-"): v for name, v in headers.items()}})
    answer = HttpAnswer(status=status, url=page.url, headers=CIMultiDictProxy(said), body=body.encode())
    return read_response(page, answer, crawl=2, scope=SCOPE, now=NOW, skip=skip)


def test_an_unchanged_page_is_visited_and_says_nothing() -> None:
    seen = answered(replace(KEPT, note="it failed the last time", misses=1), status=304)

    assert (seen.kind, seen.data) == (Kind.UNCHANGED, None)
    assert seen.page == replace(KEPT, crawl=2, status=304)


def test_a_page_without_a_tag_is_unchanged_if_its_text_is() -> None:
    first = answered(PAGE, "<title>A</title><main>Text</main><footer>1 June</footer>")
    second = answered(first.page, "<title>A</title><main>Text</main><footer>2 June</footer>")

    assert (first.kind, second.kind) == (Kind.READ, Kind.UNCHANGED)
    assert first.is_new
    assert not answered(first.page, "<title>A</title><main>Other</main>").is_new


def test_a_page_that_moved_for_good_is_missing_and_leads_to_where_it_is() -> None:
    moved = answered(KEPT, status=301, Location="/b")
    assert (moved.kind, moved.follow, moved.page.misses) == (Kind.MISSING, ["https://example.com/b"], 1)
    assert moved.page.content_hash == "old"

    lent = answered(KEPT, status=302, Location="/b")
    assert (lent.kind, lent.follow, lent.page.misses) == (Kind.SKIPPED, ["https://example.com/b"], 0)
    assert answered(PAGE, status=302, Location="/a/").near == "https://example.com/a/"
    assert answered(PAGE, status=302, Location="/a").follow == []
    assert answered(PAGE, status=302).page.note == "redirects to nowhere"


@pytest.mark.parametrize(
    ("body", "headers", "note"),
    [
        ("<main>Text", {"X_Robots_Tag": "noindex"}, "not to be indexed (noindex)"),
        ('<link rel="canonical" href="/b"><main>Text', {}, "its canonical URL is https://example.com/b"),
        ("", {}, "has no text"),
        ("{}", {"Content_Type": "application/json"}, "not HTML: application/json"),
        ("<svg/>", {"Content_Type": "image/svg+xml"}, "not HTML: image/svg+xml"),
    ],
)
def test_what_makes_no_item_is_told(body: str, headers: dict[str, str], note: str) -> None:
    seen = answered(PAGE, body, 200, 0, **headers)

    assert (seen.kind, seen.page.note, seen.data) == (Kind.SKIPPED, note, None)


def test_a_canonical_address_of_another_site_counts_for_nothing() -> None:
    assert answered(PAGE, '<link rel="canonical" href="https://other.example/"><main>Text').kind is Kind.READ


def test_a_sitemap_stays_one_whatever_becomes_of_it() -> None:
    sitemap = SitePage(url="https://example.com/map.xml", note=SITEMAP)

    assert answered(sitemap, status=404).page.note == SITEMAP
    assert answered(sitemap, "<html>not a sitemap").kind is Kind.INDEX
    assert answered(sitemap, "https://example.com/b").follow == ["https://example.com/b"]


def test_files_are_no_pages() -> None:
    assert is_file("https://example.com/a.PDF?x=1")
    assert not is_file("https://example.com/a.html")
    assert not is_file("https://example.com/?file=a.pdf")


def test_links_are_counted_once_it_is_known_where_they_lead(monkeypatch: pytest.MonkeyPatch) -> None:
    """An index with three fragments for each page leads to all of its pages; its item lists the first 1,000."""
    hrefs = [f"/{number}{part}" for number in range(1200) for part in ("", "#a", "#b")]
    body = "<main>Text " + "".join(f"<a href='{href}'>x</a>" for href in hrefs)
    seen = answered(PAGE, body)
    assert len(seen.follow) == 1200
    assert seen.data is not None
    assert (len(seen.data["links"]), seen.data["more_links"], seen.notable) == (1000, 200, [])

    monkeypatch.setattr("floodmark.sources.web.responses.MOST_LINKS", 500)
    seen = answered(PAGE, body)
    assert len(seen.follow) == 500
    assert seen.notable == ["has 1,200 links, which are followed in parts of 500"]
    assert (seen.rest, seen.follow[0]) == (500, "https://example.com/0")
    last = answered(PAGE, body, skip=1000)
    assert (last.rest, len(last.follow), last.follow[0]) == (0, 200, "https://example.com/1000")
    assert answered(PAGE, f"<main>{'word ' * 110_000}").notable == ["its text is cut at 500,000 characters"]


@pytest.mark.parametrize(
    "body",
    [
        "<title>A</title><div id=app></div><script>1</script>",
        "<title>A</title><noscript>Please turn on JavaScript.</noscript><script src=a.js></script>",
        "<title>A</title><body><script src=a.js></script>",
    ],
)
def test_a_page_that_a_script_has_to_fill_is_no_item(body: str) -> None:
    seen = answered(PAGE, body)

    assert (seen.kind, seen.notable) == (Kind.SKIPPED, [seen.page.note])
    assert "JavaScript" in str(seen.page.note)
    # What little text there is counts, and so does a page without scripts.
    assert answered(PAGE, f"{body}<p>A few words</p>").kind is Kind.READ
    assert answered(PAGE, "<title>A</title>").kind is Kind.READ


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("windows-1251", "Сегодня в городе открылась новая библиотека, и читатели могут взять книги домой."),
        ("koi8-r", "Сегодня в городе открылась новая библиотека, и читатели могут взять книги домой."),
        ("shift_jis", "今日、市の中心に新しい図書館が開館しました。読者は本を家に持ち帰ることができます。"),
        ("gb2312", "今天市中心开设了一座新的图书馆。读者可以把书借回家,也可以在明亮的大厅里工作到深夜。"),
        ("big5", "今天市中心開設了一座新的圖書館。讀者可以把書借回家,也可以在明亮的大廳裡工作到深夜。"),
        ("euc-kr", "오늘 도시 중심에 새로운 도서관이 문을 열었습니다. 독자들은 책을 빌려 갈 수 있습니다."),
        ("iso-8859-7", "Σήμερα άνοιξε στην πόλη μια νέα βιβλιοθήκη. Οι αναγνώστες μπορούν να πάρουν βιβλία."),
        ("utf-16", "Größe"),
        ("utf-32", "Größe"),
    ],
)
def test_a_charset_that_nobody_names_is_found_out(encoding: str, text: str) -> None:
    body = f"<!doctype html><html><head><title>{text}</title></head><body><p>{text}</p></body></html>".encode(encoding)

    assert text in decode_text(body)


def test_a_bad_byte_costs_one_letter() -> None:
    good = "<p>Сегодня в городе открылась новая библиотека</p>"
    for encoding in ("utf-8", "euc-jp"):
        body = good.encode(encoding) + b"\xff" + good.encode(encoding)
        assert decode_text(body, encoding) == f"{good}\ufffd{good}"
    # What the header says is not believed against the bytes.
    assert decode_text(good.encode(), "iso-8859-1") == good
    assert decode_text("Größe".encode("latin-1"), "utf-8") == "Größe"
