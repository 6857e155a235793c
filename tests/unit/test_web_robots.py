"""robots.txt: the cases that RFC 9309 and the open-source matcher of Google publish, and what we add to them."""

import time
from datetime import timedelta

import pytest

from floodmark.sources.web.robots import Robots

FOO = "user-agent: FooBot\n"
ONLY = f"{FOO}disallow: /\n"
GROUPS = """allow: /foo/bar/

user-agent: FooBot
disallow: /
allow: /x/
user-agent: BarBot
disallow: /
allow: /y/


allow: /w/
user-agent: BazBot

user-agent: FooBot
allow: /z/
disallow: /
"""
NAMES = {
    "upper": "USER-AGENT: FooBot\nALLOW: /x/\nDISALLOW: /\n",
    "camel": "uSeR-aGeNt: FooBot\nAlLoW: /x/\ndIsAlLoW: /\n",
}
SPACED = "User-Agent: *\nDisallow: /\nUser-Agent: Foo Bar\nAllow: /x/\nDisallow: /\n"
GLOBAL = "user-agent: *\nallow: /\nuser-agent: FooBot\ndisallow: /\n"
SPECIFIC = "user-agent: FooBot\nallow: /\nuser-agent: BarBot\ndisallow: /\nuser-agent: BazBot\ndisallow: /\n"
QUERY = "/foo/bar?qux=taz&baz=http://foo.bar?tar&par"
LONG = "/x/" + "a" * 16_650
RFC = """User-Agent: *
Disallow: *.gif$
Disallow: /example/
Allow: /publications/

User-Agent: foobot
Disallow:/
Allow:/example/page.html
Allow:/example/allowed.gif

User-Agent: barbot
User-Agent: bazbot
Disallow: /example/page.html

User-Agent: quxbot
"""

