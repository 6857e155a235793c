"""The main menu."""

from msgspec import Struct


class Link(Struct, frozen=True):
    """An entry of the menu. `section` marks the pages that belong to it; `g` and `key` open it."""

    title: str
    path: str
    section: str
    key: str = ""
    role: str = "read"


class Group(Struct, frozen=True):
    """Entries of the menu under one heading."""

    title: str
    links: tuple[Link, ...]


NAVIGATION = (
    Group(
        "",
        (
            Link("Overview", "/", "overview", "o"),
            Link("Jobs", "/jobs", "jobs", "j"),
        ),
    ),
    Group(
        "Administration",
        (
            Link("Accounts", "/accounts", "accounts", "a"),
            Link("Triggers", "/triggers", "triggers", "t"),
            Link("Migration", "/migration", "migration", "m"),
            Link("Tokens", "/tokens", "tokens", "k", role="admin"),
            Link("Audit log", "/audit", "audit", "u"),
            Link("API reference", "/docs", "docs", "r"),
        ),
    ),
)
