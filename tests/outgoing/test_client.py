"""One request against servers that answer well, badly, too much, too slowly and not at all, over real sockets."""

import asyncio
import gzip
import ssl
import zlib
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from msgspec.structs import replace
from yarl import URL

from certificates import self_signed
from floodmark.errors import Permanent, SourceError, Transient
from floodmark.outbound.client import Http, ResponseLimits, TooLarge, TooSlow
from floodmark.outbound.decompression import open_body
from floodmark.outbound.guard import AddressRefused, Guard
from floodmark.outbound.proxy import GuardedProxy
from floodmark.testing.eventually import eventually
from floodmark.testing.web import (
    Behaviour,
    Site,
    bomb,
    cut,
    drip,
    endless,
    header_flood,
    no_answer,
    raw,
    redirect,
    reset,
    wrong_length,
)

pytestmark = pytest.mark.spec("V12")

SOON = timedelta(seconds=0.2)
LIMITS = ResponseLimits(body_bytes=200_000, unpacked_bytes=400_000, total=timedelta(seconds=20))
NO_HEAD, NO_BODY = "took longer than", "too slowly"
# Impatient with the part that never comes, and with nothing else: the head of a slow body may itself take a while.
HURRY = {NO_HEAD: replace(LIMITS, head=SOON), NO_BODY: replace(LIMITS, grace=SOON)}


