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
            Link("Add", "/add", "add", "n", role="admin"),
            Link("Jobs", "/jobs", "jobs", "j"),
            Link("Collected", "/collected", "collected", "c"),
            Link("Media", "/media", "media", "p"),
            Link("Cookie portfolio", "/portfolio", "portfolio", "x"),
            Link("Executions", "/executions", "executions", "e"),
            Link("Dead letters", "/dead-letters", "dead-letters", "d"),
        ),
    ),
    Group(
        "Delivery",
        (
            Link("Watches", "/watches", "watches", "v"),
            Link("Sinks and readers", "/sinks", "sinks", "i"),
        ),
    ),
    Group(
        "Operation",
        (
            Link("Workers", "/workers", "workers", "w"),
            Link("Limits and breakers", "/limits", "limits", "l"),
            Link("Budgets", "/budgets", "budgets", "b"),
            Link("Freshness", "/freshness", "freshness", "f"),
            Link("Doctor", "/doctor", "doctor", "h", role="operate"),
            Link("Settings", "/settings", "settings", "s", role="admin"),
        ),
    ),
    Group(
        "Administration",
        (
            Link("Accounts", "/accounts", "accounts", "a"),
            Link("Triggers", "/triggers", "triggers", "t"),
            Link("Migration", "/migration", "migration", "m"),
            Link("Tokens", "/tokens", "tokens", "k", role="admin"),
            Link("Secrets", "/secrets", "secrets", "y", role="admin"),
            Link("Audit log", "/audit", "audit", "u"),
            Link("API reference", "/docs", "docs", "r"),
        ),
    ),
)


def has_page(path: str) -> bool:
    """Return whether the menu has an entry for a path."""
    return any(link.path == path for group in NAVIGATION for link in group.links)
