"""First and third parties: a host is first party if it has the registrable domain of the site."""

import ipaddress
from functools import lru_cache
from typing import Literal

from publicsuffixlist import PublicSuffixList


@lru_cache(maxsize=1)
def _suffixes() -> PublicSuffixList:
    # Takes half a second, so it is done once and only in processes that scan.
    return PublicSuffixList()


@lru_cache(maxsize=10_000)
def registrable_domain(host: str) -> str:
    """Return the registrable domain of a host ("shop.example.co.uk" -> "example.co.uk"), or the IP address itself."""
    name = host.strip("[]").strip(".").lower()
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        return _suffixes().privatesuffix(name) or name


def party_of(host: str, site: str) -> Literal["first", "third"]:
    """Return which party a host is on the pages of a site."""
    return "first" if registrable_domain(host) == site else "third"
