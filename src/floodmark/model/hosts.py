"""Hosts in settings: HTTP_ALLOW_HOSTS, HTTP_RESOLVE and COOKIES_DNS_SERVER."""

import re
from collections.abc import Mapping
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

from msgspec import Struct

Network = IPv4Network | IPv6Network

_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME = re.compile(rf"(?:\*\.)?{_LABEL}(?:\.{_LABEL})*")
_NUMBER = re.compile(r"\d+|0x[0-9a-f]*")


class AllowedHosts(Struct, frozen=True, kw_only=True):
    """Private hosts that may be called: every address of these names, and these addresses under any name."""

    names: frozenset[str] = frozenset()
    endings: tuple[str, ...] = ()
    networks: tuple[Network, ...] = ()

    def has_name(self, host: str) -> bool:
        """Return whether the list has this name; `host` is normalised by `plain_name`."""
        return host in self.names or any(host.endswith(ending) for ending in self.endings)


def allowed_hosts(text: str | None) -> AllowedHosts:
    """Parse `intranet.example, *.test, 10.1.0.0/16, 127.0.0.1`; ValueError names the wrong part."""
    names: set[str] = set()
    endings: list[str] = []
    networks: list[Network] = []
    for part in _parts(text):
        if (network := _network(part)) is not None:
            networks.append(network)
        elif not is_name(part):
            raise ValueError(f"{part!r} is neither a host name nor an address")
        elif part.startswith("*."):
            endings.append(plain_name(part)[1:])
        else:
            names.add(plain_name(part))
    return AllowedHosts(names=frozenset(names), endings=tuple(endings), networks=tuple(networks))


def resolved_hosts(text: str | None) -> Mapping[str, tuple[str, ...]]:
    """Parse `shop.test=127.0.0.1, api.test=[::1]`: addresses of names that DNS is not asked for."""
    found: dict[str, tuple[str, ...]] = {}
    for part in _parts(text):
        name, _, address = (piece.strip() for piece in part.partition("="))
        if not is_name(name) or name.startswith("*"):
            raise ValueError(f"{name!r} is not a host name")
        where = str(ip_address(address.strip("[]")))
        found[plain_name(name)] = (*found.get(plain_name(name), ()), where)
    return found


class DnsServer(Struct, frozen=True):
    """The address of a DNS server."""

    host: str
    port: int = 53


def parse_dns_server(text: str) -> DnsServer:
    """Return the server that `10.0.0.53`, `10.0.0.53:5353`, `::1` or `[::1]:5353` names."""
    found = re.fullmatch(r"\[(?P<six>[^\]]+)\](?::(?P<p6>\d+))?|(?P<four>[^:]+):(?P<p4>\d+)|(?P<bare>.+)", text.strip())
    if found is None:
        raise ValueError("there is no address")
    port = int(found["p6"] or found["p4"] or 53)
    if not 0 < port < 65_536:
        raise ValueError(f"{port} is not a port")
    return DnsServer(str(ip_address(found["six"] or found["four"] or found["bare"])), port)


def plain_name(host: str) -> str:
    """Return the name in lower case and without the dot at the end."""
    return host.lower().rstrip(".")


def is_name(host: str) -> bool:
    """Return whether it can be the name of a host. A name that ends in a number is an address, valid or not."""
    name = plain_name(host)
    return len(name) <= 253 and _NAME.fullmatch(name) is not None and not ends_in_number(name)


def ends_in_number(name: str) -> bool:
    """Return whether some parsers read it as an address: 127.1, 0x7f000001, 2130706433."""
    return _NUMBER.fullmatch(name.rpartition(".")[2]) is not None


def _parts(text: str | None) -> list[str]:
    return [part.strip() for part in (text or "").split(",") if part.strip()]


def _network(part: str) -> Network | None:
    try:
        return ip_network(part.strip("[]"))
    except ValueError:
        if "/" in part or ":" in part:
            raise
        return None
