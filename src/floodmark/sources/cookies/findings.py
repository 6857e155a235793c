"""What a scan finds, as values: they travel from the browser's process to the worker, and into the report."""

from typing import Literal

from msgspec import Struct

Phase = Literal["before", "accept", "reject"]
PHASES: tuple[Phase, ...] = ("before", "accept", "reject")

COMPLETE = "complete"
Result = Literal["complete", "banner not found", "no such button", "blocked page", "time-out", "failed"]
"""How a page or a phase went. Each of them is something worth knowing, and is stored. None of them judges the site."""
Area = Literal["local", "session", "indexeddb", "cache", "worker"]


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
    """`header`: a response carried it. `script`: none did that was seen."""
    set_from: str | None = None
    """The host of that response, or of the script."""
    set_by_url: str | None = None
    """The address of that response or script, without its query; of an inline script that of its page or frame."""
    set_inline: bool = False
    """Whether the script is part of the page or frame itself."""
    set_at: float | None = None
    """When it was set, in seconds since 1970; None: not seen."""
    first_seen_on: str | None = None
    blocked_by_default: bool = False
    """Whether a browser that blocks third-party cookies would not have it."""
    purpose: str = "unknown"
    vendor: str | None = None
    about: str | None = None


class Stored(Struct, frozen=True, kw_only=True):
    """One entry in the storage of an origin: a key, a database, a cache, or a service worker."""

    origin: str
    area: Area
    key: str
    """Of a database or cache its name, of a service worker the address of its script."""
    size: int
    """Characters of key and value; 0 where only the name is known."""
    party: Literal["first", "third"]
    detail: str = ""


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
    """The consent banner that was found, and what was pressed on it."""

    name: str
    """Its maker as in `managers.toml`, or "by its words", or "by accept_selector"."""
    button: str = ""
    """What the last button said."""
    steps: tuple[str, ...] = ()
    """What each button said that was pressed, in order."""
    layer: int | None = None
    """On which layer the choice was made: 1 for the banner itself, 2 for the settings behind it."""
    switched_off: int = 0
    """How many switches were turned off before the choice was stored."""
    answered_at: float | None = None
    """When the choice was made, in seconds since 1970; None: it could not be made."""


class PhaseFound(Struct, frozen=True, kw_only=True):
    """Everything of one phase."""

    phase: Phase
    result: Result
    note: str = ""
    banner: Banner | None = None
    began_at: float | None = None
    """When the first page was opened, in seconds since 1970."""
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
    user_agent: str = ""
    is_recognisable: bool = False
    """Whether sites could tell that this is a program: by `navigator.webdriver`, or by the user agent."""
    managers: tuple[str, ...] = ()
    """Known consent managers that the start page loaded, shown or not."""
    phases: tuple[PhaseFound, ...]
    notes: tuple[str, ...] = ()