def packed_as(how: str, body: bytes = b"ok") -> Behaviour:
    return raw(f"HTTP/1.1 200 OK\r\nContent-Encoding: {how}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with Site() as site:
        site.page("/", "Welcome", has_etag=True)
        yield site


@pytest.fixture
async def http() -> AsyncIterator[Http]:
    names = {"a.test": ["127.0.0.1"], "b.test": ["127.0.0.1"]}
    async with Http(Guard(["*.test"]), user_agent="test/1", limits=LIMITS, resolve=names) as http:
        yield http


WRONG: dict[str, tuple[Behaviour, type[SourceError], str]] = {
    "no answer": (no_answer(), TooSlow, NO_HEAD),
    "a slow drip": (drip(), TooSlow, NO_BODY),
    "a drip of headers": (raw(b"HTTP/1.1 200 OK\r\nX-", keep_open=True), TooSlow, NO_HEAD),
    "an endless body": (endless(), TooLarge, "larger than 195 KB"),
    "a body that says how large it is": (
        raw(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n"),
        TooLarge,
        "larger than 195 KB",
    ),
    "a gzip bomb": (bomb("gzip", 8), TooLarge, "larger than 391 KB when decompressed"),
    "a deflate bomb": (bomb("deflate", 8), TooLarge, "larger than 391 KB when decompressed"),
    "a bomb in a bomb": (bomb("nested", 8), Permanent, "Content-Encoding 'gzip, gzip'"),
    "many small bombs": (
        packed_as("gzip", gzip.compress(b"", mtime=0) * 5000),
        Permanent,
        "more than 100 gzip members",
    ),
    "another packing": (packed_as("br"), Permanent, "Content-Encoding 'br'"),
    "not packed though it says so": (packed_as("gzip"), Permanent, "not validly compressed"),
    "half of a gzip": (packed_as("gzip", gzip.compress(b"x" * 999)[:-9]), Transient, "is incomplete"),
    "large headers": (header_flood(100, 1000), TooLarge, "headers of a.test are larger than 32 KB"),
    "a very large header": (header_flood(1, 100_000), TooLarge, "headers of a.test are too large"),
    "too many headers": (header_flood(5000, 1), Permanent, "Too many headers"),
    "less than announced": (wrong_length(+9), Transient, "was lost"),
    "more than announced": (wrong_length(-9), Permanent, "not valid HTTP"),
    "two lengths": (
        raw(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 20\r\n\r\nok"),
        Permanent,
        "not valid HTTP",
    ),
    "a cut": (cut(), Transient, "was lost"),
    "a reset": (reset(), Transient, "was lost"),
    "an end without a word": (raw(b""), Transient, "was lost"),
    "another protocol": (raw(b"SSH-2.0-OpenSSH_9\r\n"), Permanent, "not valid HTTP"),
    "redirects without an end": (redirect("/x?{n}"), Permanent, "redirects more than 5 times"),
    "a circle": (redirect("/x"), Permanent, "redirects in a loop"),
    "a redirect to a file": (redirect("file:///etc/passwd"), AddressRefused, "its scheme is file"),
    "a redirect to another protocol": (redirect("ftp://a.test/"), AddressRefused, "its scheme is ftp"),
    "a redirect to nonsense": (redirect("http://[::/"), Permanent, "an invalid URL"),
    "a redirect to a user": (redirect("http://me:word@b.test/"), AddressRefused, "it has a user name"),
}


@pytest.mark.parametrize("what", WRONG)
async def test_whatever_a_server_does_ends_soon_and_is_told(site: Site, http: Http, what: str) -> None:
    behaviour, kind, why = WRONG[what]
    site.always("/x", behaviour)
    site.always("/x?*", behaviour)
    with pytest.raises(SourceError) as told:
        await http.get(site.at("a.test", "/x"), limits=HURRY.get(why, LIMITS))
    assert type(told.value) is kind
    assert why in str(told.value)
    assert str(told.value).isprintable()
    assert len(str(told.value)) < 400
    # Neither this connection nor any other is the worse for it.
    assert (await http.get(site.at("a.test", "/"))).status == 200


async def test_a_slow_answer_is_ended_by_the_time_for_all_of_it(site: Site, http: Http) -> None:
    """Even if it keeps the pace, and however many redirects it is made of."""
    site.always("/drip", drip(part=b"x" * 1000))
    site.always("/go", redirect("/drip"))
    with pytest.raises(TooSlow):
        await http.get(site.at("a.test", "/go"), limits=replace(LIMITS, total=SOON))


async def test_a_request_that_is_cancelled_leaves_nothing_open(site: Site, http: Http) -> None:
    site.always("/x", no_answer())
    asking = asyncio.create_task(http.get(site.at("a.test", "/x")))
    await eventually(lambda: site.seen)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert (await http.get(site.at("a.test", "/"))).status == 200


async def test_nobody_there_and_a_bad_port_are_told(site: Site, http: Http) -> None:
    with pytest.raises(Transient, match=r"cannot connect to a\.test:1 \(Connection refused\)"):
        await http.get("http://a.test:1/")
    with pytest.raises(AddressRefused, match="Port out of range"):
        await http.get("http://a.test:99999/")
    with pytest.raises(Permanent, match="cannot be requested"):
        await http.get(site.at("a.test", "/"), headers={"X": "a\r\nHost: b.test"})
    assert site.seen == []


async def test_tls_is_verified(http: Http, site: Site) -> None:
    with pytest.raises(Transient, match="the TLS handshake with a") as told:
        await http.get(site.at("a.test", "/").replace("http:", "https:"))
    assert told.value.hint == f"if the server has no TLS, write {site.at('a.test', '/')}"


async def test_an_answer_tells_what_came(site: Site, http: Http) -> None:
    site.page("/packed", "long " * 500, encoding="gzip", content_type='text/HTML; charset="ISO-8859-1"')
    answer = await http.get(site.at("a.test", "/packed#part"), headers={"Accept-Language": "de"})
    assert (answer.status, answer.url, answer.redirects) == (200, site.at("a.test", "/packed"), ())
    assert (answer.media_type, answer.charset, b"long long" in answer.body) == ("text/html", "iso-8859-1", True)
    assert 0 < answer.wire_bytes < len(answer.body)
    assert answer.seconds > 0
    assert answer.headers["content-ENCODING"] == "gzip"
    [seen] = site.seen
    assert (seen.headers["User-Agent"], seen.headers["Accept-Language"]) == ("test/1", "de")

    known = (await http.get(site.at("a.test", "/"))).headers["ETag"]
    again = await http.get(site.at("a.test", "/"), headers={"If-None-Match": known})
    assert (again.status, again.body) == (304, b"")
    site.put("/plain", b"x", content_type=None)
    plain = await http.get(site.at("a.test", "/plain"))
    assert (plain.media_type, plain.charset) == ("", None)


async def test_redirects_are_followed_and_told(site: Site, http: Http) -> None:
    site.always("/1", redirect("/2", 301))
    site.always("/2", redirect(site.at("b.test", "/3"), 308))
    site.always("/4", redirect("//b.test:{port}/".replace("{port}", str(site.port)), 302))
    site.page("/3", "there")
    secret = {"Authorization": "Basic x", "Cookie": "a=b", "X-Mine": "1"}
    answer = await http.get(site.at("a.test", "/1"), headers=secret)
    assert answer.url == site.at("b.test", "/3")
    assert answer.redirects == (site.at("a.test", "/1"), site.at("a.test", "/2"))
    assert answer.is_permanent_redirect
    # Who we are is said to whom it was meant for.
    assert [("Authorization" in seen.headers, "Cookie" in seen.headers) for seen in site.seen] == [
        (True, True),
        (True, True),
        (False, False),
    ]
    assert site.seen[-1].headers["X-Mine"] == "1"
    assert not (await http.get(site.at("a.test", "/4"))).is_permanent_redirect

    led = await http.get(site.at("a.test", "/1"), follow=False)
    assert (led.status, led.url, led.headers["Location"]) == (301, site.at("a.test", "/1"), "/2")

    def stay(where: URL, to: URL) -> None:
        if where.host != to.host:
            raise Permanent("it leaves the site")

    with pytest.raises(Permanent, match="it leaves the site"):
        await http.get(site.at("a.test", "/1"), follow=stay)


async def test_nothing_is_kept_from_one_request_to_the_next(
    site: Site, http: Http, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But the connection. No cookies, and no proxy from the environment."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    peers = set()

    async def tell(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        peers.add(request.transport.get_extra_info("peername"))
        return web.Response(headers={"Set-Cookie": "a=1; Path=/"})

    site.always("/x", tell)
    for _ in range(3):
        assert (await http.get(site.at("a.test", "/x"))).status == 200
    assert len(peers) == 1
    assert all("Cookie" not in seen.headers for seen in site.seen)


@pytest.mark.parametrize("how", ["gzip", "x-gzip", "deflate", "raw deflate", "two pieces", "with something behind"])
def test_bodies_are_unpacked_in_pieces_of_any_size(how: str) -> None:
    # Some that packs badly, and more that packs very well than is unpacked in one step.
    text = b"".join(b"%d," % number for number in range(3_000)) + bytes(3 << 20)
    raw_deflate = zlib.compressobj(wbits=-15)
    packed, encoding = {
        "gzip": (gzip.compress(text), "gzip"),
        "x-gzip": (gzip.compress(text), "x-gzip"),
        "deflate": (zlib.compress(text), "deflate"),
        "raw deflate": (raw_deflate.compress(text) + raw_deflate.flush(), "deflate"),
        "two pieces": (gzip.compress(text[:1000]) + gzip.compress(text[1000:]), "gzip"),
        "with something behind": (gzip.compress(text) + b"\r\n", "gzip"),
    }[how]
    for size in (1, 7, len(packed)):
        body = open_body(encoding, len(text))
        for at in range(0, len(packed), size):
            body.add(packed[at : at + size])
            while body.has_more:
                body.step()
        assert body.is_complete
        assert not body.is_too_large
        assert body.content == text


async def test_a_certificate_that_nobody_vouches_for_is_not_good(http: Http, tmp_path: Path) -> None:
    async with Site(tls=self_signed(tmp_path, "a.test")[0]) as site:
        site.page("/", "Welcome")
        with pytest.raises(Permanent, match=r"the certificate of a\.test is not valid: self-signed"):
            await http.get(site.at("a.test", "/"))
        # A browser decides for itself: the proxy only carries what it says.
        trusting = ssl.create_default_context()
        trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
        async with (
            GuardedProxy.of(http) as proxy,
            aiohttp.ClientSession() as browser,
            browser.get(site.at("a.test", "/"), proxy=proxy.url, ssl=trusting) as answer,
        ):
            assert b"Welcome" in await answer.read()
    [seen] = site.seen
    assert seen.host == "a.test"
