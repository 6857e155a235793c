"""Logins that wait for their code or password. Table: `account_logins`; a row lasts ten minutes, and is deleted when
the login is completed, cancelled or refused too often.

They are stored, so that any server process can take the next step. The id is a secret that only the caller who began
the login has; a digest of it is stored. `secrets` has the session and the hash of the code, encrypted.
"""

import hashlib
import secrets
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec import Struct
from sqlalchemy import ColumnElement, delete, func, select, update

from floodmark.errors import Conflict, FloodmarkError, NotFound
from floodmark.model.clock import Clock
from floodmark.repositories.repository import Repository
from floodmark.security.vault import Vault
from floodmark.store.database import Database

from .tables import account_logins

LASTS = timedelta(minutes=10)
MOST_OPEN, MOST_TRIES = 20, 5
_ID_BYTES = 24


class StoredLogin(Struct, frozen=True, kw_only=True):
    """A login that waits, without its secrets."""

    account: str
    step: str
    how: str
    tries: int
    expires_at: datetime


class StoredLogins(Repository):
    """The repository of logins. Every method acts for the `owner` who began the login."""

    def __init__(self, database: Database, clock: Clock, vault: Vault) -> None:
        super().__init__(database, clock)
        self._vault = vault

    async def add(self, owner: str, account: str, how: str, values: Mapping[str, Any]) -> str:
        """Store a login that waits for its code, instead of an earlier one to the same account; return its id."""
        login_id = secrets.token_urlsafe(_ID_BYTES)
        row = {
            "login_id": _digest(login_id),
            "owner": owner,
            "account": account,
            "step": "code",
            "how": how,
            "secrets": self._vault.seal(msgspec.json.encode(values).decode(), label=_label(login_id)),
            "created_at": self._now(),
            "expires_at": self._now(LASTS),
        }
        async with self._database.writing() as connection:
            await connection.execute(self._superseded(owner, account))
            await connection.execute(self._insert_into(account_logins).values(**row))
        return login_id

    async def require_room(self, owner: str, account: str) -> None:
        """Raise `Conflict` if too many logins are open, before Telegram is asked for a code."""
        async with self._database.writing() as connection:
            await connection.execute(self._superseded(owner, account))
            count = (await connection.execute(select(func.count()).select_from(account_logins))).scalar_one()
        if count >= MOST_OPEN:
            raise Conflict(
                f"{count} logins wait for their code: there are not more at once", hint="try again in some minutes"
            )

    async def show(self, owner: str, login_id: str) -> StoredLogin:
        """Return a login that waits. `NotFound` if it has ended, or belongs to somebody else."""
        columns = [account_logins.c[name] for name in StoredLogin.__struct_fields__]
        rows = await self._database.fetch(select(*columns).where(*self._this(owner, login_id)))
        if not rows:
            raise _ended()
        return StoredLogin(**rows[0])

    async def begin_try(self, owner: str, login_id: str) -> Mapping[str, Any]:
        """Count a try before it is made, and return the values of `add`. `NotFound` after too many."""
        query = update(account_logins).where(*self._this(owner, login_id), account_logins.c.tries < MOST_TRIES)
        async with self._database.writing() as connection:
            counted = await connection.execute(query.values(tries=account_logins.c.tries + 1))
            found = select(account_logins.c.secrets).where(*self._this(owner, login_id))
            sealed = (await connection.execute(found)).scalar()
        if not counted.rowcount or sealed is None:
            raise _ended()
        try:
            values: Mapping[str, Any] = msgspec.json.decode(self._vault.open(sealed, label=_label(login_id)))
        except FloodmarkError as error:
            raise _ended() from error
        return values

    async def expect_password(self, owner: str, login_id: str) -> None:
        """Note that the code was right and a password is required."""
        query = update(account_logins).where(*self._this(owner, login_id))
        async with self._database.writing() as connection:
            await connection.execute(query.values(step="password", tries=0))

    async def end(self, owner: str, login_id: str) -> bool:
        """Delete a login; return whether it was there."""
        async with self._database.writing() as connection:
            ended = await connection.execute(delete(account_logins).where(*self._this(owner, login_id)))
        return bool(ended.rowcount)

    def _this(self, owner: str, login_id: str) -> tuple[ColumnElement[bool], ...]:
        cell = account_logins.c
        return cell.login_id == _digest(login_id), cell.owner == owner, cell.expires_at > self._now()

    def _superseded(self, owner: str, account: str) -> Any:
        cell = account_logins.c
        is_same = (cell.owner == owner) & (cell.account == account)
        return delete(account_logins).where(is_same | (cell.expires_at <= self._now()))


def _digest(login_id: str) -> str:
    return hashlib.sha256(login_id.encode()).hexdigest()


def _label(login_id: str) -> str:
    return f"login:{_digest(login_id)}"


def _ended() -> NotFound:
    return NotFound(
        "this login has ended: it took too long, or was refused too often", hint="begin again: a new code is sent"
    )
