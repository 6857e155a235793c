"""Aliases of hosts: asked of a real DNS server on loopback, and answers that are malformed."""

import struct
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cookies.dns import serving_names
from floodmark.model.hosts import DnsServer, parse_dns_server
from floodmark.outbound.cname import DnsFailed, decode_aliases, encode_question, find_aliases, system_server
from floodmark.sources.cookies.aliases import find_tracker, resolve_hosts

pytestmark = pytest.mark.spec("B14")

ALIASES = {
    "metrics.shop.test": "shop.sc.omtrdc.net",
    "shop.sc.omtrdc.net": "edge.example.net",
    "static.shop.test": "d1.cloudfront.net",
    "api.shop.test": "backend.shop.test",
}


async def test_aliases_of_other_parties_are_found() -> None:
    async with serving_names(ALIASES) as (server, port):
        dns = DnsServer("127.0.0.1", port)
        found, notes = await resolve_hosts({"a.shop.test", *ALIASES} - {"shop.sc.omtrdc.net"}, "shop.test", dns)
        assert [(alias.host, alias.site, alias.vendor, alias.purpose) for alias in found] == [
            ("metrics.shop.test", "omtrdc.net", "Adobe Analytics", "statistics"),
            ("static.shop.test", "d1.cloudfront.net", None, "unknown"),
        ]
        assert found[0].chain == ("shop.sc.omtrdc.net", "edge.example.net")
        assert notes == []
        assert sorted(server.asked) == ["a.shop.test", "api.shop.test", "metrics.shop.test", "static.shop.test"]
        server.code = 5
        found, notes = await resolve_hosts({"a.shop.test"}, "shop.test", dns)
        assert (found, notes) == (
            [],
            ["the aliases of 1 hosts of the site could not be looked up: the DNS server refuses the question (code 5)"],
        )
    with pytest.raises(DnsFailed, match="does not answer"):
        await find_aliases("a.shop.test", dns, seconds=5)


@given(st.binary(max_size=200), st.integers(0, 20), st.integers(0, 3))
def test_no_answer_of_a_server_breaks_a_scan(content: bytes, records: int, questions: int) -> None:
    for answer in (content, struct.pack("!HHHHHH", 1, 0x8180, questions, records, 0, 0) + content):
        with suppress(DnsFailed):
            assert all(isinstance(name, str) for name in decode_aliases(answer, "a.test"))


def test_an_alias_in_a_circle_ends() -> None:
    head = struct.pack("!HHHHHH", 1, 0x8180, 0, 2, 0, 0)
    names = (b"\1a\4test\0", b"\1b\4test\0")
    records = [owner + struct.pack("!HHIH", 5, 1, 60, len(target)) + target for owner, target in (names, names[::-1])]
    assert decode_aliases(head + b"".join(records), "a.test") == ["b.test", "a.test"]


def test_servers_and_names() -> None:
    assert parse_dns_server("10.0.0.53") == DnsServer("10.0.0.53", 53)
    assert parse_dns_server("[::1]:5353") == DnsServer("::1", 5353)
    assert parse_dns_server("::1") == DnsServer("::1", 53)
    for wrong in ("", "dns.test", "10.0.0.53:0", "10.0.0.53:99999", "[::1"):
        with pytest.raises(ValueError, match=r"address|port"):
            parse_dns_server(wrong)
    for wrong in ("a..b", "x" * 64, "ü.test", "a b.test"):
        with pytest.raises(DnsFailed):
            encode_question(wrong, 1)
    assert find_tracker("a.b.EULERIAN.net") == ("Eulerian", "marketing")
    assert find_tracker("noteulerian.net") is None


def test_the_server_of_the_system(tmp_path: Path) -> None:
    file = tmp_path / "resolv.conf"
    assert system_server(file) is None
    file.write_text("# a\nsearch test\nnameserver 10.1.2.3\nnameserver 10.1.2.4\n", encoding="utf-8")
    assert system_server(file) == DnsServer("10.1.2.3")
