"""What is collected of a page."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from floodmark.sources.web.charsets import decode_text
from floodmark.sources.web.difference import difference
from floodmark.sources.web.extract import extract_text, parse_document
from floodmark.sources.web.nesting import TooNested

PAGE = """<!doctype html><html lang="en-GB"><head><title> The   title </title>
<meta name="author" content="Ann Author"><meta name="description" content="What it is about">
<meta property="og:title" content="Shared title"><meta property="og:image" content="https://e.com/i.png">
<meta property="article:published_time" content="2026-06-01T10:00:00+02:00">
<link rel="canonical" href="/the-page"><link rel="alternate" type="application/rss+xml" href="/feed">
<script>var a = "<p>no text</p>";</script></head>
<body><header><a href="/">Home</a> Site name</header><nav><a href="/one">One</a><a href='/one'>One</a></nav>
<main><article><header><h1>Heading</h1></header><p>First <b>bold</b> &amp; <i>plain</i>
   paragraph.</p><ul><li>One</li><li>Two</li></ul><p data-x='a > b "c"'>Last.<br>Line</p>
   <aside>Ad</aside><a href="/two" rel="nofollow">Two</a><a href="#here">Here</a><a href="mailto:x@y">Mail</a>
</article></main><footer>Imprint</footer></body></html>"""


def test_the_main_text_is_what_the_page_is_about() -> None:
    found = parse_document(PAGE)

    assert found.title == "The title"
    assert found.text == "Heading\nFirst bold & plain paragraph.\nOne\nTwo\nLast.\nLine\nTwoHereMail"


_REPEATED = "<p>" + "".join(f"<b id={n}>" for n in range(1500)) + "<p>x" * 1500


@pytest.mark.spec("G6")
@pytest.mark.parametrize("html", ["<div>" * 100_000, "<DIV><x></div>" * 5_000, "<b><i>" * 50_000, _REPEATED])
def test_a_page_that_would_choke_the_parser_is_not_parsed(html: str) -> None:
    """The last one is of 21 KB and would become a tree of 800 MB."""
    with pytest.raises(TooNested, match="nested too deeply"):
        parse_document(html)
    assert extract_text(html) == ""


def test_a_long_page_is_not_deep() -> None:
    entry = "<div><ul><li><a href=/x><b>Bold</b></a><br><img src=x></ul></div>"
    assert parse_document(f"<p>{entry * 2000}<p>The end").text.endswith("The end")


def test_the_facts_of_a_page_are_found() -> None:
    found = parse_document(PAGE)

    assert found.facts == {
        "author": "Ann Author",
        "description": "What it is about",
        "published": "2026-06-01T08:00:00+00:00",
        "language": "en-GB",
        "open_graph": {"title": "Shared title", "image": "https://e.com/i.png"},
    }
    assert (found.canonical, found.feeds) == ("/the-page", ["/feed"])
    assert (found.hrefs, found.others) == (["/", "/one", "mailto:x@y"], ["/two"])


def test_linked_data_tells_when_and_by_whom() -> None:
    said = '{"@graph": [{"@type": "Article", "datePublished": "2026-06-01", "author": [{"name": "Bo"}]}]}'
    found = parse_document(f'<script type="application/ld+json">{said}</script><p>Text')

    assert found.facts == {"published": "2026-06-01T00:00:00+00:00", "author": "Bo"}
    assert parse_document('<script type="application/ld+json">{broken</script>').facts == {}


def test_without_marks_the_block_with_most_paragraphs_is_the_text() -> None:
    text = "A sentence that is long enough to be one. " * 5
    rest = "<div><p>Read more</p></div>"
    found = parse_document(f"<body>{rest}<div><p>{text}</p><p>{text}</p><p>{text}</p></div>{rest}</body>")

    assert "Read more" not in found.text
    assert found.text.count("\n") == 2


def test_a_list_of_articles_is_one_text() -> None:
    assert parse_document("<article>One</article><article>Two</article>").text == "One\nTwo"


@pytest.mark.parametrize(
    ("html", "rules", "indexed", "followed"),
    [
        ("", "", True, True),
        ('<meta name="robots" content="NOINDEX">', "", False, True),
        ('<meta name="robots" content="index, nofollow">', "", True, False),
        ('<meta name="ROBOTS" content="none">', "", False, False),
        ("", "noindex, nofollow", False, False),
        ("", "otherbot: noindex, nofollow", True, True),
        ("", "otherbot: noindex\nfloodmark: nofollow", True, False),
        ("", "unavailable_after: 1 Jun 2026, noindex", False, True),
    ],
)
def test_what_a_page_asks_of_robots(html: str, rules: str, indexed: bool, followed: bool) -> None:
    found = parse_document(f"<head>{html}</head>", rules=rules)

    assert (found.is_indexed, found.is_followed) == (indexed, followed)


@pytest.mark.parametrize(
    ("html", "is_miss"),
    [
        ("<title>404 Not Found</title><p>Sorry", True),
        ("<title>Shop</title><h1>Page not found</h1>", True),
        ("<title>How to fix: not found</title><main>" + "<p>Many words about it. " * 100, False),
        ("<title>Room 1404</title><p>A room", False),
    ],
)
def test_a_page_that_says_it_is_not_there(html: str, is_miss: bool) -> None:
    assert parse_document(html).is_soft_miss == is_miss


@given(st.text(max_size=60))
def test_any_text_can_be_taken_apart(text: str) -> None:
    parse_document(text)
    extract_text(f"<p>{text}</p>")


@given(st.text(alphabet=st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=20))
def test_text_comes_out_as_it_was_written(word: str) -> None:
    escaped = word.replace("&", "&amp;").replace("<", "&lt;")
    assert parse_document(f"<main><p title='>{len(word)}\"'>{escaped}</p></main>").text == word
    assert extract_text(f"<p>{escaped}</p>") == word


@pytest.mark.parametrize(
    ("body", "told", "text"),
    [
        ("Grüße".encode(), "utf-8", "Grüße"),
        ("Grüße".encode(), None, "Grüße"),
        ("Grüße".encode("latin-1"), "utf-8", "Grüße"),
        ("Grüße".encode("latin-1"), "iso-8859-1", "Grüße"),
        ("Grüße".encode("latin-1"), None, "Grüße"),
        ("Привет <meta charset=windows-1251>".encode("cp1251"), None, "Привет <meta charset=windows-1251>"),
        ("Grüße".encode("utf-16"), None, "Grüße"),
        (b"\xef\xbb\xbfx", "latin-1", "x"),
        (b"plain", "no-such-charset", "plain"),
        (b"plain", "rot13", "plain"),
    ],
)
def test_a_wrong_charset_is_noticed(body: bytes, told: str | None, text: str) -> None:
    assert decode_text(body, told) == text


def test_the_difference_shows_what_went_and_what_came() -> None:
    assert difference("a\nb\nc\nd\ne", "a\nb\nX\nd\ne") == "@@ -2,3 +2,3 @@\n b\n-c\n+X\n d"
    assert difference("same", "same") == ""
    assert len(difference("", "\n".join("x" * 50 for _ in range(5000)))) < 9000
