"""Proxies of jobs: their addresses. Pure, and fast to import."""

from urllib.parse import unquote, urlsplit

from msgspec import Struct

from floodmark.errors import InvalidInput

from .hosts import plain_name

_PORTS = {"http": 8080, "socks5": 1080, "socks5h": 1080}
PROXY_EXAMPLE = "socks5://user:password@proxy.example:1080, or http://proxy.example:8080"


class ProxyAddress(Struct, frozen=True, kw_only=True):
    """The address of a proxy, with the user and the password that it wants. `is_socks`: SOCKS5, else HTTP CONNECT."""

    is_socks: bool
    host: str
    port: int
    user: str | None = None
    password: str | None = None

    def __repr__(self) -> str:
        return f"ProxyAddress({self.place!r})"

    @property
    def place(self) -> str:
        """The host and the port, without any secret."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_proxy(text: str) -> ProxyAddress:
    """Return the address of a proxy; `InvalidInput` contains no part of the text, which may have a password."""
    try:
        found = urlsplit(text.strip())
        scheme, host, port = found.scheme.lower(), found.hostname, found.port
    except ValueError:
        scheme, host, port = "", None, None
    if scheme not in _PORTS or not host or port == 0:
        raise InvalidInput("it is not the URL of a proxy", hint=f"as in {PROXY_EXAMPLE}")
    if found.path not in ("", "/") or found.query or found.fragment:
        raise InvalidInput("the URL of a proxy ends after its port", hint=f"as in {PROXY_EXAMPLE}")
    return ProxyAddress(
        is_socks=scheme != "http",
        host=plain_name(host),
        port=port or _PORTS[scheme],
        user=None if found.username is None else unquote(found.username),
        password=None if found.username is None else unquote(found.password or ""),
    )
