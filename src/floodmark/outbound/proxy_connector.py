"""Opens connections through a proxy for aiohttp.

The guard checks two addresses: that of the proxy, and that of the target. The target's name is resolved here, and the
proxy is asked for the address that was checked, so that the proxy cannot be led to another one.
"""

import asyncio
import socket
import ssl
from collections.abc import Sequence
from typing import Any

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.client_reqrep import ClientRequest

from floodmark.errors import Permanent
from floodmark.model.proxies import ProxyAddress

from .connector import Names, RefusedSocketError, requested_host
from .guard import AddressRefused, Guard

# Addresses of a target that are tried, one after the other.
_MOST_ADDRESSES = 4
_CONNECT_SECONDS = 20.0


class ProxyConnector(aiohttp.TCPConnector):
    """Connects to checked addresses of targets through one proxy."""

    def __init__(self, guard: Guard, names: Names, proxy: ProxyAddress, *, proxy_names: Names) -> None:
        super().__init__(resolver=names, ttl_dns_cache=60)
        self._guard, self._proxy, self._proxy_names = guard, proxy, proxy_names

    # aiohttp has no public way to open connections otherwise; `test_web_proxies.py` fails if this one changes.
    async def _wrap_create_connection(
        self,
        *args: Any,
        addr_infos: list[Any],
        req: ClientRequest,
        timeout: aiohttp.ClientTimeout,
        client_error: type[Exception] = aiohttp.ClientConnectorError,
        **kwargs: Any,
    ) -> tuple[asyncio.Transport, ResponseHandler]:
        addresses = [info[4] for info in addr_infos[:_MOST_ADDRESSES]]
        # Otherwise aiohttp would try the rest of them again.
        addr_infos.clear()
        try:
            sock = await self._open_tunnel(addresses)
            made: tuple[Any, Any] = await asyncio.get_running_loop().create_connection(*args, **kwargs, sock=sock)
            return made
        except ssl.CertificateError as error:
            raise aiohttp.ClientConnectorCertificateError(req.connection_key, error) from error
        except ssl.SSLError as error:
            raise aiohttp.ClientConnectorSSLError(req.connection_key, error) from error
        except OSError as error:
            raise client_error(req.connection_key, error) from error

    async def _open_tunnel(self, addresses: Sequence[Any]) -> socket.socket:
        """Return a socket that is connected to the first address that the proxy reaches."""
        failed: OSError = OSError("the target has no address")
        for host, port, *_ in addresses:
            try:
                self._guard.check_address(requested_host.get(), host)
                async with asyncio.timeout(_CONNECT_SECONDS):
                    return await self._ask_proxy(host, port)
            except AddressRefused as refused:
                raise RefusedSocketError(refused) from None
            except TimeoutError:
                failed = OSError(f"the proxy {self._proxy.place} does not answer")
            except OSError as error:
                failed = error
        raise failed

    async def _ask_proxy(self, host: str, port: int) -> socket.socket:
        from python_socks import ProxyError, ProxyType  # noqa: PLC0415 - an optional package
        from python_socks.async_.asyncio import Proxy  # noqa: PLC0415

        proxy = self._proxy
        # Names return only addresses that the guard of proxies allows.
        place = (await self._proxy_names.addresses(proxy.host))[0]
        made = Proxy(
            ProxyType.SOCKS5 if proxy.scheme == "socks5" else ProxyType.HTTP,
            place,
            proxy.port,
            username=proxy.username,
            password=proxy.password,
            rdns=False,
        )
        try:
            return await made.connect(host, port)
        except (ProxyError, OSError) as error:
            # Telethon replaces ProxyError by an OSError for the whole process when it connects through a proxy itself.
            # Both have a code.
            if hasattr(error, "error_code"):
                raise OSError(f"the proxy {proxy.place} refuses: {error}") from None
            raise OSError(f"the proxy {proxy.place} cannot be reached: {error.strerror or error}") from None


def require_proxy_package() -> None:
    """Raise `Permanent` if the package for proxies is not installed."""
    try:
        import python_socks  # noqa: F401, PLC0415 - only whether it is there
    except ImportError:
        raise Permanent("this worker cannot use proxies", hint="install them: pip install 'floodmark[proxy]'") from None
