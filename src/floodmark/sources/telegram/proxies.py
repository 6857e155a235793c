"""The proxy of an account: its own, or else that of TELEGRAM_PROXY. Its name is resolved by the guard."""

from importlib.util import find_spec
from typing import Any

from floodmark.errors import InvalidInput, Permanent, Transient
from floodmark.model.hosts import allowed_hosts, resolved_hosts
from floodmark.model.proxies import ProxyAddress, parse_proxy
from floodmark.outbound.guard import Guard
from floodmark.settings import Settings

NO_PROXY = "none"


class ResolvedProxy:
    """A proxy and an address of it that the guard allows."""

    __slots__ = ("_proxy", "address")

    def __init__(self, proxy: ProxyAddress, address: str) -> None:
        self._proxy, self.address = proxy, address

    def __repr__(self) -> str:
        return f"ResolvedProxy({self._proxy.masked})"

    def client_options(self) -> dict[str, Any]:
        """Return the options of Telethon's client. Imports Telethon."""
        from telethon.network import ConnectionTcpMTProxyRandomizedIntermediate  # noqa: PLC0415 - slow to import

        proxy = self._proxy
        if proxy.scheme == "mtproxy":
            # With dd in front, which Telethon removes: it would cut other secrets that happen to begin with it.
            return {
                "connection": ConnectionTcpMTProxyRandomizedIntermediate,
                "proxy": (self.address, proxy.port, f"dd{proxy.secret}"),
            }
        return {"proxy": (proxy.scheme, self.address, proxy.port, True, proxy.username, proxy.password)}


async def resolve_proxy(own: str | None, settings: Settings) -> ResolvedProxy | None:
    """Return the proxy to connect through; None for none. A connection is never made without it."""
    setting = settings.telegram_proxy
    text = own or (None if setting is None else setting.get_secret_value())
    if text is None or text == NO_PROXY:
        return None
    from floodmark.outbound.connector import Names, system_lookup  # noqa: PLC0415 - slow to import

    try:
        proxy = parse_proxy(text)
    except InvalidInput as error:
        raise Permanent(str(error), hint=error.hint) from error
    if proxy.scheme != "mtproxy" and find_spec("python_socks") is None:
        raise Permanent("proxies need the package python-socks", hint="install it: pip install 'floodmark[proxy]'")
    guard = Guard(allowed_hosts(settings.http_allow_hosts or ""))
    names = Names(guard, resolved_hosts(settings.http_resolve), system_lookup)
    try:
        addresses = await names.addresses(proxy.host)
    except OSError as error:
        raise Transient(f"the proxy {proxy.masked} cannot be found: {error.strerror or error}") from error
    return ResolvedProxy(proxy, addresses[0])


def mask_proxy(text: str | None) -> str | None:
    """Return the proxy of an account as it may be shown; `InvalidInput` if it is not one."""
    return text if text in (None, NO_PROXY) else parse_proxy(text).masked
