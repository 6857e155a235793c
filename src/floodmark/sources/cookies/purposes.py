"""The purposes of well-known cookies, from `purposes.toml`. All others are `unknown`."""

import re
import tomllib
from fnmatch import translate
from functools import lru_cache
from importlib.resources import files

from msgspec import Struct

from .managers import managers

UNKNOWN = "unknown"
PURPOSES = ("necessary", "preferences", "statistics", "marketing", UNKNOWN)


class KnownCookie(Struct, frozen=True, kw_only=True):
    """One row of `purposes.toml`."""

    name: str
    purpose: str
    vendor: str | None = None
    about: str | None = None
    domain: str | None = None
    """Only cookies of this domain and its subdomains: for names that others use as well."""


class _Rule(Struct, frozen=True):
    pattern: re.Pattern[str]
    known: KnownCookie


@lru_cache(maxsize=1)
def known_cookies() -> tuple[KnownCookie, ...]:
    """Return all rows, in order."""
    content = tomllib.loads(files(__package__).joinpath("purposes.toml").read_text(encoding="utf-8"))
    rows: list[KnownCookie] = []
    for vendor in content["vendor"]:
        rows += [
            KnownCookie(
                name=cookie["name"],
                purpose=cookie["purpose"],
                vendor=vendor["name"],
                about=cookie.get("about"),
                domain=cookie.get("domain", vendor.get("domain")),
            )
            for cookie in vendor["cookie"]
        ]
    return tuple(rows)


def _consent_cookies() -> list[KnownCookie]:
    about = "Stores the choice made on the consent banner."
    return [
        KnownCookie(name=name, purpose="necessary", vendor=manager.name, about=about)
        for manager in managers()
        for name in manager.cookies
        if not name.startswith("localStorage:")
    ]


@lru_cache(maxsize=1)
def _rules() -> tuple[_Rule, ...]:
    # Rows with a domain are more specific; cookies of consent managers come last.
    rows = [*sorted(known_cookies(), key=lambda row: row.domain is None), *_consent_cookies()]
    return tuple(_Rule(re.compile(translate(row.name)), row) for row in rows)


def find_purpose(name: str, domain: str) -> KnownCookie:
    """Return the known cookie that matches; one of purpose `unknown` if none does."""
    host = domain.lstrip(".").lower()
    for rule in _rules():
        theirs = rule.known.domain
        if theirs is not None and host != theirs and not host.endswith(f".{theirs}"):
            continue
        if rule.pattern.fullmatch(name):
            return rule.known
    return KnownCookie(name=name, purpose=UNKNOWN)
