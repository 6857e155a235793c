"""Messages between a worker and a browser's process.

The worker sends `Start` first and then `Order`s, `RenderOrder`s and `PrintOrder`s; the response to each is a
`ScanAnswer`.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from .findings import ScanRecord
from .params import CookieParams

LARGEST = 256 * 1024 * 1024


class BrowserRules(Struct, frozen=True, kw_only=True):
    """The settings of browsers."""

    chromium: str | None = None
    browsers: int = 1
    scans_each: int = 20
    sandbox: bool = True
    third_party_cookies: bool = True
    user_agent: str = ""
    """The operator's own, which makes scans recognisable; empty for the browser's default."""
    allow_hosts: str = ""
    resolve: Mapping[str, Sequence[str]] = {}
    dns_server: str = ""
    """The DNS server for aliases of hosts; empty for that of the system."""


class Start(Struct, frozen=True, kw_only=True):
    """How to start the browser."""

    executable: str
    folder: str
    """This browser's own folder, for its profile; deleted at the end."""
    rules: BrowserRules


class Order(Struct, frozen=True, kw_only=True, tag="scan"):
    """A scan to run."""

    domain: str
    starts: tuple[str, ...]
    """Start URLs, tried in order until one can be loaded."""
    params: CookieParams
    page_seconds: float
    settle_seconds: float
    """How long scripts may run after a page was loaded."""
    banner_seconds: float
    """How long to wait for a banner."""
    scan_seconds: float
    """After this time no more pages are visited."""


class RenderOrder(Struct, frozen=True, kw_only=True, tag="render"):
    """A page of a crawl to render."""

    url: str
    site: str
    """Pages of one site share cookies and storage."""
    agent: str = ""
    """What follows the browser's own user agent."""
    wait_for: str = ""
    """A CSS selector, or `network`; empty to wait until the text no longer changes."""
    page_seconds: float
    """How long the response may take."""
    wait_seconds: float
    """How long to wait for the content afterwards."""
    most_characters: int


class PrintOrder(Struct, frozen=True, kw_only=True, tag="print"):
    """A page of ours to print as PDF."""

    page: str
    """The path of the HTML file."""
    out: str
    """The path of the PDF."""
    seconds: float


class RenderedPage(Struct, frozen=True, kw_only=True):
    """A page after its scripts have run."""

    url: str
    status: int
    """0 if it was not loaded from the network."""
    media_type: str
    html: str
    is_cut: bool = False
    is_complete: bool = True
    """Whether the content that the job waits for has appeared in time."""


class ScanAnswer(Struct, frozen=True, kw_only=True):
    """The response to a message: one of these, or none of them when the browser has started."""

    found: ScanRecord | None = None
    page: RenderedPage | None = None
    unreachable: str | None = None
    refused: str | None = None
    crashed: str | None = None
