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
)
