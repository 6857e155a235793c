"""What well-known cookies are for, by the open table `purposes.toml`. What is not in it is unknown, and says so."""

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
    """One row of the table."""

    name: str
    purpose: str
    vendor: str | None = None
    about: str | None = None
    domain: str | None = None
    """Only of this domain and those under it: for names that others use too."""


class _Rule(Struct, frozen=True):
    pattern: re.Pattern[str]
    known: KnownCookie


@lru_cache(maxsize=1)
def table() -> tuple[KnownCookie, ...]:
    """Every row, in order."""
    told = tomllib.loads(files(__package__).joinpath("purposes.toml").read_text(encoding="utf-8"))
    rows: list[KnownCookie] = []
    for vendor in told["vendor"]:
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


def _choices() -> list[KnownCookie]:
    about = "Stores the choice made on the consent banner."
    return [
        KnownCookie(name=name, purpose="necessary", vendor=manager.name, about=about)
        for manager in managers()
        for name in manager.cookies
        if not name.startswith("localStorage:")
    ]


@lru_cache(maxsize=1)
def _rules() -> tuple[_Rule, ...]:
    # Rows that name a domain know more than those that do not; where consent managers keep the choice comes last.
    rows = [*sorted(table(), key=lambda row: row.domain is None), *_choices()]
    return tuple(_Rule(re.compile(translate(row.name)), row) for row in rows)


def known_as(name: str, domain: str) -> KnownCookie:
    """What the table says of a cookie; `unknown` if it says nothing."""
    host = domain.lstrip(".").lower()
    for rule in _rules():
        theirs = rule.known.domain
        if theirs is not None and host != theirs and not host.endswith(f".{theirs}"):
            continue
        if rule.pattern.fullmatch(name):
            return rule.known
    return KnownCookie(name=name, purpose=UNKNOWN)
