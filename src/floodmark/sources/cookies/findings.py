"""What a scan finds, as values: they travel from the browser's process to the worker, and into the report."""

from typing import Literal

from msgspec import Struct

Phase = Literal["before", "accept", "reject"]
PHASES: tuple[Phase, ...] = ("before", "accept", "reject")

Result = Literal["ok", "banner not found", "no such button", "blocked page", "time-out", "failed"]
"""How a page or a phase went. Each of them is something worth knowing, and is stored."""


class Cookie(Struct, frozen=True, kw_only=True):
    """One cookie. Its value is not kept: only its length, and a digest by which two scans can be compared."""

    name: str
    domain: str
    """As the browser has it: with a dot in front if subdomains get it too."""
    path: str
    party: Literal["first", "third"]
    expires: float | None
    """Seconds since 1970; None: gone with the browser session."""
    lifetime_seconds: int | None
    http_only: bool
    secure: bool
    same_site: str
    partition: str | None
    """The site it is kept apart for (CHIPS); None: one for all sites."""
    size: int
    """Bytes of its name and value."""
    value_sha256: str
    set_by: Literal["header", "script"]
    """`header`: an answer carried it. `script`: none did that we saw."""
    set_from: str | None = None
    """The host of that answer."""
    first_seen_on: str | None = None
    blocked_by_default: bool = False
    """Whether a browser that blocks third-party cookies would not have it."""
    purpose: str = "unknown"
    vendor: str | None = None
    about: str | None = None


class Stored(Struct, frozen=True, kw_only=True):
    """One key in the storage of an origin."""

    origin: str
    area: Literal["local", "session"]
    key: str
    size: int
    party: Literal["first", "third"]


class Contact(Struct, frozen=True, kw_only=True):
    """A host of somebody else that the pages made the browser talk to."""

    host: str
    site: str
    requests: int
    types: dict[str, int]


class Visit(Struct, frozen=True, kw_only=True):
    """One page that was visited in a phase."""

    url: str
    result: Result
    depth: int = 0
    status: int | None = None
    title: str = ""
    tries: int = 1
    note: str = ""


class Banner(Struct, frozen=True, kw_only=True):
    """The consent banner that was met, and what was pressed on it."""

    name: str
    """Whose it is: "OneTrust", "by its words", "by accept_selector"."""
    button: str = ""
    """What stood on the button."""


class PhaseFound(Struct, frozen=True, kw_only=True):
    """Everything of one phase."""

    phase: Phase
    result: Result
    note: str = ""
    banner: Banner | None = None
    visits: tuple[Visit, ...] = ()
    cookies: tuple[Cookie, ...] = ()
    storage: tuple[Stored, ...] = ()
    contacts: tuple[Contact, ...] = ()
    picture: bytes | None = None
    left_out: tuple[str, ...] = ()
    """What there was too much of to be kept."""


class Found(Struct, frozen=True, kw_only=True):
    """Everything of one scan."""

    domain: str
    start: str
    final: str
    browser: str
    phases: tuple[PhaseFound, ...]
    notes: tuple[str, ...] = ()
