"""Accounts and the leases of their sessions. Table: `accounts`; in `jobs`, the jobs that a lost account has paused; in
`leases`, requests for a session that another process has open.

`secrets` is one encrypted JSON object: the hash of the application, the session, the phone number, the proxy. Of the
last two, the columns `phone` and `proxy` contain only the part that may be shown. `updated_at` changes when an account
is stored, parked or activated; a lease changes only `holder`, `lease_until` and `last_used_at`.
"""

import base64
import binascii
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, case, delete, func, literal, or_, select, text, update

from floodmark.coordination.leases.sql import SqlLeases
from floodmark.errors import Conflict, FloodmarkError, InvalidInput, NotFound
from floodmark.model.accounts import AccountRow, Added
from floodmark.model.clock import Clock
from floodmark.observability.events import AccountParked, Events
from floodmark.security.vault import Vault
from floodmark.store.async_engine import AsyncConnection
from floodmark.store.database import Database
from floodmark.store.dialects import insert_into, present
from floodmark.store.tables import jobs

from .proxies import mask_proxy
from .tables import accounts, telegram_channels

_MAX_PAGE = 500
NO_ACCOUNT = "(none)"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_KEY_BYTES = 256
# Longer than the time between two tries of a run that waits for a session.
_REQUEST_TTL = timedelta(minutes=1)
_ONE_AT_A_TIME = text("SELECT pg_advisory_xact_lock(hashtext('floodmark.accounts'))")


class Secrets:
    """The secrets of an account. Not a struct, so that no printing or encoding of an account can expose them."""

    __slots__ = ("api_hash", "identity", "phone", "proxy", "session")

    def __init__(
        self,
        *,
        api_hash: str,
        session: str,
        phone: str | None = None,
        identity: int | None = None,
        proxy: str | None = None,
    ) -> None:
        self.api_hash, self.session, self.phone, self.identity = api_hash, session, phone, identity
        self.proxy = proxy

    def __repr__(self) -> str:
        return "***"


class TelegramAccount(AccountRow, frozen=True, kw_only=True):
    """An account with its secrets."""

    secrets: Secrets

    @property
    def session(self) -> str:
        """Return the session as text (Telethon's `StringSession`)."""
        return self.secrets.session

    @property
    def api_hash(self) -> str:
        """Return the hash that belongs to `api_id`."""
        return self.secrets.api_hash


