"""Known consent managers (`managers.toml`), and words that identify other banners (`words.toml`)."""

import tomllib
from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from typing import Any, Literal

import msgspec
from msgspec import Struct

# Kinds of words on buttons and in texts; each language has all of them.
KINDS = ("about", "related", "accept", "dismiss", "reject", "settings", "save", "not", "elsewhere")


class Manager(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One consent manager. The head of `managers.toml` explains the fields."""

    name: str
    marks: tuple[str, ...]
    shown: tuple[str, ...] = ()
    inside: Literal["page", "shadow", "frame"] = "page"
    host: str | None = None
    accept: tuple[str, ...] = ()
    reject: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    settings_reject: tuple[str, ...] = ()
    settings_off: tuple[str, ...] = ()
    settings_save: tuple[str, ...] = ()
    globals: tuple[str, ...] = ()
    cookies: tuple[str, ...] = ()
    hidden_from: str = ""


@lru_cache(maxsize=1)
def managers() -> tuple[Manager, ...]:
    """Return all known consent managers, in order of priority."""
    return msgspec.convert(_read("managers.toml")["manager"], tuple[Manager, ...])


@lru_cache(maxsize=1)
def languages() -> Mapping[str, Mapping[str, tuple[str, ...]]]:
    """Return the words by language and kind."""
    return msgspec.convert(_read("words.toml"), dict[str, dict[str, tuple[str, ...]]])


@lru_cache(maxsize=1)
def words() -> Mapping[str, list[str]]:
    """Return the words of all languages by kind, the clearest of every language first."""
    found: dict[str, list[str]] = {}
    for kind in KINDS:
        lists = [language[kind] for language in languages().values()]
        longest = max(map(len, lists))
        ranked = [one[rank] for rank in range(longest) for one in lists if rank < len(one)]
        found[kind] = list(dict.fromkeys(ranked))
    return found


def _read(name: str) -> dict[str, Any]:
    return tomllib.loads(files(__package__).joinpath(name).read_text(encoding="utf-8"))
