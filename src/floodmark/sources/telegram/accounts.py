"""Accounts at the sources, and who has their session open. Table: `accounts`; of `jobs` those an account stopped.

`secrets` is one sealed JSON object: the hash of the application, the session, the phone number. The column `phone`
holds no more of the number than may be shown. `updated_at` moves when an account is stored, parked or activated;
a lease moves only `holder`, `lease_until` and `last_used_at`.
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

from floodmark.errors import Conflict, FloodmarkError, InvalidInput, NotFound
from floodmark.model.accounts import AccountRow, Added
from floodmark.model.clock import Clock
from floodmark.observability.events import AccountParked, Events
from floodmark.security.vault import Vault
from floodmark.store.async_engine import AsyncConnection
from floodmark.store.database import Database
from floodmark.store.dialects import insert_into, present
from floodmark.store.tables import jobs

from .tables import accounts, telegram_channels

MOST_SHOWN = 500
NO_ACCOUNT = "(none)"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_KEY_BYTES = 256
_ONE_AT_A_TIME = text("SELECT pg_advisory_xact_lock(hashtext('floodmark.accounts'))")


class Secrets:
    """What must not be shown. Not a struct, so that no printing, comparing or encoding of an account reaches it."""

    __slots__ = ("api_hash", "identity", "phone", "session")

    def __init__(self, *, api_hash: str, session: str, phone: str | None = None, identity: int | None = None) -> None:
        self.api_hash, self.session, self.phone, self.identity = api_hash, session, phone, identity

    def __repr__(self) -> str:
        return "***"


class TelegramAccount(AccountRow, frozen=True, kw_only=True):
    """An account with what is needed to use it."""

    secrets: Secrets

    @property
    def session(self) -> str:
        """The session as text (Telethon's `StringSession`)."""
        return self.secrets.session

    @property
    def api_hash(self) -> str:
        """The hash that belongs to `api_id`."""
        return self.secrets.api_hash


class Accounts:
    """Keeps accounts, and sees to it that a session is open in one process at a time."""

    def __init__(self, database: Database, clock: Clock, vault: Vault, events: Events | None = None) -> None:
        self._database, self._clock, self._vault = database, clock, vault
        self._events = events or Events()

    async def add(
        self,
        name: str,
        *,
        api_id: int,
        api_hash: str,
        session: str,
        phone: str | None = None,
        identity: int | None = None,
        tenant_id: str | None = None,
        user_id: str | None = None,
        replace: bool = False,
    ) -> Added:
        """Store an account, active, and resume the jobs that waited for it or for any account.

        `Conflict` if the name is taken (unless `replace`), or if another account has the same session. Whoever has
        the session of a replaced account open keeps it. `identity`: the number of the person it is at the source.
        """
        check_name(name)
        secrets = Secrets(api_hash=api_hash, session=session, phone=phone, identity=identity)
        sealed, now = self._vault.seal(_packed(secrets), label=name), present(self._database, self._clock)
        values = {
            "api_id": api_id,
            "secrets": sealed,
            "phone": masked_phone(phone),
            "tenant_id": tenant_id,
            "user_id": user_id,
            "state": "active",
            "reason": None,
            "updated_at": now,
        }
        async with self._database.writing() as connection:
            # One at a time, or two could store one session under two names.
            if self._database.dialect == "postgresql":
                await connection.execute(_ONE_AT_A_TIME)
            before = await self._sealed(connection)
            if name in before and not replace:
                raise taken(name)
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
        """Accounts in order of name. The next page is `after` the last one; at most 500 at once."""
        query = self._rows() if after is None else self._rows().where(accounts.c.name > after)
        async with self._database.reading() as connection:
            rows = await connection.execute(query.order_by(accounts.c.name).limit(max(1, min(limit, MOST_SHOWN))))
            return [AccountRow(**row) for row in rows.mappings()]

    async def names(self, tenant_id: str | None = None) -> list[AccountRow]:
        """Those that can be used for a tenant: its own first, then those of nobody. Without a tenant: all.

        Parked ones are not among them.
        """
        query = self._rows().where(accounts.c.state == "active")
        if tenant_id is not None:
            query = query.where(or_(accounts.c.tenant_id == tenant_id, accounts.c.tenant_id.is_(None)))
        query = query.order_by(accounts.c.tenant_id.is_(None), accounts.c.name)
        async with self._database.reading() as connection:
            return [AccountRow(**row) for row in (await connection.execute(query)).mappings()]

    async def parked(self, tenant_id: str | None = None) -> list[AccountRow]:
        """Those that a tenant could use if they were not parked."""
        query = self._rows().where(accounts.c.state == "parked")
        if tenant_id is not None:
            query = query.where(or_(accounts.c.tenant_id == tenant_id, accounts.c.tenant_id.is_(None)))
        async with self._database.reading() as connection:
            rows = (await connection.execute(query.order_by(accounts.c.name))).mappings()
            return [AccountRow(**row) for row in rows]

    async def get(self, name: str) -> TelegramAccount:
        """An account with its secrets. `NotFound`; `Conflict` if this process has not the key to them."""
        async with self._database.reading() as connection:
            query = self._rows().add_columns(accounts.c.secrets).where(accounts.c.name == name)
            row = (await connection.execute(query)).mappings().first()
            if row is None:
                raise await _unknown(connection, name)
        return TelegramAccount(**{**row, "secrets": self._opened(name, row["secrets"])})

    async def show(self, name: str) -> AccountRow:
        """An account without its secrets. `NotFound` says which there are."""
        async with self._database.reading() as connection:
            return await self._row(connection, name)

    async def with_session(self, session: str) -> str | None:
        """The name of the account that has this session already."""
        async with self._database.reading() as connection:
            return self._twin(await self._sealed(connection), session)

    async def jobs_of(self, name: str) -> list[str]:
        """The names of the jobs that ask for this account."""
        query = select(jobs.c.name).where(jobs.c.account == name).order_by(jobs.c.name)
        async with self._database.reading() as connection:
            return list((await connection.execute(query)).scalars())

    async def remove(self, name: str, *, force: bool = False) -> list[str]:
        """Forget an account and what it knew of channels. The names of the jobs that ask for it: they stay.

        `Conflict` while a process has its session open; with `force` that one learns of it when it renews its lease.
        """
        async with self._database.writing() as connection:
            query = delete(accounts).where(accounts.c.name == name)
            gone = await connection.execute(query if force else query.where(or_(*self._is_free())))
            if not gone.rowcount:
                raise _in_use(await self._row(connection, name), "stop that process first, or say --force")
            await self._keep_names_of_channels(connection, name)
            await connection.execute(delete(telegram_channels).where(telegram_channels.c.account == name))
            asking = select(jobs.c.name).where(jobs.c.account == name).order_by(jobs.c.name)
            return list((await connection.execute(asking)).scalars())

    async def park(self, name: str, reason: str, *, seen: AccountRow | None = None) -> bool:
        """Let nobody use an account until a person has looked at it. False if it was parked or gone already.

        With `seen` it is not parked if it was stored anew since: the failure was that of an older session.
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
        """Take or renew the right to open the session. False while another holds it, or if there is no such account."""
        now = present(self._database, self._clock)
        query = update(accounts).where(accounts.c.name == name, or_(accounts.c.holder == holder, *self._is_free()))
        until = present(self._database, self._clock, ttl)
        async with self._database.writing() as connection:
            taken = await connection.execute(query.values(holder=holder, lease_until=until, last_used_at=now))
        return bool(taken.rowcount)

    async def release(self, name: str, *, holder: str) -> None:
        """Give it back, if it is still ours."""
        query = update(accounts).where(accounts.c.name == name, accounts.c.holder == holder)
        async with self._database.writing() as connection:
            await connection.execute(query.values(holder=None, lease_until=None))

    async def holder(self, name: str) -> str | None:
        """Who has the session open now."""
        now = present(self._database, self._clock)
        query = select(accounts.c.holder).where(accounts.c.name == name, accounts.c.lease_until > now)
        async with self._database.reading() as connection:
            found: str | None = (await connection.execute(query)).scalar()
            return found

    @asynccontextmanager
    async def held(self, name: str, *, holder: str, ttl: timedelta) -> AsyncIterator[None]:
        """Hold the session for one short piece of work, which must end within `ttl`. `Conflict` if another has it."""
        if not await self.lease(name, holder=holder, ttl=ttl):
            raise _in_use(await self.show(name), "try again when it is idle, or stop that process")
        try:
            yield
        finally:
            await self.release(name, holder=holder)

    def _rows(self) -> Any:
        held = accounts.c.lease_until > present(self._database, self._clock)
        shown: dict[str, ColumnElement[Any]] = {name: accounts.c[name] for name in AccountRow.__struct_fields__}
        # A lease that is over is nobody's.
        for name in ("holder", "lease_until"):
            shown[name] = case((held, accounts.c[name]), else_=None).label(name)
        return select(*shown.values())

    def _is_free(self) -> tuple[ColumnElement[bool], ...]:
        now = present(self._database, self._clock)
        return accounts.c.holder.is_(None), accounts.c.lease_until.is_(None), accounts.c.lease_until <= now

    async def _row(self, connection: AsyncConnection, name: str) -> AccountRow:
        row = (await connection.execute(self._rows().where(accounts.c.name == name))).mappings().first()
        if row is None:
            raise await _unknown(connection, name)
        return AccountRow(**row)

    async def _sealed(self, connection: AsyncConnection) -> dict[str, str]:
        rows = await connection.execute(select(accounts.c.name, accounts.c.secrets).order_by(accounts.c.name))
        return {row.name: row.secrets for row in rows}

    def _opened(self, name: str, sealed: str) -> Secrets:
        return Secrets(**msgspec.json.decode(self._vault.open(sealed, label=name)))

    def _twin(self, sealed: dict[str, str], session: str) -> str | None:
        """Who else has the key of this session. Opened twice, it would be ended for good by the server."""
        wanted = _key_of(session)
        for name, secret in sealed.items():
            try:
                if _key_of(self._opened(name, secret).session) == wanted:
                    return name
            except FloodmarkError:
                # Stored with another key than ours: it cannot be compared, and cannot be opened here either.
                continue
        return None

    async def _keep_names_of_channels(self, connection: AsyncConnection, account: str) -> None:
        """Under no account: by its last name another account finds a channel that was renamed."""
        cell = telegram_channels.c
        known = select(literal(""), cell.channel_id, literal(0), cell.username, cell.title, cell.updated_at).where(
            cell.account == account, cell.username.is_not(None)
        )
        columns = ["account", "channel_id", "access_hash", "username", "title", "updated_at"]
        insert = insert_into(self._database, telegram_channels).from_select(columns, known)
        newer = {name: insert.excluded[name] for name in ("username", "title", "updated_at")}
        await connection.execute(insert.on_conflict_do_update(index_elements=["account", "channel_id"], set_=newer))

    async def _forget_channels(self, connection: AsyncConnection, name: str, sealed: str, identity: int | None) -> None:
        """What an account knows of channels is of no use to another person under the same name."""
        try:
            before = self._opened(name, sealed).identity
        except FloodmarkError:
            before = None
        if before is None or before != identity:
            await connection.execute(delete(telegram_channels).where(telegram_channels.c.account == name))

    async def _resume(self, connection: AsyncConnection, names: Sequence[str]) -> tuple[str, ...]:
        """Undo the pauses that the loss of these accounts has made; the names of the jobs."""
        begins = [f"account {name}:" for name in names]
        lost = or_(*(func.substr(jobs.c.pause_reason, 1, len(begin)) == begin for begin in begins))
        # The weaker lock (key_share): others may still point at these jobs with a dependency of theirs.
        query = select(jobs.c.job_id, jobs.c.name).where(jobs.c.paused, lost).order_by(jobs.c.name)
        found = (await connection.execute(query.with_for_update(key_share=True))).all()
        if not found:
            return ()
        now = present(self._database, self._clock)
        these = update(jobs).where(jobs.c.job_id.in_([row.job_id for row in found]))
        await connection.execute(
            these.values(paused=False, pause_reason=None, version=jobs.c.version + 1, updated_at=now)
        )
        # The trigger of SQLite knows only the machine's clock; the process may live by another.
        await connection.execute(these.values(planned_until=now, updated_at=now))
        return tuple(row.name for row in found)


def check_name(name: str) -> None:
    """Refuse a name that could not be typed again, or be read in a reason (`account NAME: ...`)."""
    if not _NAME.fullmatch(name):
        raise InvalidInput(
            f"{name[:60]!r} cannot be the name of an account",
            hint="use letters, digits and any of - _ . (at most 64, a letter or digit first), for example reader1",
        )


def masked_phone(phone: str | None) -> str | None:
    """As much of a number as tells its owner which one it is: `+49…123`."""
    if not phone:
        return None
    return f"{phone[:3]}…{phone[-3:]}" if len(phone) > 8 else "…"


def _packed(secrets: Secrets) -> str:
    return msgspec.json.encode({name: getattr(secrets, name) for name in Secrets.__slots__}).decode()


def _key_of(session: str) -> bytes:
    """The key in a `StringSession`, which is its last part; of any other text, the text."""
    try:
        return base64.urlsafe_b64decode(session[1:])[-_KEY_BYTES:]
    except (binascii.Error, ValueError):
        return session.encode()


async def _unknown(connection: AsyncConnection, name: str) -> NotFound:
    query = select(accounts.c.name).order_by(accounts.c.name).limit(11)
    names = list((await connection.execute(query)).scalars())
    hint = f"there are: {', '.join(names[:10])}{', ...' if len(names) > 10 else ''}" if names else ""
    return NotFound(
        f"there is no account {name[:60]!r}", hint=hint or "add one with: floodmark accounts add NAME --phone +49..."
    )


def taken(name: str) -> Conflict:
    """What to say to someone who wants a name that is there already."""
    return Conflict(
        f"there is already an account {name!r}",
        hint="choose another name, or say --replace to log in anew under this one",
    )


def same_session(twin: str) -> Conflict:
    """What to say to someone who brings the session of `twin` once more."""
    return Conflict(
        f"the account {twin!r} has this session already: opened twice, Telegram would end it for good",
        hint=f"use {twin}, or log in with --phone: that makes a session of its own",
    )


def _in_use(row: AccountRow, hint: str) -> Conflict:
    return Conflict(
        f"the session of {row.name} is open in {row.holder or 'another process'}: "
        "a session opened twice is ended by Telegram for good",
        hint=hint,
    )