class Accounts:
    """Stores accounts, and leases each session to one process at a time."""

    def __init__(self, database: Database, clock: Clock, vault: Vault, events: Events | None = None) -> None:
        self._database, self._clock, self._vault = database, clock, vault
        self._events = events or Events()
        self._requests = SqlLeases(database, clock)

    async def add(
        self,
        name: str,
        *,
        api_id: int,
        api_hash: str,
        session: str,
        phone: str | None = None,
        identity: int | None = None,
        proxy: str | None = None,
        tenant_id: str | None = None,
        user_id: str | None = None,
        replace: bool = False,
    ) -> Added:
        """Store an active account, and resume the jobs that waited for it or for any account.

        `Conflict` if the name is taken (unless `replace`), or if another account has the same session. A process that
        has the session of a replaced account open keeps it open. `identity` is the user id at Telegram.
        """
        check_name(name)
        secrets = Secrets(api_hash=api_hash, session=session, phone=phone, identity=identity, proxy=proxy)
        sealed, now = self._vault.seal(_encode(secrets), label=name), present(self._database, self._clock)
        values = {
            "api_id": api_id,
            "secrets": sealed,
            "phone": mask_phone(phone),
            "proxy": mask_proxy(proxy),
            # A takeout session belongs to a session.
            "takeout_id": None,
            "tenant_id": tenant_id,
            "user_id": user_id,
            "state": "active",
            "reason": None,
            "updated_at": now,
        }
        async with self._database.writing() as connection:
            # One at a time: otherwise two processes could store one session under two names.
            if self._database.dialect == "postgresql":
                await connection.execute(_ONE_AT_A_TIME)
            before = await self._encrypted_secrets(connection)
            if name in before and not replace:
                raise name_taken(name)
            twin = self._twin(before, session)
            if twin not in (None, name):
                raise same_session(str(twin))
            if name in before:
                await self._forget_channels(connection, name, before[name], identity)
            statement = insert_into(self._database, accounts).values(name=name, created_at=now, **values)
            await connection.execute(statement.on_conflict_do_update(index_elements=["name"], set_=values))
            resumed = await self._resume(connection, (name, NO_ACCOUNT))
            return Added(account=await self._row(connection, name), replaced=name in before, resumed=resumed)

    async def page(self, after: str | None = None, limit: int = 100) -> list[AccountRow]:
        """Return accounts in order of name, at most 500. The next page starts `after` the last name."""
        query = self._rows() if after is None else self._rows().where(accounts.c.name > after)
        async with self._database.reading() as connection:
            rows = await connection.execute(query.order_by(accounts.c.name).limit(max(1, min(limit, _MAX_PAGE))))
            return [AccountRow(**row) for row in rows.mappings()]

    async def active(self, tenant_id: str | None = None) -> list[AccountRow]:
        """Return the active accounts that a tenant may use: its own, then those without a tenant; without one, all."""
        return await self._in_state("active", tenant_id)

    async def parked(self, tenant_id: str | None = None) -> list[AccountRow]:
        """Return the accounts that a tenant could use if they were not parked."""
        return await self._in_state("parked", tenant_id)

    async def _in_state(self, state: str, tenant_id: str | None) -> list[AccountRow]:
        query = self._rows().where(accounts.c.state == state)
        if tenant_id is not None:
            query = query.where(or_(accounts.c.tenant_id == tenant_id, accounts.c.tenant_id.is_(None)))
        query = query.order_by(accounts.c.tenant_id.is_(None), accounts.c.name)
        async with self._database.reading() as connection:
            return [AccountRow(**row) for row in (await connection.execute(query)).mappings()]

    async def get(self, name: str) -> TelegramAccount:
        """Return an account with its secrets. `NotFound`; `Conflict` if this process cannot decrypt them."""
        async with self._database.reading() as connection:
            query = self._rows().add_columns(accounts.c.secrets).where(accounts.c.name == name)
            row = (await connection.execute(query)).mappings().first()
            if row is None:
                raise await _unknown(connection, name)
        return TelegramAccount(**{**row, "secrets": self._decrypt(name, row["secrets"])})

    async def show(self, name: str) -> AccountRow:
        """Return an account without its secrets. The hint of `NotFound` lists the existing accounts."""
        async with self._database.reading() as connection:
            return await self._row(connection, name)

    async def with_session(self, session: str) -> str | None:
        """Return the name of the account that has this session; None if there is none."""
        async with self._database.reading() as connection:
            return self._twin(await self._encrypted_secrets(connection), session)

    async def jobs_of(self, name: str) -> list[str]:
        """Return the names of the jobs that name this account: the first of them, in order."""
        async with self._database.reading() as connection:
            return await _jobs_of(connection, name)

    async def count_jobs(self, name: str) -> int:
        """Return the number of jobs that name this account."""
        query = select(func.count()).select_from(jobs).where(jobs.c.account == name)
        async with self._database.reading() as connection:
            return int((await connection.execute(query)).scalar_one())

    async def remove(self, name: str, *, force: bool = False) -> list[str]:
        """Delete an account and its known channels. Return the first names of jobs that name it; they stay.

        `Conflict` while a process has its session open; with `force`, that process notices when it renews its lease.
        """
        async with self._database.writing() as connection:
            query = delete(accounts).where(accounts.c.name == name)
            gone = await connection.execute(query if force else query.where(or_(*self._is_free())))
            if not gone.rowcount:
                raise _in_use(await self._row(connection, name), "stop that process first, or pass --force")
            await self._keep_channel_names(connection, name)
            await connection.execute(delete(telegram_channels).where(telegram_channels.c.account == name))
            return await _jobs_of(connection, name)

    async def park(self, name: str, reason: str, *, seen: AccountRow | None = None) -> bool:
        """Stop the use of an account until a person has checked it. Return False if it was parked or deleted already.

        With `seen`, an account that was stored again since is not parked: the error was that of its older session.
        """
        query = update(accounts).where(accounts.c.name == name, accounts.c.state == "active")
        if seen is not None:
            query = query.where(accounts.c.updated_at == seen.updated_at)
        now = present(self._database, self._clock)
        async with self._database.writing() as connection:
            parked = await connection.execute(query.values(state="parked", reason=reason, updated_at=now))
        if parked.rowcount:
            self._events.emit(AccountParked(account=name, reason=reason))
        return bool(parked.rowcount)

    async def activate(self, name: str) -> Added:
        """Use an account again, and resume the jobs that waited for it or for any account."""
        now = present(self._database, self._clock)
        async with self._database.writing() as connection:
            query = update(accounts).where(accounts.c.name == name, accounts.c.state == "parked")
            await connection.execute(query.values(state="active", reason=None, updated_at=now))
            row = await self._row(connection, name)
            return Added(account=row, replaced=False, resumed=await self._resume(connection, (name, NO_ACCOUNT)))

    async def lease(self, name: str, *, holder: str, ttl: timedelta) -> bool:
        """Acquire or renew the lease of the session. Return False if it is held elsewhere or does not exist."""
        now = present(self._database, self._clock)
        query = update(accounts).where(accounts.c.name == name, or_(accounts.c.holder == holder, *self._is_free()))
        until = present(self._database, self._clock, ttl)
        async with self._database.writing() as connection:
            taken = await connection.execute(query.values(holder=holder, lease_until=until, last_used_at=now))
        return bool(taken.rowcount)

    async def takeout(self, name: str) -> int | None:
        """Return the open takeout session of an account."""
        async with self._database.reading() as connection:
            query = select(accounts.c.takeout_id).where(accounts.c.name == name)
            found: int | None = (await connection.execute(query)).scalar()
            return found

    async def store_takeout(self, name: str, takeout_id: int | None) -> None:
        """Store the takeout session that was begun, or that it has ended."""
        query = update(accounts).where(accounts.c.name == name)
        async with self._database.writing() as connection:
            await connection.execute(query.values(takeout_id=takeout_id))

    async def release(self, name: str, *, holder: str) -> None:
        """Release the lease of the session, if `holder` still holds it."""
        query = update(accounts).where(accounts.c.name == name, accounts.c.holder == holder)
        async with self._database.writing() as connection:
            await connection.execute(query.values(holder=None, lease_until=None))

    async def request_session(self, name: str, *, holder: str) -> None:
        """Ask the process that has the session open to close it once it is idle. The request ends after a minute."""
        await self._requests.acquire(_request_for(name), holder=holder, ttl=_REQUEST_TTL)

    async def is_requested(self, name: str, *, holder: str) -> bool:
        """Return whether a process other than `holder` asks for the session."""
        return await self._requests.holder(_request_for(name)) not in (None, holder)

    async def holder(self, name: str) -> str | None:
        """Return the process that holds the lease of the session now."""
        now = present(self._database, self._clock)
        query = select(accounts.c.holder).where(accounts.c.name == name, accounts.c.lease_until > now)
        async with self._database.reading() as connection:
            found: str | None = (await connection.execute(query)).scalar()
            return found

    @asynccontextmanager
    async def hold(self, name: str, *, holder: str, ttl: timedelta) -> AsyncIterator[None]:
        """Hold the lease during a block that must end within `ttl`. `Conflict` if another process holds it."""
        if not await self.lease(name, holder=holder, ttl=ttl):
            await self.request_session(name, holder=holder)
            raise _in_use(await self.show(name), "try again when it is idle, or stop that process")
        try:
            yield
        finally:
            await self.release(name, holder=holder)

    def _rows(self) -> Any:
        is_leased = accounts.c.lease_until > present(self._database, self._clock)
        columns: dict[str, ColumnElement[Any]] = {name: accounts.c[name] for name in AccountRow.__struct_fields__}
        # An expired lease has no holder.
        for name in ("holder", "lease_until"):
            columns[name] = case((is_leased, accounts.c[name]), else_=None).label(name)
        return select(*columns.values())

    def _is_free(self) -> tuple[ColumnElement[bool], ...]:
        now = present(self._database, self._clock)
        return accounts.c.holder.is_(None), accounts.c.lease_until.is_(None), accounts.c.lease_until <= now

    async def _row(self, connection: AsyncConnection, name: str) -> AccountRow:
        row = (await connection.execute(self._rows().where(accounts.c.name == name))).mappings().first()
        if row is None:
            raise await _unknown(connection, name)
        return AccountRow(**row)

    async def _encrypted_secrets(self, connection: AsyncConnection) -> dict[str, str]:
        rows = await connection.execute(select(accounts.c.name, accounts.c.secrets).order_by(accounts.c.name))
        return {row.name: row.secrets for row in rows}

    def _decrypt(self, name: str, sealed: str) -> Secrets:
        return Secrets(**msgspec.json.decode(self._vault.open(sealed, label=name)))

    def _twin(self, sealed: dict[str, str], session: str) -> str | None:
        """Return the account with the key of this session, which Telegram would end if it were opened twice."""
        wanted = _key_of(session)
        for name, secret in sealed.items():
            try:
                if _key_of(self._decrypt(name, secret).session) == wanted:
                    return name
            except FloodmarkError:
                # Encrypted with another key: it cannot be compared, and cannot be opened here either.
                continue
        return None

    async def _keep_channel_names(self, connection: AsyncConnection, account: str) -> None:
        """Keep the names without an account: another account finds a renamed channel by its last name."""
        cell = telegram_channels.c
        known = select(literal(""), cell.channel_id, literal(0), cell.username, cell.title, cell.updated_at).where(
            cell.account == account, cell.username.is_not(None)
        )
        columns = ["account", "channel_id", "access_hash", "username", "title", "updated_at"]
        insert = insert_into(self._database, telegram_channels).from_select(columns, known)
        newer = {name: insert.excluded[name] for name in ("username", "title", "updated_at")}
        await connection.execute(insert.on_conflict_do_update(index_elements=["account", "channel_id"], set_=newer))

    async def _forget_channels(self, connection: AsyncConnection, name: str, sealed: str, identity: int | None) -> None:
        """Delete the known channels, unless the account is still the same user: others cannot use its access hashes."""
        try:
            before = self._decrypt(name, sealed).identity
        except FloodmarkError:
            before = None
        if before is None or before != identity:
            await connection.execute(delete(telegram_channels).where(telegram_channels.c.account == name))

    async def _resume(self, connection: AsyncConnection, names: Sequence[str]) -> tuple[str, ...]:
        """Resume the jobs that the loss of these accounts has paused, and return their names."""
        begins = [f"account {name}:" for name in names]
        lost = or_(*(func.substr(jobs.c.pause_reason, 1, len(begin)) == begin for begin in begins))
        # The weaker lock (key_share): other transactions may still add dependencies on these jobs.
        query = select(jobs.c.job_id, jobs.c.name).where(jobs.c.paused, lost).order_by(jobs.c.name)
        found = (await connection.execute(query.with_for_update(key_share=True))).all()
        if not found:
            return ()
        now = present(self._database, self._clock)
        these = update(jobs).where(jobs.c.job_id.in_([row.job_id for row in found]))
        await connection.execute(
            these.values(paused=False, pause_reason=None, version=jobs.c.version + 1, updated_at=now)
        )
        # The trigger of SQLite uses the clock of the machine; the process may use another.
        await connection.execute(these.values(planned_until=now, updated_at=now))
        return tuple(row.name for row in found)


