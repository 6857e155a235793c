"""Where a feed names its hub, and how a push is signed."""

import hmac

import pytest
from multidict import CIMultiDict, CIMultiDictProxy

from floodmark.outbound.client import HttpAnswer
from floodmark.sources.feed.hubs import FeedHub, find_hub, is_signed
from floodmark.sources.web.feeds import parse_feed

URL = "https://example.org/feed.xml"
HUB, SELF = "https://hub.example/", "https://example.org/self"
ATOM = f"""<feed xmlns="http://www.w3.org/2005/Atom"><link href="/"/><link rel="self" href="{SELF}"/>
<link rel="hub" href="{HUB}"/><link rel="hub" href="https://second.example/"/><entry><id>1</id></entry></feed>"""
RSS = f"""<rss version="2.0" xmlns:a="http://www.w3.org/2005/Atom"><channel><title>News</title><link>/</link>
<a:link rel="hub" href="{HUB}"/><a:link rel="self" href="{SELF}"/><item><guid>1</guid></item></channel></rss>"""
JSON = (
    '{"version": "https://jsonfeed.org/version/1.1", "title": "News", "feed_url": "https://example.org/self", '
    '"hubs": [{"type": "rssCloud", "url": "https://other.example/"}, '
    '{"type": "WebSub", "url": "https://hub.example/"}], "items": []}'
)
PLAIN = '<feed xmlns="http://www.w3.org/2005/Atom"><title>News</title><entry><id>1</id></entry></feed>'


def hub_in(document: str, *links: str) -> FeedHub | None:
    headers = CIMultiDictProxy(CIMultiDict([("Link", link) for link in links]))
    answer = HttpAnswer(status=200, url=URL, headers=headers, body=document.encode())
    return find_hub(answer, parse_feed(answer.body, None, URL))


@pytest.mark.spec("B3")
@pytest.mark.parametrize("document", [ATOM, RSS, JSON], ids=["atom", "rss", "json"])
def test_a_document_names_hub_and_topic(document: str) -> None:
    assert hub_in(document) == FeedHub(HUB, SELF)


@pytest.mark.spec("B3")
@pytest.mark.parametrize(
    "links",
    [
        ['<https://h.example/?a=1,2>; rel="hub", </me#part>; rel=self'],
        ["</me>; rel=SELF", '<https://h.example/?a=1,2>; title="x"; REL="preconnect hub"'],
        ["<https://h.example/?a=1,2>;rel=hub,<https://late.example/>;rel=hub", "</me>;rel=self"],
    ],
)
def test_headers_come_first(links: list[str]) -> None:
    assert hub_in(ATOM, *links) == FeedHub("https://h.example/?a=1,2", "https://example.org/me")


def test_without_a_self_link_the_topic_is_the_url_of_the_feed() -> None:
    assert hub_in(PLAIN, "<https://h.example/>; rel=hub") == FeedHub("https://h.example/", URL)


@pytest.mark.parametrize(
    "link",
    [
        "",
        "<>; rel=hub",
        "<ftp://h.example/>; rel=hub",
        "<https://h.example/ x>; rel=hub",
        "<http://[>; rel=hub",
        "<javascript:x>; rel=hub",
        "<https://h.example/>",
        f"<https://h.example/{'x' * 3000}>; rel=hub",
        "nonsense",
    ],
)
def test_anything_else_is_no_hub(link: str) -> None:
    assert hub_in(PLAIN, link) is None


@pytest.mark.spec("B3", "G9")
def test_a_signature_is_checked_with_the_methods_of_the_recommendation() -> None:
    for method in ("sha1", "sha256", "sha384", "sha512"):
        digest = hmac.new(b"secret", b"body", method).hexdigest()
        assert is_signed(f"{method}={digest}", "secret", b"body")
        assert is_signed(f"{method}={digest.upper()}", "secret", b"body")
        assert not is_signed(f"{method}={digest}", "secret", b"other")
        assert not is_signed(f"{method}={digest[:-1]}", "secret", b"body")
    for odd in (
        None,
        "",
        "sha256",
        "sha256=",
        "md5=aa",
        "sha256=é",
        f"={hmac.new(b'secret', b'body', 'sha1').hexdigest()}",
    ):
        assert not is_signed(odd, "secret", b"body"), odd
