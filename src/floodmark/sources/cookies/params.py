"""What a job says about a scan: the domain in its one form, and how far to look."""

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

_HOST = re.compile(
    r"(?=.{1,253}$)(?:[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?", re.ASCII
)
_LONGEST_URL = 2000
_MOST_CUSTOM_PAGES = 1000
_FORM = "name it as example.com, or example.com:8443"

Address = Annotated[str, Meta(min_length=1, max_length=_LONGEST_URL)]
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
    """How a domain is scanned."""

    allow_deep_scan: bool = False
    """Whether links are followed; without it only the start page and `customPages` are visited."""
    max_pages: Annotated[int, Meta(ge=1)] = 20
    """How many pages are visited in each phase, the start page among them."""
    scan_depth: Annotated[int, Meta(ge=0)] = 2
    """How many links away from the start page a page may be."""
    max_retries: Annotated[int, Meta(ge=0, le=1000)] = 2
    """How often a page that could not be loaded is loaded again."""
    custom_pages: Annotated[tuple[Address, ...], Meta(max_length=_MOST_CUSTOM_PAGES)] = ()
    """Pages that are visited in any case: paths, or addresses of the same site."""
    accept_selector: Selector | None = None
    """The button that gives consent, if it is not one of a banner that is known."""
    reject_selector: Selector | None = None
    """The button that refuses it."""
    insecure: bool = False
    """Scan although the certificate is not valid; the report says so."""


_KNOWN = frozenset(field.encode_name for field in msgspec.structs.fields(CookieParams))
# A sync stores the description of a schedule beside its params; a scan does not read it.
NAMES = _KNOWN | {"description"}


def parse_params(params: Mapping[str, Any]) -> CookieParams:
    """The params of a job, checked; names that a scan does not know are ignored."""
    # Null is what others write for "not said".
    said = {name: value for name, value in params.items() if name in _KNOWN and value is not None}
    try:
        return msgspec.convert(said, CookieParams, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidInput(
            f"a cookie scan cannot be done like that: {str(error)[:300]}",
            hint="see what there is to say: floodmark add --help",
        ) from None


def canonical(text: str) -> str:
    """The one name under which a domain is a target: in lower case, without scheme or path, with a port if need be."""
    said = text.strip()
    if len(said) > _LONGEST_URL:
        raise _refused(said, "is too long")
    if "://" not in said:
        said = f"https://{said}"
    try:
        parts = urlsplit(said)
        port = parts.port
        host = _host(parts.hostname or "")
    except ValueError as error:
        raise _refused(text, f"is not a domain: {error}") from None
    if parts.scheme not in ("http", "https") or parts.username is not None or parts.password is not None:
        raise _refused(text, "is not a domain")
    if parts.path not in ("", "/") or parts.query or parts.fragment:
        raise InvalidInput(
            f"{text[:80]!r} is a page, and a scan is of a domain",
            hint=f"scan {host} and name the page: --custom-page {parts.path or '/'}",
        )
    usual = {"https": 443, "http": None}[parts.scheme]
    return host if port in (None, usual) else f"{host}:{port}"


def _host(name: str) -> str:
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


def _refused(text: str, why: str) -> InvalidInput:
    return InvalidInput(f"{text[:80]!r} {why}", hint=_FORM)


def start_urls(domain: str) -> tuple[str, ...]:
    """Where a scan begins: encrypted, or else, if nobody answers there, not."""
    return (f"https://{domain}/", f"http://{domain}/")


def custom_urls(params: CookieParams, start: str) -> list[str]:
    """The pages that were named, as addresses, in their order, each once."""
    return list(dict.fromkeys(urljoin(start, page.strip()) for page in params.custom_pages))


def check_custom_pages(domain: str, params: CookieParams) -> None:
    """Refuse pages of another site: a scan is of one domain."""
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


def completed(spec: JobSpec) -> JobSpec:
    """A job to be made, with its domain in its one form. Tenants do not share their scans."""
    target = canonical(spec.target)
    check_custom_pages(target, parse_params(spec.params))
    stream = spec.stream
    if stream is None and spec.tenant_id is not None:
        stream = default_stream(spec.source, target, spec.tenant_id)
    return replace(spec, target=target, domain=spec.domain or target, stream=stream)
