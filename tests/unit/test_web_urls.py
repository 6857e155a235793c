"""Addresses in their one form, and which of them belong to a site."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from floodmark.errors import InvalidInput
from floodmark.sources.web.urls import (
    MOST_CHARACTERS,
    Scope,
    compile_glob,
    is_same_page,
    normalize_url,
    parse_start_url,
)

BASE = "https://example.com/news/today"

_PIECES = st.one_of(
    st.sampled_from("/.aBü%?&=#:;@[]+\\ \t"),
    st.sampled_from(["//", "..", "%7e", "%2F", "%zz", "%2e%2e", "q=1", ";jsessionid=1", "utm_source=x", "https://"]),
    st.sampled_from(["example.com", "EXAMPLE.com:443", "http://"]),
)


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("HTTPS://Example.COM:443/a", "https://example.com/a"),
        ("http://example.com", "http://example.com/"),
        ("http://example.com:8080/", "http://example.com:8080/"),
        ("/a/./b/../c", "https://example.com/a/c"),
        ("../up", "https://example.com/up"),
        ("tomorrow?day=1#top", "https://example.com/news/tomorrow?day=1"),
        ("//other.org/x", "https://other.org/x"),
        ("?page=2", "https://example.com/news/today?page=2"),
        ("/caf%c3%a9/%7Euser", "https://example.com/caf%C3%A9/~user"),
        ("/café", "https://example.com/caf%C3%A9"),
        ("/a b", "https://example.com/a%20b"),
        ("/100%", "https://example.com/100%25"),
        ("/a?utm_source=x&id=7&fbclid=y", "https://example.com/a?id=7"),
        ("/a?", "https://example.com/a"),
        ("/a;jsessionid=AB12?x=1", "https://example.com/a?x=1"),
        (" \n/a\t/b ", "https://example.com/a/b"),
        ("https://bücher.example/", "https://xn--bcher-kva.example/"),
        ("https://example.com./a", "https://example.com/a"),
        ("https://[::1]/", "https://[::1]/"),
        ("/%2e%2e/secret", "https://example.com/secret"),
    ],
)
def test_an_address_has_one_form(said: str, meant: str) -> None:
    assert normalize_url(said, BASE) == meant


@pytest.mark.parametrize(
    "said",
    [
        "",
        "mailto:someone@example.com",
        "javascript:void(0)",
        "tel:+49301234",
        "data:text/html,x",
        "ftp://example.com/a",
        "https://user:secret@example.com/",
        "https://[broken/",
        "https://example.com:99999/",
        "/" + "a" * MOST_CHARACTERS,
    ],
)
def test_what_cannot_be_a_page_has_no_address(said: str) -> None:
    assert normalize_url(said, BASE) is None


@given(st.lists(_PIECES, max_size=12).map("".join))
@example("https://example.com//a/..//./b")
def test_the_one_form_of_an_address_is_its_own(said: str) -> None:
    once = normalize_url(said, BASE)
    if once is not None:
        assert normalize_url(once) == once


@given(st.text(alphabet="/abzAZ09-_~.?=&%utm_:", max_size=30))
@example("/a?utm_source=x")
@example("/a.b/c.d?x=1&y=")
@example("https://example.com/a/b")
@example("https://example.com//a")
@example("https://example.com")
@example("https://example.com.evil.org/a")
@example("https://example.com:8443/a")
@example("https://example.com/a?utm_source=x")
@example("http://[broken")
def test_links_are_the_same_by_the_short_way(href: str) -> None:
    scope, meant = Scope("https://example.com/"), normalize_url(href, BASE)
    assert scope.link(href, BASE) == meant
    assert scope.links([href], BASE) == ({} if meant is None else {meant: scope.contains(meant)})


def test_a_site_is_one_host_with_or_without_www() -> None:
    scope = Scope("https://example.com/news")

    assert scope.contains("https://example.com/other")
    assert scope.contains("https://www.example.com/")
    assert not scope.contains("https://shop.example.com/")
    assert not scope.contains("https://example.com.evil.org/")
    assert not scope.contains("https://example.com:8443/")
    assert scope.link("http://example.com/old", BASE) == "https://example.com/old"


@pytest.mark.parametrize(
    ("pattern", "path", "holds"),
    [
        ("/news/**", "/news/2026/a", True),
        ("/news/*", "/news/2026/a", False),
        ("/news/*", "/news/a", True),
        ("*.html", "/a.html", False),
        ("**.html", "/x/a.html", True),
        ("/a?c", "/abc", True),
        ("/search**", "/search?q=1", True),
        ("/a+b", "/aab", False),
    ],
)
def test_patterns_are_globs(pattern: str, path: str, holds: bool) -> None:
    assert (compile_glob(pattern).fullmatch(path) is not None) == holds


def test_what_is_excluded_is_so_even_if_it_is_included() -> None:
    scope = Scope("https://example.com/", include=["/news/**"], exclude=["**/print"])

    assert scope.contains("https://example.com/news/a")
    assert not scope.contains("https://example.com/news/print")
    assert not scope.contains("https://example.com/about")


def test_people_may_leave_the_scheme_out() -> None:
    assert parse_start_url("Example.com/News") == "https://example.com/News"
    with pytest.raises(InvalidInput, match="is not the URL"):
        parse_start_url("not a page")
    with pytest.raises(InvalidInput, match="matches no path"):
        compile_glob("news")


def test_a_page_is_the_same_with_a_slash_and_without() -> None:
    assert is_same_page("http://www.example.com/a/", "https://example.com/a")
    assert not is_same_page("https://example.com/a", "https://example.com/b")
