"""Replaces the key of encrypted columns: `accounts.secrets`, `triggers.secret`, `feed_subscriptions.secret` and
`secrets.value`.

This is one transaction: a process that is killed in it has changed nothing, and all processes accept both keys. Open
logins to accounts, which last some minutes, begin again.
"""

from collections.abc import Callable
from functools import partial

from msgspec import Struct
from msgspec.structs import asdict
from sqlalchemy import Column, delete, select, update

from floodmark.inbound import websub
from floodmark.inbound.tables import triggers
from floodmark.inbound.triggers import secret_label
from floodmark.model.audit import Actor
from floodmark.repositories.audit import AuditEntry, AuditLog
from floodmark.repositories.secrets import secret_label as label_of_secret
from floodmark.security.vault import Vault, mark_of
from floodmark.sources.feed.tables import feed_subscriptions
from floodmark.sources.telegram.tables import account_logins, accounts
from floodmark.store.async_engine import AsyncConnection
from floodmark.store.database import Database
from floodmark.store.tables import secrets


class Rekeyed(Struct, frozen=True, kw_only=True):
    """The number of secrets encrypted with the new key, and the mark of that key."""

    accounts: int
    triggers: int
    key: str
    feeds: int = 0
    secrets: int = 0


async def rekey(database: Database, audit: AuditLog, vault: Vault, actor: Actor) -> Rekeyed:
    """Encrypt all secrets with the new key. `Conflict` if one cannot be decrypted: then nothing is changed."""
    key = vault.begin_rotation()
    async with database.writing() as connection:
        reseal = partial(_reseal, connection, vault, key)
        done = Rekeyed(
            accounts=await reseal(accounts.c.name, accounts.c.secrets, str),
            triggers=await reseal(triggers.c.trigger_id, triggers.c.secret, secret_label),
            feeds=await reseal(feed_subscriptions.c.callback, feed_subscriptions.c.secret, websub.secret_label),
            secrets=await reseal(secrets.c.name, secrets.c.value, label_of_secret),
            key=key,
        )
        await connection.execute(delete(account_logins))
        entry = AuditEntry(action="key.rotated", what="installation", after=asdict(done))
        await audit.record_within(connection, actor, [entry])
    # After the commit: until then the old key decrypts the stored secrets.
    vault.end_rotation()
    return done


async def _reseal(  # noqa: PLR0917 - a column, its owner and its labels; used four times, right above
    connection: AsyncConnection,
    vault: Vault,
    key: str,
    owner: Column[str],
    secret: Column[str],
    label_of: Callable[[str], str],
) -> int:
    """Encrypt a column; its rows stay locked, in a fixed order, until the transaction ends."""
    query = select(owner, secret).where(secret.is_not(None)).order_by(owner).with_for_update()
    old = [(name, sealed) for name, sealed in await connection.execute(query) if mark_of(sealed) != key]
    for name, sealed in old:
        values = {secret.name: vault.reseal(sealed, label=label_of(name))}
        await connection.execute(update(owner.table).where(owner == name).values(values))
    return len(old)
