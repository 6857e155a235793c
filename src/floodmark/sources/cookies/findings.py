"""The results of a scan. The browser's process sends them to the worker, which stores them in the report."""

from typing import Literal

from msgspec import Struct

from .tcf import TcString

Phase = Literal["before", "accept", "reject"]
PHASE_WORDS = {"before": "before consent", "accept": "after accepting", "reject": "after rejecting"}

COMPLETE = "complete"
Result = Literal["complete", "banner not found", "no such button", "blocked page", "time-out", "failed"]
"""How the scan of a page or phase went. It is stored, and does not judge the site."""
Area = Literal["local", "session", "indexeddb", "cache", "worker"]


class Cookie(Struct, frozen=True, kw_only=True):
    """One cookie. Instead of its value only the size and a digest are stored, to compare scans."""

    name: str
    domain: str
    """As in the browser: with a leading dot if subdomains get the cookie as well."""
    path: str
    party: Literal["first", "third"]
    expires: float | None
    """Seconds since 1970; None for a session cookie."""
    lifetime_seconds: int | None
    http_only: bool
    secure: bool
    same_site: str
    partition: str | None
    """The top-level site of a partitioned cookie (CHIPS); None if it is not partitioned."""
    size: int
    """Bytes of its name and value."""
    value_sha256: str
    set_by: Literal["header", "script"]
    """`header` if a response set it, otherwise `script`."""
    set_from: str | None = None
    """The host of that response, or of the script."""
    set_by_url: str | None = None
    """The URL of that response or script without its query; for an inline script that of its page or frame."""
    set_inline: bool = False
    """Whether it was set by an inline script."""
    set_at: float | None = None
    """When it was set, in seconds since 1970; None if unknown."""
    first_seen_on: str | None = None
    blocked_by_default: bool = False
    """Whether a browser that blocks third-party cookies would reject it."""
    purpose: str = "unknown"
    vendor: str | None = None
    about: str | None = None


class Stored(Struct, frozen=True, kw_only=True):
    """One entry in the storage of an origin: a key, a database, a cache, or a service worker."""

    origin: str
    area: Area
    key: str
    """The key, the name of a database or cache, or the script URL of a service worker."""
    size: int
    """Characters of key and value; 0 if only the name is known."""
    party: Literal["first", "third"]
    detail: str = ""


class Contact(Struct, frozen=True, kw_only=True):
    """A third-party host that received requests from the pages."""

    host: str
    site: str
    requests: int
    types: dict[str, int]


class Alias(Struct, frozen=True, kw_only=True):
    """A host of the site that is an alias of a host of another party."""

    host: str
    chain: tuple[str, ...]
    """The names that DNS leads to, in order."""
    site: str
    """The registrable domain of the other party."""
    vendor: str | None = None
    purpose: str = "unknown"


class Visit(Struct, frozen=True, kw_only=True):
    """One visited page of a phase."""

    url: str
    result: Result
    depth: int = 0
    status: int | None = None
    title: str = ""
    tries: int = 1
    note: str = ""


class Banner(Struct, frozen=True, kw_only=True):
    """The consent banner, and the buttons that were pressed on it."""

    name: str
    """The consent manager as in `managers.toml`, or "by its words", or "by accept_selector"."""
    button: str = ""
    """The text of the last button pressed."""
    steps: tuple[str, ...] = ()
    """The texts of all buttons pressed, in order."""
    layer: int | None = None
    """The layer on which the choice was made: 1 for the banner itself, 2 for its settings."""
    switched_off: int = 0
    """Switches turned off before the choice was saved."""
    answered_at: float | None = None
    """When the choice was made, in seconds since 1970; None if it could not be made."""


class PhaseFound(Struct, frozen=True, kw_only=True):
    """The results of one phase."""

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
    tcf: TcString | None = None
    """The choice that the consent manager has recorded in a TC string at the end of the phase."""
    picture: bytes | None = None
    left_out: tuple[str, ...] = ()
    """Results beyond the limits, in words."""


class ScanRecord(Struct, frozen=True, kw_only=True):
    """The results of one scan."""

    domain: str
    start: str
    final: str
    browser: str
    user_agent: str = ""
    is_recognisable: bool = False
    """Whether sites could recognise a program, by `navigator.webdriver` or the user agent."""
    managers: tuple[str, ...] = ()
    """Known consent managers that the start page loaded, whether visible or not."""
    options: dict[str, str] = {}
    """What the browser told the site about the visitor: `locale`, `timezone`, `gpc`."""
    aliases: tuple[Alias, ...] = ()
    phases: tuple[PhaseFound, ...]
    notes: tuple[str, ...] = ()
