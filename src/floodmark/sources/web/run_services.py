"""The services of one run of a job: with the secrets that it refers to, and with its proxy."""

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

from msgspec.structs import replace

from floodmark.errors import Conflict, InvalidInput, Permanent
from floodmark.extensions.services import Services
from floodmark.model.proxies import ProxyAddress, parse_proxy
from floodmark.repositories.secrets import StoredSecrets
from floodmark.security.vault import Vault

from .request_headers import read_secret


@asynccontextmanager
async def prepare_services(services: Services, names: Collection[str], proxy: str) -> AsyncIterator[Services]:
    """Yield services whose `section` has the secrets of these names, and that use the proxy of the job or WEB_PROXY.

    A secret in the settings of the worker, WEB_SECRET_..., is used instead of a stored one of the same name.
    """
    wanted = {name.upper() for name in (*names, *([proxy] if proxy else []))}
    own = services.settings.section("web")
    missing = {name for name in wanted if not own.get(f"secret_{name.lower()}")}
    stored: dict[str, str] = {}
    if missing:
        stored = await _read_stored(services, missing)
    section = {**services.section, **own, **{f"secret_{name.lower()}": value for name, value in stored.items()}}
    found = replace(services, section=section)
    address, is_trusted = find_proxy(found, proxy)
    if address is None:
        yield found
        return
    from floodmark.outbound.proxy_connector import require_proxy_package  # noqa: PLC0415 - few jobs have a proxy

    require_proxy_package()
    async with services.guarded_http.through(address, is_trusted=is_trusted) as http:
        yield replace(found, guarded_http=http, http=services.http.through(http))


async def _read_stored(services: Services, names: Collection[str]) -> dict[str, str]:
    try:
        return await StoredSecrets(services.database, services.clock, Vault.of(services.settings)).values(names)
    except Conflict as error:
        # Another key than the one that it was stored with: trying again does not help.
        raise Permanent(str(error), hint=error.hint) from None


def find_proxy(services: Services, name: str) -> tuple[ProxyAddress | None, bool]:
    """Return the proxy of a job or of the settings, and whether it is that of the settings."""
    setting = services.settings.web_proxy
    text = read_secret(name, services.section) if name else setting
    if not text:
        return None, False
    where = f"the secret {name.upper()}" if name else "WEB_PROXY"
    try:
        proxy = parse_proxy(text)
        if proxy.scheme == "mtproxy":
            raise InvalidInput("an MTProxy leads to Telegram only", hint="use a SOCKS5 or an HTTP proxy")
        return proxy, not name
    except InvalidInput as error:
        raise Permanent(f"{where} has no proxy: {error}", hint=error.hint) from None