# robots.txt, our name, path, whether it is allowed.
PUBLISHED = [
    ("", "FooBot", "/", True),
    (ONLY, "FooBot", "", False),
    (ONLY, "FooBot", "/x/y", False),
    ("foo: FooBot\nbar: /\n", "FooBot", "/x/y", True),
    ("user-agent FooBot\ndisallow /\n", "FooBot", "/x/y", False),
    *((GROUPS, "FooBot", path, is_allowed) for path, is_allowed in [("/x/b", True), ("/z/d", True), ("/y/c", False)]),
    *((GROUPS, "BarBot", path, is_allowed) for path, is_allowed in [("/y/c", True), ("/w/a", True), ("/z/d", False)]),
    (GROUPS, "BazBot", "/z/d", True),
    *((GROUPS, name, "/foo/bar/", False) for name in ("FooBot", "BarBot", "BazBot")),
    *((text, "FooBot", "/x/y", True) for text in NAMES.values()),
    *((text, "FooBot", "/a/b", False) for text in NAMES.values()),
    ("User-Agent: FoO bAr\nAllow: /x/\nDisallow: /\n", "foo", "/x/y", True),
    ("User-Agent: FOO BAR\nAllow: /x/\nDisallow: /\n", "Foo", "/a/b", False),
    (SPACED, "Foo", "/x/y", True),
    (SPACED, "Foo Bar", "/x/y", False),
    (GLOBAL, "FooBot", "/x/y", False),
    (GLOBAL, "BarBot", "/x/y", True),
    (SPECIFIC, "QuxBot", "/x/y", True),
    (f"{FOO}disallow: /x/\n", "FooBot", "/x/y", False),
    (f"{FOO}disallow: /X/\n", "FooBot", "/x/y", True),
    (f"{FOO}disallow: /x/page.html\nallow: /x/\n", "FooBot", "/x/page.html", False),
    (f"{FOO}allow: /x/page.html\ndisallow: /x/\n", "FooBot", "/x/page.html", True),
    (f"{FOO}allow: /x/page.html\ndisallow: /x/\n", "FooBot", "/x/", False),
    (f"{FOO}disallow: \nallow: \n", "FooBot", "/x/page.html", True),
    (f"{FOO}disallow: /\nallow: /\n", "FooBot", "/x/page.html", True),
    (f"{FOO}disallow: /x\nallow: /x/\n", "FooBot", "/x", False),
    (f"{FOO}disallow: /x\nallow: /x/\n", "FooBot", "/x/", True),
    (f"{FOO}allow: /page\ndisallow: /*.html\n", "FooBot", "/page.html", False),
    (f"{FOO}allow: /page\ndisallow: /*.html\n", "FooBot", "/page", True),
    (f"{FOO}allow: /x/page.\ndisallow: /*.html\n", "FooBot", "/x/page.html", True),
    (f"{FOO}allow: /x/page.\ndisallow: /*.html\n", "FooBot", "/x/y.html", False),
    ("User-agent: *\nDisallow: /x/\nUser-agent: FooBot\nDisallow: /y/\n", "FooBot", "/x/page", True),
    ("User-agent: *\nDisallow: /x/\nUser-agent: FooBot\nDisallow: /y/\n", "FooBot", "/y/page", False),
    (f"{ONLY}Allow: {QUERY}\n", "FooBot", QUERY, True),
    (f"{ONLY}Allow: /foo/bar/ツ\n", "FooBot", "/foo/bar/%E3%83%84", True),
    (f"{ONLY}Allow: /foo/bar/ツ\n", "FooBot", "/foo/bar/ツ", False),
    (f"{ONLY}Allow: /foo/bar/%E3%83%84\n", "FooBot", "/foo/bar/%E3%83%84", True),
    (f"{ONLY}Allow: /foo/bar/%62%61%7A\n", "FooBot", "/foo/bar/baz", False),
    (f"{ONLY}Allow: /foo/bar/%62%61%7A\n", "FooBot", "/foo/bar/%62%61%7A", True),
    (f"{FOO}Disallow: /foo/bar/quz\nAllow: /foo/*/qux\n", "FooBot", "/foo/bar/quz", False),
    (f"{FOO}Disallow: /foo/bar/quz\nAllow: /foo/*/qux\n", "FooBot", "/foo//quz", True),
    (f"{FOO}Disallow: /foo/bar$\nAllow: /foo/bar/qux\n", "FooBot", "/foo/bar", False),
    (f"{FOO}Disallow: /foo/bar$\nAllow: /foo/bar/qux\n", "FooBot", "/foo/bar/", True),
    (f"{FOO}# Disallow: /\nDisallow: /foo/quz#qux\nAllow: /\n", "FooBot", "/foo/bar", True),
    (f"{FOO}# Disallow: /\nDisallow: /foo/quz#qux\nAllow: /\n", "FooBot", "/foo/quz", False),
    ("User-Agent: *\nAllow: /a/index.html\nDisallow: /\n", "foobot", "/a/", True),
    ("User-Agent: *\nAllow: /a/index.html\nDisallow: /\n", "foobot", "/a/index.htm", False),
    ("User-Agent: *\nAllow: /a/index.html\nDisallow: /\n", "foobot", "/a/index.html", True),
    (f"{FOO}disallow: {LONG}/qux\n", "FooBot", "/fux", True),
    (f"{FOO}disallow: {LONG}/qux\n", "FooBot", f"{LONG}/fux", False),
    (f"{ONLY}allow: {LONG}/qux\n", "FooBot", f"{LONG}/qux", True),
    *((f"{ONLY}allow: /fish\n", "FooBot", path, True) for path in ("/fish", "/fish.html", "/fish/a", "/fishes?id=1")),
    *((f"{ONLY}allow: /fish\n", "FooBot", path, False) for path in ("/bar", "/Fish.asp", "/catfish", "/?id=fish")),
    *((f"{ONLY}allow: /fish*\n", "FooBot", path, True) for path in ("/fish", "/fish.html", "/fish/a", "/fishes?id=1")),
    *((f"{ONLY}allow: /fish*\n", "FooBot", path, False) for path in ("/bar", "/Fish.bar", "/catfish", "/?id=fish")),
    *((f"{ONLY}allow: /fish/\n", "FooBot", path, True) for path in ("/fish/", "/fish/salmon", "/fish/?salmon")),
    *((f"{ONLY}allow: /fish/\n", "FooBot", path, False) for path in ("/fish", "/fish.html", "/Fish/Salmon.html")),
    *((f"{ONLY}allow: /*.php\n", "FooBot", path, True) for path in ("/a/b.php?c", "//a.php.b", "/index?f=a.php/")),
    *((f"{ONLY}allow: /*.php\n", "FooBot", path, False) for path in ("/php/", "/index?php", "/windows.PHP")),
    *((f"{ONLY}allow: /*.php$\n", "FooBot", path, True) for path in ("/filename.php", "/folder/filename.php")),
    *((f"{ONLY}allow: /*.php$\n", "FooBot", path, False) for path in ("/a.php?b", "/a.php/", "/a.php5", "/a?php")),
    *((f"{ONLY}allow: /fish*.php\n", "FooBot", path, True) for path in ("/fish.php", "/fishes/catfish.php?a")),
    (f"{ONLY}allow: /fish*.php\n", "FooBot", "/Fish.PHP", False),
    (f"{FOO}allow: /p\ndisallow: /\n", "FooBot", "/page", True),
    (f"{FOO}allow: /folder\ndisallow: /folder\n", "FooBot", "/folder/page", True),
    (f"{FOO}allow: /page\ndisallow: /*.htm\n", "FooBot", "/page.htm", False),
    (f"{FOO}allow: /$\ndisallow: /\n", "FooBot", "/", True),
    (f"{FOO}allow: /$\ndisallow: /\n", "FooBot", "/page.html", False),
    # Other lines do not part the names of a group.
    ("user-agent: a\nsitemap: https://foo.bar/map.xml\n\nuser-agent: b\ndisallow: /\n", "a", "/", False),
    # Ends of lines, and a mark at the beginning.
    ("User-Agent: foo\rDisallow: /a\rAllow: /\r", "foo", "/a", False),
    ("User-Agent: foo\r\nDisallow: /a\r\n", "foo", "/a", False),
    ("\ufeffUser-Agent: foo\nDisallow: /", "foo", "/a", False),
    # The example of RFC 9309, section 5.1, and its longest match, section 5.2.
    (RFC, "foobot", "/example/page.html", True),
    (RFC, "foobot", "/example/other.html", False),
    (RFC, "barbot", "/example/page.html", False),
    (RFC, "bazbot", "/example/allowed.gif", True),
    (RFC, "quxbot", "/example/page.html", True),
    (RFC, "other", "/example/page.html", False),
    (RFC, "other", "/publications/a.gif", True),
    (RFC, "other", "/pictures/a.gif", False),
    (f"{FOO}Allow: /example/page/\nDisallow: /example/page/disallowed.gif\n", "foobot", "/example/page/", True),
    (f"{FOO}Allow: /example/page/\nDisallow: /example/page/disallowed.gif\n", "foobot", "/example/page/disallowed.gif",
     False),
    # Section 2.2.2: escapes are compared in one spelling.
    (f"{FOO}Disallow: /foo/bar/%62%61%7A\n", "FooBot", "/foo/bar/baz", False),
    (f"{FOO}Disallow: /foo/bar/baz\n", "FooBot", "/foo/bar/%62az", False),
    (f"{FOO}Disallow: /foo/bar/%e3%83%84\n", "FooBot", "/foo/bar/ツ", False),
]  # fmt: skip


