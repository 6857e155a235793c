"""The parameters of a crawl."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from msgspec import Struct

from floodmark.errors import InvalidInput
from floodmark.model.durations import parse_every

from .extraction.plan import NAMES as PLAN_NAMES
from .extraction.plan import ExtractionPlan, parse_plan
from .extraction.selectors import Language, parse_selector
from .request_headers import parse_headers, parse_secret_name, secrets_in
from .urls import compile_glob, parse_start_url

# With a longer delay the crawl does not keep its slot: it is snoozed after each page.
PATIENCE = timedelta(seconds=10)
_MAX_PATTERNS = 50
NETWORK = "network"
"""The name of a wait until the network is quiet."""
NO_FOLDER = "the options --warc and --raw store files in ARTIFACTS_DIR, which is not set"
FOLDER_HINT = "set it on every machine with workers, as in ARTIFACTS_DIR=/var/lib/floodmark/artifacts"


class WebParams(Struct, frozen=True, kw_only=True):
    """The checked parameters of a crawl."""

    include: tuple[str, ...] = ()
    """Globs: only pages that match one of them; all pages if there are none."""
    exclude: tuple[str, ...] = ()
    """Globs: no page that matches one of them."""
    max_pages: int = 1000
    """The most pages that one crawl visits."""
    max_depth: int = 5
    """The most links between the start and a page."""
    delay: timedelta | None = None
    """Between two requests; None for the setting. A longer delay in robots.txt takes precedence."""
    concurrency: int | None = None
    """Concurrent requests; None for the setting."""
    obeys_robots: bool = True
    sitemaps: bool = True
    feeds: bool = True
    trusts_lastmod: bool = False
    """Whether pages that their sitemap reports as unchanged are not requested."""
    sitemap_only: bool = False
    """Whether only pages of sitemaps are visited, and no links are followed."""
    subdomains: bool = False
    """Whether pages of the site's subdomains belong to it."""
    plan: ExtractionPlan = ExtractionPlan()
    """What is taken from a page."""
    warc: bool = False
    """Whether responses are stored in WARC files."""
    render: bool = False
    """Whether pages are loaded in a browser."""
    wait_for: str = ""
    """What a rendered page must show: a CSS selector, or `network`; empty for text that no longer changes."""
    headers: tuple[tuple[str, str], ...] = ()
    """Headers of requests to the site, with names of secrets."""
    basic_auth: str = ""
    """The name of the secret of a basic authentication."""
    login_url: str = ""
    """The page with the form of a login."""
    login: str = ""
    """The name of the secret for this form."""
    raw: bool = False
    """Whether the content of each revision is stored by its hash."""
    proxy: str = ""
    """The name of the secret with the URL of a proxy."""

    @property
    def secrets(self) -> set[str]:
        """The names of the secrets that requests to the site need."""
        return {*secrets_in(self.headers), *(name for name in (self.basic_auth, self.login) if name)}

    @property
    def packages(self) -> dict[str, str]:
        """The packages that the job needs, each with its purpose."""
        return {**self.plan.packages, **({"warcio": "--warc"} if self.warc else {})}

    @property
    def needs_folder(self) -> bool:
        """Whether files are stored."""
        return self.warc or self.raw

    @property
    def most_known(self) -> int:
        """The most URLs that are stored, so that a site that generates URLs endlessly stops there."""
        return max(20 * self.max_pages, 10_000)


NAMES = frozenset(
    (
        "include",
        "exclude",
        "max_pages",
        "max_depth",
        "delay",
        "concurrency",
        "robots",
        "sitemaps",
        "feeds",
        "trust_lastmod",
        "sitemap_only",
        "subdomains",
        "warc",
        "raw",
        "render",
        "wait_for",
        "headers",
        "basic_auth",
        "login_url",
        "login",
        "proxy",
        *PLAN_NAMES,
    )
)


