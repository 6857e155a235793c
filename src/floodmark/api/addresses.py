"""The address at which a request reached us, and where it came from: directly, through a proxy, or mounted.

A proxy with a prefix either passes on the whole path (`/monitor/jobs`), or strips the prefix and names it in
`X-Forwarded-Prefix`. API_PUBLIC_URL names it for a proxy that does not. In an application that mounts us, `root_path`
has the prefix. Headers of a proxy only decide about links, cookies and the origin of our own pages; nobody gets access
by them.
"""

import hashlib
import ipaddress
import re
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import Scope

# A request with one of these was forwarded by a proxy.
_FORWARDED = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via")
_PREFIX = re.compile(r"(/[A-Za-z0-9._~-]{1,100}){1,8}", re.ASCII)
_HOST = re.compile(r"(?:[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?", re.ASCII)
_USUAL_PORTS = (None, 80, 443)
_PUBLIC_URL = "floodmark.public_url"

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


def route_path(scope: Scope) -> str:
    """Return the path without the prefix of the application that mounts us."""
    path, root = str(scope["path"]), str(scope.get("root_path", "")).rstrip("/")
    return path[len(root) :] or "/" if root and (path == root or path.startswith(f"{root}/")) else path


def address_scope(scope: Scope, path: str, public_url: str | None) -> Scope:
    """Return the scope of a request with the path as it was split, and the prefix of a proxy that passes it on."""
    root, headers = str(scope.get("root_path", "")).rstrip("/"), Headers(scope=scope)
    prefix = _public_prefix(public_url)
    is_passed_on = path == prefix or path.startswith(f"{prefix}/")
    if prefix and not root and is_passed_on and "x-forwarded-prefix" not in headers:
        root = prefix
    if path == root:
        # The prefix alone is the first page.
        path = f"{root}/"
    return {**scope, "path": path, "root_path": root, _PUBLIC_URL: public_url}


def prefix_of(request: Request) -> str:
    """Return the path under which people reach us: where we are mounted, behind the prefix of a proxy."""
    mounted = str(request.scope.get("root_path", "")).rstrip("/")
    forwarded = _forwarded_prefix(request.headers)
    if forwarded:
        return forwarded + mounted
    prefix = _public_prefix(request.scope.get(_PUBLIC_URL))
    return prefix if prefix.endswith(mounted) and _is_public(request) else mounted


def base_url(request: Request) -> str:
    """Return the address of the installation as the caller sees it, such as https://example.org/monitor."""
    host = _host_header(request.headers)
    shown = host if _HOST.fullmatch(host) else "127.0.0.1"
    return f"{'https' if is_https(request) else 'http'}://{shown}{prefix_of(request)}"


def is_https(request: Request) -> bool:
    """Return whether the caller uses https: with us, or with the proxy in front."""
    forwarded = request.headers.get("x-forwarded-proto")
    if forwarded is not None:
        return forwarded.partition(",")[0].strip().lower() == "https"
    return request.url.scheme == "https"


def is_private(request: Request) -> bool:
    """Return whether nobody could read a request on its way: it came by https, or from this machine."""
    if is_https(request):
        return True
    is_direct = "x-forwarded-proto" not in request.headers and not _is_forwarded(request.headers)
    return is_direct and is_here(request.client.host if request.client else "")


def is_local(request: Request) -> bool:
    """Return whether a request was made on this machine, for this machine, without a proxy.

    `Host` counts, too: a web page can point its own name at this machine, but then that name is in `Host`.
    """
    if _is_forwarded(request.headers):
        return False
    return is_here(request.client.host if request.client else "") and is_here(_host_name(request))


def is_own_page(scope: Scope) -> bool | None:
    """Return whether a request was sent by one of our own pages; None if a browser would have said more."""
    headers = Headers(scope=scope)
    origin = headers.get("origin") or _origin_of(headers.get("referer"))
    if origin is None:
        site = headers.get("sec-fetch-site")
        return None if site is None else site in ("none", "same-origin")
    scheme, _, host = origin.partition("://")
    if headers.get("x-forwarded-proto", "").partition(",")[0].strip().lower() == "https" and scheme != "https":
        # A page that was changed on its way to the browser is no page of ours.
        return False
    public = urlsplit(scope.get(_PUBLIC_URL) or "")
    # A browser asks before it sends X-Forwarded-Host for another site, and is refused.
    ours = (headers.get("host"), _first(headers.get("x-forwarded-host")))
    return host in [one for one in ours if one] or (bool(public.netloc) and host == public.netloc)


def cookie_name(request: Request, name: str) -> str:
    """Return the name of a cookie for the address at which we are reached.

    `__Host-` lets browsers refuse it from other hosts and over http. Cookies are shared by all ports and paths of a
    host, so an installation at another port or prefix has another name.
    """
    parsed = _split_host(_host_header(request.headers))
    where = f"{'' if parsed[1] in _USUAL_PORTS else parsed[1]}{prefix_of(request)}"
    mark = f"_{hashlib.sha256(where.encode()).hexdigest()[:8]}" if where else ""
    return f"{'__Host-' if is_https(request) else ''}{name}{mark}"


def address_of(request: Request) -> str:
    """Return the address that failures count for; for IPv6 the network, of which a customer has every address."""
    address = ip_address(request.client.host if request.client else "")
    if isinstance(address, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((address, 64), strict=False))
    return str(address or "unknown")


def described_address(request: Request) -> str:
    """Return the address of a caller for people. That of a client behind a proxy is what the proxy says."""
    peer = str(ip_address(request.client.host if request.client else "") or "unknown")
    client = ip_address(request.headers.get("x-forwarded-for", "").rpartition(",")[2].strip())
    return peer if client is None else f"{client} via {peer}"


def is_here(host: str) -> bool:
    """Return whether a host is this machine."""
    address = ip_address(host)
    return host == "localhost" if address is None else address.is_loopback


def ip_address(host: str) -> IpAddress | None:
    """Return an address, as IPv4 if it is one; None if it is a name."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def _is_forwarded(headers: Headers) -> bool:
    return any(name in headers for name in _FORWARDED)


def _is_public(request: Request) -> bool:
    """Return whether a request came through the proxy of API_PUBLIC_URL."""
    if "x-forwarded-host" in request.headers:
        return True
    return request.headers.get("host") == urlsplit(request.scope.get(_PUBLIC_URL) or "").netloc


def _public_prefix(public_url: str | None) -> str:
    found = urlsplit(public_url or "").path.rstrip("/")
    return found if _PREFIX.fullmatch(found) else ""


def _forwarded_prefix(headers: Headers) -> str:
    # Several proxies, the outermost first.
    parts = [part.strip().rstrip("/") for part in headers.get("x-forwarded-prefix", "").split(",")]
    found = "".join(parts)
    return found if _PREFIX.fullmatch(found) else ""


def _host_header(headers: Headers) -> str:
    return _first(headers.get("x-forwarded-host")) or headers.get("host", "")


def _host_name(request: Request) -> str:
    return _split_host(request.headers.get("host", ""))[0]


def _split_host(host: str) -> tuple[str, int | None]:
    try:
        found = urlsplit(f"//{host}")
        return found.hostname or "", found.port
    except ValueError:
        return "", None


def _first(values: str | None) -> str:
    return (values or "").partition(",")[0].strip()


def _origin_of(referer: str | None) -> str | None:
    """Return the origin of the page that a request came from."""
    if referer is None:
        return None
    scheme, _, rest = referer.partition("://")
    return f"{scheme}://{re.split('[/?#]', rest, maxsplit=1)[0]}"
