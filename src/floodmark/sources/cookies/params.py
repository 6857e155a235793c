"""The domain and the parameters of a cookie scan."""

import ipaddress
import re
from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import urljoin, urlsplit

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from floodmark.errors import InvalidInput
from floodmark.model.spec import JobSpec
from floodmark.rules.streams import default_stream
from floodmark.triggers.zones import zone_of

from .policy import LONGEST_POLICY, parse_policy

_HOST = re.compile(
    r"(?=.{1,253}$)(?:[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?", re.ASCII
)
_LONGEST_URL = 2000
_MAX_CUSTOM_PAGES = 1000
_FORM = "name it as example.com, or example.com:8443"

Address = Annotated[str, Meta(min_length=1, max_length=_LONGEST_URL)]
Locale = Annotated[str, Meta(pattern=r"^[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8}){0,3}$")]
Selector = Annotated[str, Meta(min_length=1, max_length=1000)]


class CookieParams(
    Struct,
    frozen=True,
    kw_only=True,
    rename={
        "max_pages": "maxPages",
        "scan_depth": "scanDepth",
        "max_retries": "maxRetries",
        "custom_pages": "customPages",
    },
):
    """The checked parameters of a scan."""

    allow_deep_scan: bool = False
    """Whether links are followed; without it only the start page and `customPages` are visited."""
    max_pages: Annotated[int, Meta(ge=1)] = 20
    """The most pages visited in each phase, including the start page."""
    scan_depth: Annotated[int, Meta(ge=0)] = 2
    """The most links between the start page and a page."""
    max_retries: Annotated[int, Meta(ge=0, le=1000)] = 2
    """Retries of a page that could not be loaded."""
    custom_pages: Annotated[tuple[Address, ...], Meta(max_length=_MAX_CUSTOM_PAGES)] = ()
    """Pages that are always visited: paths, or URLs of the same site."""
    accept_selector: Selector | None = None
    """The button that gives consent, if the scan does not find it by itself."""
    reject_selector: Selector | None = None
    """The button that refuses consent."""
    insecure: bool = False
    """Scan despite an invalid certificate; the report notes it."""
    locale: Locale | None = None
    """The language and region of the visitor, such as `de-DE`."""
    browser_timezone: Annotated[str, Meta(min_length=1, max_length=100)] | None = None
    """The time zone of the visitor, such as `Europe/Berlin`."""
    gpc: bool = False
    """Whether the browser sends Global Privacy Control."""
    policy: Annotated[str, Meta(max_length=LONGEST_POLICY)] | None = None
    """The text of a policy for lifetimes, see `policy`."""


_KNOWN = frozenset(field.encode_name for field in msgspec.structs.fields(CookieParams))
# A sync stores the description of a schedule among the parameters; a scan ignores it.
NAMES = _KNOWN | {"description"}


def parse_params(params: Mapping[str, Any]) -> CookieParams:
    """Return the checked parameters of a job; unknown names are ignored."""
    # Null means that a parameter is not given.
    given = {name: value for name, value in params.items() if name in _KNOWN and value is not None}
    try:
        found = msgspec.convert(given, CookieParams, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidInput(
            f"invalid parameters of a cookie scan: {str(error)[:300]}",
            hint="see the parameters: floodmark add cookies --help",
        ) from None
    if found.browser_timezone is not None:
        zone_of(found.browser_timezone)
    if found.policy is not None:
        parse_policy(found.policy)
    return found


def normalize_domain(text: str) -> str:
    """Return the normalized domain: in lower case, without scheme and path, with a port unless it is the default."""
    url = text.strip()
    if len(url) > _LONGEST_URL:
        raise _refusal(url, "is too long")
    if "://" not in url:
        url = f"https://{url}"
    try:
        parts = urlsplit(url)
        port = parts.port
        host = _normalize_host(parts.hostname or "")
    except ValueError as error:
        raise _refusal(text, f"is not a domain: {error}") from None
    if parts.scheme not in ("http", "https") or parts.username is not None or parts.password is not None:
        raise _refusal(text, "is not a domain")
    if parts.path not in ("", "/") or parts.query or parts.fragment:
        raise InvalidInput(
            f"{text[:80]!r} is a page, but a scan needs a domain",
            hint=f"scan {host} and name the page: --custom-page {parts.path or '/'}",
        )
    default = {"https": 443, "http": None}[parts.scheme]
    return host if port in (None, default) else f"{host}:{port}"


def fit_of(text: str) -> float:
    """Return how well a text fits as a domain to scan: little, because a site to collect is written in the same way."""
    try:
        return 0.2 if "." in normalize_domain(text) else 0.0
    except InvalidInput:
        return 0.0


def _normalize_host(name: str) -> str:
    name = name.rstrip(".").lower()
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        pass
    else:
        return f"[{address}]" if address.version == 6 else str(address)
    found = name if name.isascii() else name.encode("idna").decode("ascii")
    if not _HOST.fullmatch(found) or found.rpartition(".")[2].isdigit():
        raise ValueError("a host name has letters, digits, hyphens and dots")
    return found


def _refusal(text: str, why: str) -> InvalidInput:
    return InvalidInput(f"{text[:80]!r} {why}", hint=_FORM)


def start_urls(domain: str) -> tuple[str, ...]:
    """Return the start URLs to try: https, then http."""
    return (f"https://{domain}/", f"http://{domain}/")


def custom_urls(params: CookieParams, start: str) -> list[str]:
    """Return the distinct URLs of `customPages`, in order."""
    return list(dict.fromkeys(urljoin(start, page.strip()) for page in params.custom_pages))


def check_custom_pages(domain: str, params: CookieParams) -> None:
    """Raise `InvalidInput` for `customPages` of another site."""
    host = urlsplit(f"https://{domain}/").hostname or ""
    for page in custom_urls(params, f"https://{domain}/"):
        try:
            parts = urlsplit(page)
            theirs = (parts.hostname or "").removeprefix("www.")
        except ValueError:
            theirs, parts = "", urlsplit("")
        ours = host.removeprefix("www.")
        if parts.scheme not in ("http", "https") or not (theirs == ours or theirs.endswith(f".{ours}")):
            raise InvalidInput(
                f"customPages: {page[:80]!r} is not a page of {domain}", hint="name pages by their path: /about"
            )


def complete_spec(spec: JobSpec) -> JobSpec:
    """Return the job with its normalized domain. Tenants do not share scans."""
    target = normalize_domain(spec.target)
    check_custom_pages(target, parse_params(spec.params))
    stream = spec.stream
    if stream is None and spec.tenant_id is not None:
        stream = default_stream(spec.source, target, spec.tenant_id)
    return replace(spec, target=target, domain=spec.domain or target, stream=stream)