def _request_for(name: str) -> str:
    return f"telegram session: {name}"


def check_name(name: str) -> None:
    """Refuse a name that is hard to type, or that would be ambiguous in a reason (`account NAME: ...`)."""
    if not _NAME.fullmatch(name):
        raise InvalidInput(
            f"{name[:60]!r} cannot be the name of an account",
            hint="use letters, digits and any of - _ . (at most 64, a letter or digit first), for example reader1",
        )


def mask_phone(phone: str | None) -> str | None:
    """Return enough of a number for its owner to recognise it: `+49…123`."""
    if not phone:
        return None
    return f"{phone[:3]}…{phone[-3:]}" if len(phone) > 8 else "…"


def _encode(secrets: Secrets) -> str:
    return msgspec.json.encode({name: getattr(secrets, name) for name in Secrets.__slots__}).decode()


def _key_of(session: str) -> bytes:
    """Return the key in a `StringSession`, which is its last part; for any other text, the text itself."""
    try:
        return base64.urlsafe_b64decode(session[1:])[-_KEY_BYTES:]
    except (binascii.Error, ValueError):
        return session.encode()


async def _jobs_of(connection: AsyncConnection, account: str) -> list[str]:
    query = select(jobs.c.name).where(jobs.c.account == account).order_by(jobs.c.name).limit(_MAX_PAGE)
    return list((await connection.execute(query)).scalars())


async def _unknown(connection: AsyncConnection, name: str) -> NotFound:
    query = select(accounts.c.name).order_by(accounts.c.name).limit(11)
    names = list((await connection.execute(query)).scalars())
    hint = f"there are: {', '.join(names[:10])}{', ...' if len(names) > 10 else ''}" if names else ""
    return NotFound(
        f"there is no account {name[:60]!r}", hint=hint or "add one with: floodmark accounts add NAME --phone +49..."
    )


def name_taken(name: str) -> Conflict:
    """Return the error for a name that another account has."""
    return Conflict(
        f"there is already an account {name!r}",
        hint="choose another name, or pass --replace to replace the session of this account",
    )


def same_session(twin: str) -> Conflict:
    """Return the error for a session that the account `twin` has."""
    return Conflict(
        f"the account {twin!r} has this session already: Telegram would end a session that is opened twice",
        hint=f"use {twin}, or log in with --phone, which creates a new session",
    )


def _in_use(row: AccountRow, hint: str) -> Conflict:
    return Conflict(
        f"the session of {row.name} is open in {row.holder or 'another process'}: "
        "Telegram would end a session that is opened twice",
        hint=hint,
    )