@pytest.mark.spec("V12")
def test_the_published_cases_are_decided_as_published() -> None:
    wrong = [
        (text[:200], name, path[:80], is_allowed)
        for text, name, path, is_allowed in PUBLISHED
        if Robots(text, name).allows(f"http://foo.bar{path}") is not is_allowed
    ]
    assert wrong == []


@pytest.mark.spec("V12")
@pytest.mark.parametrize(
    ("text", "agent", "path"),
    [
        ("User-agent: floodmark/0.1.0\nDisallow: /", "floodmark/0.2.0", "/"),
        ("User-agent: Floodmark (a crawler)\nDisallow: /", "floodmark/0.2.0", "/"),
        ("User-agent: *\nDissallow: /private", "floodmark", "/private"),
        ("User-agent: *\nDisallow: private/", "floodmark", "/private/a"),
        ("User-agent: *\nDisallow: https://foo.bar/private/", "floodmark", "/private/a"),
        # A name that no line of robots.txt can spell: neither group may forbid it.
        ("User-agent: bot\nAllow: /\nUser-agent: *\nDisallow: /a", "bot2/1.0", "/a"),
    ],
)
def test_a_doubt_is_decided_against_crawling(text: str, agent: str, path: str) -> None:
    assert not Robots(text, agent).allows(f"http://foo.bar{path}")


def test_many_rules_and_stars_cost_little() -> None:
    many = Robots("User-agent: *\n" + "\n".join(f"Disallow: /{n}/a" for n in range(40_000)), "floodmark")
    stars = Robots(f"User-agent: *\nDisallow: /{'*a' * 2000}b", "floodmark")
    began = time.process_time()
    assert not many.allows("http://foo.bar/39999/a")
    assert all(many.allows(f"http://foo.bar/x/{n}") for n in range(1000))
    assert stars.allows(f"http://foo.bar/{'a' * 4000}")
    assert time.process_time() - began < 2


def test_pauses_are_those_of_our_group() -> None:
    text = "User-agent: *\nCrawl-delay: 9\nDisallow: /a\nUser-agent: floodmark\nRequest-rate: 1/2m\nDisallow: /b"

    assert Robots(text, "floodmark/1.0").delay == timedelta(minutes=2)
    assert Robots(text, "another").delay == timedelta(seconds=9)
    assert Robots("User-agent: *\nCrawl-delay: nan\nCrawl-delay: -3\nRequest-rate: 0/0", "x").delay == timedelta()
