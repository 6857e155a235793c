"""Secrets that jobs refer to by name, encrypted. Table: `secrets`, written when a secret is set or removed."""

from collections.abc import Collection

from sqlalchemy import delete, select

from floodmark.errors import InvalidInput, NotFound
from floodmark.model.clock import Clock
from floodmark.model.secrets import LONGEST_SECRET, SecretRow, secret_name
from floodmark.security.vault import Vault
from floodmark.store.database import Database
from floodmark.store.tables import secrets

from .repository import Repository, bound_limit

MOST_SHOWN = 500
_SHOWN = select(*(secrets.c[name] for name in SecretRow.__struct_fields__))


def secret_label(name: str) -> str:
    """Return the label that a secret is encrypted for."""
    return f"secret:{name}"


class StoredSecrets(Repository):
    """Writes secrets, and reads them for the workers of jobs."""

    def __init__(self, database: Database, clock: Clock, vault: Vault) -> None:
        super().__init__(database, clock)
        self._vault = vault

    async def page(self, after: str | None, limit: int) -> list[SecretRow]:
        """Return secrets without their values, sorted by name. The next page is `after` the last name."""
        query = _SHOWN if after is None else _SHOWN.where(secrets.c.name > after)
        async with self._database.reading() as connection:
            rows = await connection.execute(query.order_by(secrets.c.name).limit(bound_limit(limit, MOST_SHOWN)))
            return [SecretRow(**row) for row in rows.mappings()]

    async def show(self, name: str) -> SecretRow:
        """Return a secret without its value."""
        found = await self._find(secret_name(name))
        if found is None:
            raise NotFound(f"there is no secret {name[:80]!r}", hint="list them with: floodmark secrets ls")
        return found

    async def put(self, name: str, value: str) -> tuple[SecretRow, bool]:
        """Store a secret; return it, and whether it has replaced one."""
        name = secret_name(name)
        if not value or len(value) > LONGEST_SECRET or not value.isprintable():
            raise InvalidInput(
                f"a secret is one line of 1 to {LONGEST_SECRET:,} printable characters",
                hint="write a user and a password as user:password, and a proxy as socks5://user:password@host:1080",
            )
        sealed = self._vault.seal(value, label=secret_label(name))
        insert = self._insert_into(secrets).values(name=name, value=sealed)
        replace = insert.on_conflict_do_update(
            index_elements=["name"], set_={"value": sealed, "changed_at": self._now()}
        )
        async with self._database.writing() as connection:
            is_replaced = await self._find(name) is not None
            await connection.execute(replace)
            row = (await connection.execute(_SHOWN.where(secrets.c.name == name))).mappings().one()
        return SecretRow(**row), is_replaced

    async def remove(self, name: str) -> SecretRow:
        """Remove a secret; return what it was."""
        async with self._database.writing() as connection:
            before = await self.show(name)
            await connection.execute(delete(secrets).where(secrets.c.name == before.name))
        return before

    async def values(self, names: Collection[str]) -> dict[str, str]:
        """Return the values of those of these secrets that are stored, by name."""
        wanted = sorted({secret_name(name) for name in names})
        if not wanted:
            return {}
        query = select(secrets.c.name, secrets.c.value).where(secrets.c.name.in_(wanted))
        async with self._database.reading() as connection:
            found = (await connection.execute(query)).all()
        return {name: self._vault.open(sealed, label=secret_label(name)) for name, sealed in found}

    async def _find(self, name: str) -> SecretRow | None:
        async with self._database.reading() as connection:
            row = (await connection.execute(_SHOWN.where(secrets.c.name == name))).mappings().first()
        return None if row is None else SecretRow(**row)
