"""Which hosts and addresses requests may go to: public ones, and those in HTTP_ALLOW_HOSTS. Pure: resolves nothing.

A URL is checked before a request, for an early and clear error. The address is checked again when its socket is
created; that second check is the one that protects. IPv6 addresses are refused unless they are listed as public, so
that ranges reserved in the future are refused today.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import TYPE_CHECKING

from floodmark.errors import Permanent
from floodmark.model.hosts import AllowedHosts, allowed_hosts, ends_in_number, is_name, plain_name
from floodmark.security.masking import mask_text

if TYPE_CHECKING:
    # Slow to import, and every process has a guard.
    from yarl import URL

LONGEST_URL = 8_000
_SHOWN = 200
_MISREAD = re.compile(r"[\\\x00-\x20\x7f]")

_HERE = ("localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback")
_METADATA = ("metadata", "metadata.google.internal", "metadata.goog", "instance-data", "instance-data.ec2.internal")
# The last one is Azure's host services: a public address, but reachable only from inside a virtual machine.
_RESERVED_4 = tuple(IPv4Network(text) for text in (
    "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
    "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24",
    "224.0.0.0/3", "168.63.129.16/32",
))  # fmt: skip
_PUBLIC_6 = IPv6Network("2000::/3")
_RESERVED_6 = tuple(
    IPv6Network(text)
    # Special purposes (such as Teredo), documentation, 6to4, documentation.
    for text in ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")
)
_MAPPED, _NAT64 = IPv6Network("::ffff:0:0/96"), IPv6Network("64:ff9b::/96")
_ISATAP = (0x00005EFE, 0x02005EFE)


class AddressRefused(Permanent):
    """The guard does not allow this host or address. Nothing was sent."""


class Guard:
    """Refuses hosts and addresses that are neither public nor allowed by name."""

    def __init__(self, allow: AllowedHosts | Iterable[str] = ()) -> None:
        self._allow = allow if isinstance(allow, AllowedHosts) else allowed_hosts(",".join(allow))
        # Most requests go to a host that was checked before.
        self.check_host = lru_cache(maxsize=1024)(self._check_host)

    def also_allowing(self, host: str) -> "Guard":
        """Return a guard that allows one more host: a proxy that the operator has chosen."""
        more, known = allowed_hosts(host), self._allow
        return Guard(
            AllowedHosts(
                names=known.names | more.names, endings=known.endings, networks=(*known.networks, *more.networks)
            )
        )

    def check_address(self, host: str, address: str) -> None:
        """Raise `AddressRefused` if `host` must not be reached at `address`."""
        if not self.allows(host, address):
            named = plain_name(host)
            where = f"{named} leads to {address}, which" if named != address else address
            raise AddressRefused(f"{where} is not a public address", hint=_allow_hint(named))

    def allows(self, host: str, address: str) -> bool:
        """Return whether `host` may be reached at `address`."""
        if self._allow.has_name(plain_name(host)):
            return True
        found = _address(address)
        return found is not None and (is_public(address) or any(found in net for net in self._allow.networks))

    def check_url(self, url: "str | URL") -> "URL":
        """Return the parsed URL; refuse other schemes, user names, malformed and private hosts."""
        if isinstance(url, str):
            url = _parse(url)
        if url.scheme not in ("http", "https"):
            raise _refusal(url, f"its scheme is {_printable(url.scheme) or 'missing'}, not http or https")
        if url.raw_user is not None or url.raw_password is not None:
            raise _refusal(url, "it has a user name in front of its host")
        if not url.raw_host:
            raise _refusal(url, "it has no host")
        if url.port == 0:
            raise _refusal(url, "its port is 0")
        self.check_host(url.raw_host)
        return url

    def _check_host(self, host: str) -> None:
        """Raise `AddressRefused` for a malformed name, a private name, and an address that is not allowed."""
        name = plain_name(host)
        if ":" in host or (ends_in_number(name) and _address(name) is not None):
            # `name` has no trailing dot, which would make an address look like a name.
            self.check_address(name, name)
            return
        if not is_name(name) or name.startswith("*"):
            what = "is an address in a non-standard notation" if ends_in_number(name) else "is not a host name"
            raise AddressRefused(
                f"{_printable(name)!r} {what}", hint="write it as in https://example.com/ or https://192.0.2.1/"
            )
        if (name in _HERE or name in _METADATA or name.endswith(".localhost")) and not self._allow.has_name(name):
            raise AddressRefused(f"{name} is not a public host", hint=_allow_hint(name))


@lru_cache(maxsize=4096)
def is_public(address: str) -> bool:
    """Return whether an address is public; an IPv4 address inside an IPv6 address must be public as well."""
    found = _address(address)
    if isinstance(found, IPv4Address):
        return not any(found in net for net in _RESERVED_4)
    if found is None or found.scope_id is not None:
        return False
    inner = str(IPv4Address(int(found) & 0xFFFFFFFF))
    if found in _MAPPED or found in _NAT64:
        return is_public(inner)
    if (int(found) >> 32) & 0xFFFFFFFF in _ISATAP and not is_public(inner):
        return False
    return found in _PUBLIC_6 and not any(found in net for net in _RESERVED_6)


def _address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(text)
    except ValueError:
        return None


def _parse(text: str) -> "URL":
    from yarl import URL  # noqa: PLC0415 - slow to import

    if len(text) > LONGEST_URL:
        raise AddressRefused(f"{_printable(text)} ... is longer than {LONGEST_URL:,} characters", hint="shorten it")
    # Parsers read these differently, and the guard must check the host that is connected to.
    if _MISREAD.search(text) is not None:
        raise _refusal(text, "it has spaces, control characters or backslashes")
    try:
        return URL(text)
    except ValueError as error:
        raise _refusal(text, str(error)) from None


def _refusal(url: "str | URL", why: str) -> AddressRefused:
    return AddressRefused(
        f"{_printable(str(url))} cannot be fetched: {why}", hint="write it as in https://example.com/page"
    )


def _printable(text: str) -> str:
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in mask_text(text)[:_SHOWN])


def _allow_hint(host: str) -> str:
    return f"if you trust it, allow it by name: HTTP_ALLOW_HOSTS={host}"
