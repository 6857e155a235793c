"""Handlers of secrets. Neither results nor the audit log contain values."""

from functools import cached_property

from floodmark.model.page import Page, last_key, page_of
from floodmark.model.secrets import SecretRow
from floodmark.operations.secrets import SecretOperations, SecretSet
from floodmark.repositories.secrets import StoredSecrets
from floodmark.security.vault import Vault

from .base import Handlers


class SecretHandlers(SecretOperations, Handlers):
    """Secrets in the store, encrypted."""

    async def secrets(self, *, cursor: str | None = None, limit: int = 50) -> Page[SecretRow]:
        rows = await self._secrets.page(last_key("secrets", cursor, str), limit + 1)
        return page_of(rows, limit, "secrets", lambda row: [row.name])

    async def set_secret(self, name: str, value: str) -> SecretSet:
        async with self.transaction():
            row, is_replaced = await self._secrets.put(name, value)
            await self.record("secret.replaced" if is_replaced else "secret.added", f"secret:{row.name}")
        return SecretSet(secret=row, replaced=is_replaced)

    async def remove_secret(self, name: str) -> SecretRow:
        async with self.transaction():
            row = await self._secrets.remove(name)
            await self.record("secret.removed", f"secret:{row.name}")
        return row

    @cached_property
    def _secrets(self) -> StoredSecrets:
        return StoredSecrets(self.resources.database, self.resources.clock, Vault.of(self.resources.settings))
