"""Whatever a URL, a redirect, a name or a browser tries: nothing private is ever dialled, unless it was named."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import timedelta
from ipaddress import IPv4Address, IPv6Address
from typing import Any

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from floodmark.errors import InvalidInput, Permanent, Transient, Unavailable
from floodmark.model.hosts import allowed_hosts
from floodmark.outbound.client import Http, HttpAnswer
from floodmark.outbound.connector import Names, RefusedSocketError, make_connector, requested_host
from floodmark.outbound.guard import AddressRefused, Guard, is_public
from floodmark.outbound.proxy import GuardedProxy
from floodmark.sync.request import Fetcher
from floodmark.testing.web import Site, redirect
from web_desk import working

pytest_plugins = ("backends",)
pytestmark = pytest.mark.spec("V12")

# Each is an attempt to reach the server at 127.0.0.1, or another place that is nobody's business.
TRICKS = {
    "the address itself": "http://127.0.0.1:{port}/",
    "another of its addresses": "http://127.255.0.1:{port}/",
    "decimal": "http://2130706433:{port}/",
    "octal": "http://0177.0.0.1:{port}/",
    "octal, in one": "http://017700000001:{port}/",
    "hexadecimal": "http://0x7f000001:{port}/",
    "hexadecimal, in four": "http://0x7f.0x0.0x0.0x1:{port}/",
    "two parts": "http://127.1:{port}/",
    "three parts": "http://127.0.1:{port}/",
    "nought": "http://0:{port}/",
    "unspecified": "http://0.0.0.0:{port}/",
    "a dot behind": "http://127.0.0.1.:{port}/",
    "dots behind": "http://127.0.0.1..:{port}/",
    "full-width digits": "http://１２７.０.０.１:{port}/",
    "ideographic dots": "http://127。0。0。1:{port}/",
    "circled digits": "http://①②⑦.⓪.⓪.①:{port}/",
    "percent signs": "http://%31%32%37.0.0.1:{port}/",
    "IPv6": "http://[::1]:{port}/",
    "IPv6, unspecified": "http://[::]:{port}/",
    "IPv4-mapped": "http://[::ffff:127.0.0.1]:{port}/",
    "IPv4-mapped, in hexadecimal": "http://[::ffff:7f00:1]:{port}/",
    "IPv4-compatible": "http://[::127.0.0.1]:{port}/",
    "IPv4-translated": "http://[::ffff:0:127.0.0.1]:{port}/",
    "6to4": "http://[2002:7f00:1::]:{port}/",
    "Teredo": "http://[2001:0:808:808::80ff:fffe]:{port}/",
    "NAT64": "http://[64:ff9b::127.0.0.1]:{port}/",
    "NAT64 of one's own": "http://[64:ff9b:1::7f00:1]:{port}/",
    "ISATAP": "http://[2600::5efe:127.0.0.1]:{port}/",
    "link-local with a zone": "http://[fe80::1%25lo]:{port}/",
    "localhost": "http://localhost:{port}/",
    "localhost in capitals, with a dot": "http://LOCALHOST.:{port}/",
    "under localhost": "http://good.localhost:{port}/",
    "localhost in circles": "http://ⓛⓞⓒⓐⓛⓗⓞⓢⓣ:{port}/",
    "a user": "http://good.test@127.0.0.1:{port}/",
    "a user and a password": "http://good.test:80@127.0.0.1:{port}/",
    "a backslash before the user": "http://good.test\\@127.0.0.1:{port}/",
    "a backslash behind": "http://127.0.0.1:{port}\\@good.test/",
    "backslashes": "http:\\\\127.0.0.1:{port}/",
    "a tab": "http://127.0.\t0.1:{port}/",
    "a new line": "http://good.test\n@127.0.0.1:{port}/",
    "a name that leads inside": "http://inside.test:{port}/",
    "a name that leads inside by IPv6": "http://inside6.test:{port}/",
    "a name that leads inside in disguise": "http://mapped.test:{port}/",
    "credentials of a cloud": "http://169.254.169.254/latest/meta-data/",
    "credentials of a cloud by name": "http://metadata.google.internal/computeMetadata/v1/",
    "credentials of a cloud by IPv6": "http://[fd00:ec2::254]/",
    "credentials of another cloud": "http://100.100.100.200/latest/meta-data/",
    "the host of a virtual machine": "http://168.63.129.16/",
    "a network at home": "http://192.168.0.1/",
    "a network of a company": "http://10.0.0.1/",
    "another one": "http://172.16.0.1/",
    "multicast": "http://224.0.0.1/",
    "broadcast": "http://255.255.255.255/",
    "a file": "file:///etc/passwd",
    "another protocol": "ftp://127.0.0.1:{port}/",
    "a very old protocol": "gopher://127.0.0.1:{port}/_GET",
    "no scheme": "//127.0.0.1:{port}/",
    "no host": "http:///127.0.0.1:{port}/",
    "port 0": "http://good.test:0/",
    "very long": "http://127.0.0.1:{port}/" + "x" * 10_000,
}
# What some servers of names say.
NAMES = {"inside.test": ["127.0.0.1"], "inside6.test": ["::1"], "mapped.test": ["::ffff:127.0.0.1"]}


async def lookup(name: str) -> Sequence[str]:
    if name not in NAMES:
        raise OSError(f"no such name: {name}")
    return NAMES[name]


@pytest.fixture
async def victim() -> AsyncIterator[Site]:
    """Nobody may ever ask it anything."""
    async with Site() as site:
        yield site
        assert site.seen == []


@pytest.fixture
async def outside() -> AsyncIterator[Site]:
    """Stands for the internet: its name is the only one allowed."""
    async with Site() as site:
        site.page("/", "Welcome")
        yield site


@pytest.fixture
async def http() -> AsyncIterator[Http]:
    async with Http(
        Guard(["good.test"]), user_agent="test", resolve={"good.test": ["127.0.0.1"]}, lookup=lookup
    ) as http:
        yield http


async def survivors(victim: Site, attempt: Callable[[str], Awaitable[object]], *errors: type[Exception]) -> list[str]:
    """The tricks that did not end in one of these errors."""
    left = []
    for name, url in TRICKS.items():
        try:
            got = await attempt(url.replace("{port}", str(victim.port)))
        except errors:
            continue
        left.append(f"{name}: {got}")
    return left


async def test_no_trick_gets_past_a_get(victim: Site, http: Http) -> None:
    assert await survivors(victim, http.get, AddressRefused) == []


async def test_no_trick_gets_past_a_post(victim: Site, http: Http) -> None:
    assert await survivors(victim, lambda url: http.post(url, body=b"{}"), AddressRefused) == []


@pytest.mark.spec("E6")
async def test_no_trick_gets_past_a_sync(victim: Site, http: Http) -> None:
    async def sync(url: str) -> object:
        return await Fetcher(http, url, timeout=timedelta(seconds=5)).fetch()

    assert await survivors(victim, sync, Unavailable) == []
    with pytest.raises(Unavailable, match="not a public address") as refused:
        await sync(victim.url)
    assert "HTTP_ALLOW_HOSTS=127.0.0.1" in refused.value.hint


@pytest.mark.thorough
async def test_no_trick_gets_past_a_crawl_or_a_feed(victim: Site, outside: Site, sqlite_copy: str) -> None:
    """Neither as the address of a job, nor where a site sends us for its rules, its lists, its feed or its pages."""
    names = ", ".join(f"{name}=[{address}]" for name, addresses in NAMES.items() for address in addresses)
    known: dict[str, Any] = {
        "http_allow_hosts": "good.test",
        "http_resolve": f"good.test=127.0.0.1, {names}",
        "web_robots_ttl": timedelta(),
    }
    async with working(outside, sqlite_copy, **known) as desk:

        async def ended(target: str, source: str = "web") -> str:
            told = await desk.run(await desk.job(target, source=source))
            if told.state == "dead" and told.attempt == 1:
                raise AddressRefused(str(told.error_message))
            return f"{told.state} {told.error_message} {told.result}"

        assert await survivors(victim, ended, InvalidInput, AddressRefused) == []
        outside.always("/feed", redirect(f"http://inside.test:{victim.port}/"))
        with pytest.raises(AddressRefused, match=r"inside\.test leads to 127\.0\.0\.1"):
            await ended(outside.at("good.test", "/feed"), "feed")
        outside.robots(f"Sitemap: {victim.url}/map.xml")
        outside.always("/away", redirect(victim.url))
        outside.page("/", "Welcome", links=["/away", victim.url, f"http://inside.test:{victim.port}/"])
        assert (await ended(outside.at("good.test", "/"))).startswith("done")
        outside.always("/robots.txt", redirect(victim.url))
        with pytest.raises(AddressRefused, match="is not a public address"):
            await ended(outside.at("good.test", "/again"))


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
async def test_no_trick_gets_past_by_a_redirect(victim: Site, outside: Site, http: Http, code: int) -> None:
    async def led(url: str) -> HttpAnswer | None:
        # A header cannot have these; servers that try send something else.
        outside.always("/go", redirect(url.replace("\n", "").replace("\t", ""), code))
        found = await http.get(outside.at("good.test", "/go"))
        # Some are, seen from the site, a path on it.
        return None if found.url.startswith(outside.at("good.test")) else found

    left = await survivors(victim, led, Permanent)
    assert [each for each in left if not each.endswith(": None")] == []
    assert {each.partition(":")[0] for each in left} <= {"backslashes", "no host"}


async def test_a_post_is_not_sent_on(victim: Site, outside: Site, http: Http) -> None:
    outside.always("/go", redirect(victim.url, 307))
    answer = await http.post(outside.at("good.test", "/go"), body=b"{}")
    assert (answer.status, answer.redirects) == (307, ())


async def test_no_trick_gets_past_the_proxy(victim: Site, http: Http) -> None:
    async with GuardedProxy.of(http) as proxy:

        async def says(text: str) -> bytes:
            reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            writer.write(text.encode())
            said = await reader.read()
            writer.close()
            await writer.wait_closed()
            return said

        answers: dict[str, bytes] = {}
        for name, url in TRICKS.items():
            where = url.replace("{port}", str(victim.port))
            answers[name] = await says(f"GET {where} HTTP/1.1\r\nHost: good.test\r\n\r\n")
            authority = where.partition("//")[2].partition("/")[0]
            answers[f"{name}, by a tunnel"] = await says(f"CONNECT {authority} HTTP/1.1\r\n\r\n")
        statuses = {name: answer[9:12] for name, answer in answers.items()}
        assert {name: status for name, status in statuses.items() if status not in (b"400", b"403", b"502")} == {}
        assert any("127.0.0.1 is not a public address" in each for each in proxy.refused)


async def test_dns_that_changes_its_mind_gains_nothing(victim: Site) -> None:
    """First an address that is allowed, where nobody listens; then the one inside."""
    said = iter([["127.0.0.2"], ["127.0.0.1"], ["127.0.0.2", "127.0.0.1"], []])

    async def fickle(_: str) -> Sequence[str]:
        return next(said)

    async with Http(Guard(["127.0.0.2"]), user_agent="test", lookup=fickle) as http:
        with pytest.raises(Transient, match="cannot connect"):
            await http.get("http://fickle.test:1/")
        # What was said before is remembered for a while, by port: this one is asked for anew.
        with pytest.raises(AddressRefused, match=r"fickle\.test leads to 127\.0\.0\.1"):
            await http.get(f"http://fickle.test:{victim.port}/")
        # Of several, only the one that is allowed is dialled.
        with pytest.raises(Transient, match="cannot connect"):
            await http.get(f"http://both.test:{victim.port}/")
        with pytest.raises(Transient, match="is unknown"):
            await http.get(f"http://none.test:{victim.port}/")


async def test_the_socket_is_guarded_whatever_the_names_said(victim: Site) -> None:
    names = Names(Guard(["0.0.0.0/0"]), {"inside.test": ["127.0.0.1"], "two.test": ["127.0.0.1", "127.0.0.2"]}, lookup)
    async with aiohttp.ClientSession(connector=make_connector(Guard(), names)) as session:
        for host in ("inside.test", "two.test", "127.0.0.1"):
            requested_host.set(host)
            with pytest.raises(aiohttp.ClientConnectorError) as refused:
                await session.get(f"http://{host}:{victim.port}/")
            if host != "two.test":
                assert isinstance(refused.value.os_error, RefusedSocketError)


@pytest.mark.parametrize(
    "allow", ["good.test", "GOOD.test.", "*.test", "127.0.0.1", "127.0.0.0/8", "x.test, 127.0.0.1"]
)
async def test_what_was_named_is_let_pass(outside: Site, allow: str) -> None:
    async with Http(
        Guard(allowed_hosts(allow)), user_agent="test", resolve={"good.test": ["127.0.0.1"]}, lookup=lookup
    ) as http:
        assert (await http.get(outside.at("good.test", "/"))).status == 200
        assert (await http.post(outside.at("good.test", "/"), body=b"hi")).status == 200
        assert outside.seen[-1].body == b"hi"
        async with (
            GuardedProxy.of(http) as proxy,
            aiohttp.ClientSession() as browser,
            browser.get(outside.at("good.test", "/"), proxy=proxy.url) as answer,
        ):
            assert (answer.status, answer.headers["Connection"]) == (200, "close")
            assert b"Welcome" in await answer.read()
        if allow.lower().startswith("good"):
            with pytest.raises(AddressRefused):
                await http.get(outside.at("inside.test", "/"))


@pytest.mark.parametrize("text", ["a b", "10.0.0.0/33", "http://x", "127.1", "x.test:80", "*.", "10.0.0.1/8"])
def test_what_cannot_be_read_is_told(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        allowed_hosts(text)


@given(st.ip_addresses(v=4))
def test_an_address_is_judged_alike_in_every_disguise(address: IPv4Address) -> None:
    """And never more kindly than by Python's own list."""
    public = is_public(str(address))
    assert not public or address.is_global
    number = int(address)
    for prefix in ("::ffff:0:0", "64:ff9b::"):
        assert is_public(str(IPv6Address(int(IPv6Address(prefix)) | number))) == public
    for disguise in (number, int(IPv6Address("2002::")) | number << 80, int(IPv6Address("64:ff9b:1::")) | number):
        assert not is_public(str(IPv6Address(disguise)))


@given(st.ip_addresses(v=6))
def test_no_ipv6_address_is_public_that_python_calls_private(address: IPv6Address) -> None:
    assert not is_public(str(address)) or address.is_global or address.ipv4_mapped is not None