def parse_params(params: Mapping[str, Any]) -> WebParams:
    """Return the checked parameters of a job; unknown names are ignored."""
    robots = str(params.get("robots", "obey"))
    if robots not in {"obey", "ignore"}:
        raise InvalidInput(f"robots {robots[:40]!r} is not known", hint="use obey, or ignore for a site of your own")
    sitemaps, sitemap_only = _parse_flag(params, "sitemaps"), _parse_flag(params, "sitemap_only", default=False)
    if sitemap_only and not sitemaps:
        raise InvalidInput("sitemap_only needs sitemaps", hint="leave out --no-sitemaps or --sitemap-only")
    headers = parse_headers(params.get("headers"))
    basic_auth, login, proxy = (parse_secret_name(params.get(name), name) for name in ("basic_auth", "login", "proxy"))
    login_url = parse_start_url(str(params["login_url"])) if params.get("login_url") else ""
    if bool(login) != bool(login_url):
        raise InvalidInput(
            "a login needs the URL of its form and the name of a secret",
            hint="as in --login-url https://example.com/login --login SHOP",
        )
    if (headers or basic_auth or login) and _parse_flag(params, "render", default=False):
        raise InvalidInput(
            "a browser would send the secrets to other sites too",
            hint="leave out --render, or --header, --basic-auth and --login",
        )
    if proxy and _parse_flag(params, "render", default=False):
        raise InvalidInput("a browser cannot use the proxy of a job", hint="leave out --render or --proxy")
    return WebParams(
        include=_parse_patterns(params, "include"),
        exclude=_parse_patterns(params, "exclude"),
        max_pages=_parse_number(params, "max_pages", 1000, least=1, most=1_000_000),
        max_depth=_parse_number(params, "max_depth", 5, least=0, most=100),
        delay=_parse_delay(params.get("delay")),
        concurrency=_parse_number(params, "concurrency", None, least=1, most=64),
        obeys_robots=robots == "obey",
        sitemaps=sitemaps,
        feeds=_parse_flag(params, "feeds"),
        trusts_lastmod=_parse_flag(params, "trust_lastmod", default=False),
        sitemap_only=sitemap_only,
        subdomains=_parse_flag(params, "subdomains", default=False),
        plan=parse_plan(params),
        warc=_parse_flag(params, "warc", default=False),
        raw=_parse_flag(params, "raw", default=False),
        render=_parse_flag(params, "render", default=False),
        wait_for=_parse_wait(params),
        headers=headers,
        basic_auth=basic_auth,
        login_url=login_url,
        login=login,
        proxy=proxy,
    )


def _parse_wait(params: Mapping[str, Any]) -> str:
    text = str(params.get("wait_for") or "").strip()
    if not text:
        return ""
    if not _parse_flag(params, "render", default=False):
        raise InvalidInput("wait_for is for rendered pages", hint="add --render")
    return NETWORK if text == NETWORK else parse_selector(text, "wait_for", Language.CSS).text


def _parse_patterns(params: Mapping[str, Any], name: str) -> tuple[str, ...]:
    text = params.get(name) or ()
    listed = [part.strip() for part in text.split(",")] if isinstance(text, str) else text
    if not isinstance(listed, list | tuple) or len(listed) > _MAX_PATTERNS:
        raise InvalidInput(f"{name} is not a list of patterns", hint=f"as in {name}: ['/news/**', '**.html']")
    for pattern in listed:
        compile_glob(str(pattern))
    return tuple(map(str, listed))


def _parse_number(params: Mapping[str, Any], name: str, default: Any, *, least: int, most: int) -> Any:
    value = params.get(name)
    if value is None:
        return default
    text = str(value)
    if isinstance(value, bool) or not text.isdecimal() or not least <= int(text[:12]) <= most:
        raise InvalidInput(
            f"{name} {text[:40]!r} is not a number from {least} to {most:,}", hint=f"as in {name}={least}"
        )
    return int(text)


def _parse_delay(value: Any) -> timedelta | None:
    if value is None:
        return None
    text = str(value)
    try:
        found = timedelta(seconds=float(text)) if text.replace(".", "", 1).isdecimal() else parse_every(text)
    except InvalidInput as error:
        raise InvalidInput(f"delay: {error}", hint="as in 0.5 (seconds), 2s or 1m") from None
    if found > timedelta(hours=1):
        raise InvalidInput(f"a delay of {text[:20]} is too long", hint="crawl less often instead: --every")
    return found


def _parse_flag(params: Mapping[str, Any], name: str, *, default: bool = True) -> bool:
    value = params.get(name, default)
    text = str(value).lower()
    if text not in {"true", "false"}:
        raise InvalidInput(f"{name} {text[:40]!r} is neither true nor false", hint=f"as in {name}=false")
    return text == "true"
