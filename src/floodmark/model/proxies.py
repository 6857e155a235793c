"""Proxies through which sources connect: their URLs, and how they are shown. Pure.

socks5://USER:PASSWORD@HOST:PORT     also http:// for a proxy with CONNECT
mtproxy://SECRET@HOST:PORT           Telegram's own kind
https://t.me/proxy?server=...        links to either, as Telegram apps share them
"""

import base64
import binascii
import re
from typing import Literal
from urllib.parse import parse_qs, unquote, urlsplit

from floodmark.errors import InvalidInput

from .hosts import plain_name

ProxyScheme = Literal["socks5", "http", "mtproxy"]

_FORMS = "write it as socks5://HOST:PORT, http://USER:PASSWORD@HOST:PORT or, for Telegram, mtproxy://SECRET@HOST:PORT"
_PORTS = {"http": 8080, "socks5": 1080}
_HEX = re.compile(r"[0-9a-fA-F]+", re.ASCII)
_SECRET_BYTES = 16
_FAKE_TLS, _PADDED = 0xEE, 0xDD


class ProxyAddress:
    """A proxy. Not a struct, so that no printing of it can expose its password or secret."""

    __slots__ = ("host", "password", "port", "scheme", "secret", "username")

    def __init__(
        self,
        scheme: ProxyScheme,
        host: str,
        port: int,
        *,
        username: str | None = None,
        password: str | None = None,
        secret: str | None = None,
    ) -> None:
        self.scheme, self.host, self.port = scheme, host, port
        self.username, self.password, self.secret = username, password, secret

    def __repr__(self) -> str:
        return self.masked

    @property
    def place(self) -> str:
        """The host and the port, without any secret."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def masked(self) -> str:
        """Return the URL without password and secret."""
        hidden = "***@" if self.username or self.secret else ""
        return f"{self.scheme}://{hidden}{self.place}"


def parse_proxy(text: str) -> ProxyAddress:
    """Return the proxy of a URL or link. `InvalidInput`, which does not repeat the text: it contains secrets."""
    try:
        parts = urlsplit(text.strip())
        if parts.scheme == "tg" or (parts.hostname or "").lower() in ("t.me", "telegram.me"):
            return _parse_link(parts.netloc if parts.scheme == "tg" else parts.path.strip("/"), parts.query)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise InvalidInput("that is not the address of a proxy", hint=_FORMS) from None
    if parts.path not in ("", "/") or parts.query or parts.fragment:
        raise InvalidInput("the URL of a proxy ends after its port", hint=_FORMS)
    username, password = (None if each is None else unquote(each) for each in (parts.username, parts.password))
    if parts.scheme in ("mtproxy", "mtproto"):
        return _make("mtproxy", host, port, secret=password or username)
    if parts.scheme in ("socks5", "socks5h", "http"):
        scheme: ProxyScheme = "http" if parts.scheme == "http" else "socks5"
        port = _PORTS[scheme] if port is None else port
        password = None if username is None else password or ""
        return _make(scheme, host, port, username=username, password=password)
    raise InvalidInput("this kind of proxy is not supported", hint=_FORMS)


def _parse_link(action: str, query: str) -> ProxyAddress:
    given = {name: values[0] for name, values in parse_qs(query).items()}
    port = int(given.get("port") or 0)
    if action == "proxy":
        return _make("mtproxy", given.get("server"), port, secret=given.get("secret"))
    if action == "socks":
        return _make("socks5", given.get("server"), port, username=given.get("user"), password=given.get("pass"))
    raise InvalidInput("that link is not one of a proxy", hint=_FORMS)


def _make(
    scheme: ProxyScheme,
    host: str | None,
    port: int | None,
    *,
    username: str | None = None,
    password: str | None = None,
    secret: str | None = None,
) -> ProxyAddress:
    if not host or not port or not 0 < port < 65536:
        raise InvalidInput("the address of the proxy has no host or no port", hint=_FORMS)
    host = plain_name(host)
    if scheme == "mtproxy":
        return ProxyAddress(scheme, host, port, secret=_normalise_secret(secret or ""))
    return ProxyAddress(scheme, host, port, username=username, password=password)


def _normalise_secret(text: str) -> str:
    """Return the 16 bytes of a secret in hexadecimal; a secret is written so or in base64."""
    try:
        if _HEX.fullmatch(text) and len(text) % 2 == 0:
            found = bytes.fromhex(text)
        else:
            found = base64.urlsafe_b64decode(text.translate({ord("+"): "-", ord("/"): "_"}) + "=" * (-len(text) % 4))
    except (ValueError, binascii.Error):
        found = b""
    if len(found) > _SECRET_BYTES and found[0] == _FAKE_TLS:
        raise InvalidInput(
            "this MTProxy imitates TLS (its secret begins with ee), which is not supported",
            hint="use a proxy whose secret begins with dd, or a SOCKS5 proxy",
        )
    if len(found) == _SECRET_BYTES + 1 and found[0] == _PADDED:
        found = found[1:]
    if len(found) != _SECRET_BYTES:
        raise InvalidInput("the secret of the MTProxy is not valid", hint="it has 32 hexadecimal digits, or dd and 32")
    return found.hex()
