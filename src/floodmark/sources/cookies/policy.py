"""A policy for the lifetimes of cookies, as TOML. The first rule that matches a cookie applies to it:

    [[rule]]
    name = "_ga*"             # a name; * matches any text
    max_days = 90

    [[rule]]
    purpose = "statistics"    # a purpose of `purposes.toml`
    max_days = 395

    [[rule]]                  # without name, domain and purpose: all other cookies
    max_days = 730

A rule may have a `domain` as well. 0 days means that the cookie must end with the session.
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from fnmatch import translate
from functools import lru_cache
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from floodmark.errors import InvalidInput

LONGEST_POLICY = 20_000
_MOST_RULES = 200
_HINT = 'write rules as: [[rule]], purpose = "statistics", max_days = 395'
_DAY = 86_400

Pattern = Annotated[str, Meta(min_length=1, max_length=200)]


class LifetimeRule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The longest lifetime of the cookies that match."""

    name: Pattern | None = None
    domain: Pattern | None = None
    purpose: Literal["necessary", "preferences", "statistics", "marketing", "unknown"] | None = None
    max_days: Annotated[int, Meta(ge=0, le=36_500)]

    def matches(self, cookie: Mapping[str, Any]) -> bool:
        """Return whether the rule applies to a cookie of a report."""
        host = cookie["domain"].lstrip(".").lower()
        return (
            (self.purpose is None or cookie["purpose"] == self.purpose)
            and (self.name is None or _compiled(self.name).fullmatch(cookie["name"]) is not None)
            and (self.domain is None or host == self.domain or host.endswith(f".{self.domain}"))
        )

    def describe(self) -> str:
        """Return the cookies that the rule is about."""
        parts = [f"cookies named {self.name}" if self.name else "cookies"]
        if self.purpose:
            parts.append("of unknown purpose" if self.purpose == "unknown" else f"for {_NOUNS[self.purpose]}")
        if self.domain:
            parts.append(f"of {self.domain}")
        return "all other cookies" if parts == ["cookies"] else " ".join(parts)


_NOUNS = {
    "necessary": "necessary functions",
    "preferences": "preferences",
    "statistics": "statistics",
    "marketing": "marketing",
}


class _PolicyFile(Struct, frozen=True, forbid_unknown_fields=True):
    rule: Annotated[tuple[LifetimeRule, ...], Meta(min_length=1, max_length=_MOST_RULES)]


def parse_policy(text: str) -> tuple[LifetimeRule, ...]:
    """Return the rules of a policy; `InvalidInput` if it is not one."""
    try:
        return msgspec.convert(tomllib.loads(text), _PolicyFile).rule
    except (tomllib.TOMLDecodeError, msgspec.ValidationError, RecursionError) as error:
        raise InvalidInput(f"the policy is not valid: {str(error)[:200]}", hint=_HINT) from None


def rule_for(cookie: Mapping[str, Any], rules: Sequence[LifetimeRule]) -> LifetimeRule | None:
    """Return the rule that applies to a cookie."""
    return next((rule for rule in rules if rule.matches(cookie)), None)


def is_too_long(cookie: Mapping[str, Any], rule: LifetimeRule) -> bool:
    """Return whether a cookie is kept longer than a rule allows. Session cookies never are."""
    seconds = cookie["lifetime_seconds"]
    # A lifetime is measured some seconds after the cookie was set, and never before.
    return seconds is not None and seconds > rule.max_days * _DAY


@lru_cache(maxsize=1000)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(translate(pattern))
