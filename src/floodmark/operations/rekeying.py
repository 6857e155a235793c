"""Replaces the key of encrypted columns: `accounts.secrets` and `triggers.secret`.

This is one transaction: a process that is killed in it has changed nothing, and all processes accept both keys.
"""

from msgspec import Struct
from msgspec.structs import asdict
from sqlalchemy import Column, Table, select, update

from floodmark.inbound.tables import triggers
from floodmark.inbound.triggers import secret_label
from floodmark.model.audit import Actor
from floodmark.security.vault import Vault, mark_of
from floodmark.sources.telegram.tables import accounts
from floodmark.store.async_engine import AsyncConnection
from floodmark.store.audit import AuditEntry, AuditLog
from floodmark.store.database import Database


class Rekeyed(Struct, frozen=True, kw_only=True):
    """The number of secrets encrypted with the new key, and the mark of that key."""

    accounts: int
    triggers: int
    key: str


async def rekey(database: Database, audit: AuditLog, vault: Vault, actor: Actor) -> Rekeyed:
    """Encrypt all secrets with the new key. `Conflict` if one cannot be decrypted: then nothing is changed."""
    key = vault.begin_rotation()
    async with database.writing() as connection:
        people = await _reseal(connection, vault, key, accounts, accounts.c.name, accounts.c.secrets)
        hooks = await _reseal(connection, vault, key, triggers, triggers.c.trigger_id, triggers.c.secret)
        done = Rekeyed(accounts=people, triggers=hooks, key=key)
        entry = AuditEntry(action="key.rotated", what="installation", after=asdict(done))
        await audit.record_within(connection, actor, [entry])
    # After the commit: until then the old key decrypts the stored secrets.
    vault.end_rotation()
    return done


async def _reseal(  # noqa: PLR0917 - a table, its key and its secret; used twice, right above
    connection: AsyncConnection, vault: Vault, key: str, table: Table, owner: Column[str], secret: Column[str]
) -> int:
    """Encrypt a column; its rows stay locked, in a fixed order, until the transaction ends."""
    query = select(owner, secret).where(secret.is_not(None)).order_by(owner).with_for_update()
    old = [(name, sealed) for name, sealed in await connection.execute(query) if mark_of(sealed) != key]
    for name, sealed in old:
        label = secret_label(name) if table is triggers else name
        await connection.execute(
            update(table).where(owner == name).values({secret.name: vault.reseal(sealed, label=label)})
        )
    return len(old)
