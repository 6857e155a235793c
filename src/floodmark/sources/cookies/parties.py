"""Whose a host is: first party is everything of the same site, which is the registrable domain."""

import ipaddress
from functools import lru_cache
from typing import Literal

from publicsuffixlist import PublicSuffixList


@lru_cache(maxsize=1)
def _suffixes() -> PublicSuffixList:
    # Takes half a second to read, so it is read once, and only where a scan is made.
    return PublicSuffixList()


@lru_cache(maxsize=10_000)
def site_of(host: str) -> str:
    """The registrable domain of a host ("shop.example.co.uk" -> "example.co.uk"); of an address itself."""
    name = host.strip("[]").strip(".").lower()
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        return _suffixes().privatesuffix(name) or name


def party_of(host: str, site: str) -> Literal["first", "third"]:
    """Which party a host is on the pages of a site."""
    return "first" if site_of(host) == site else "third"
