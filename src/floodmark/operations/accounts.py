"""The verbs for accounts, with an audit of every change. Nothing secret is in what they answer.

A session is checked where it is going to be used: whoever has opened it already is known there, and a session that is
opened twice is ended by Telegram for good.
"""

import secrets
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from floodmark.coordination.signals.port import Topic
from floodmark.errors import FloodmarkError, InvalidInput, NotFound
from floodmark.security.vault import Vault
from floodmark.settings import Settings
from floodmark.sources.telegram.accounts import (
    Account,
    AccountRow,
    Accounts,
    Added,
    Person,
    check_name,
    same_session,
    taken,
)

from .local import LocalOffice
from .port import NewAccount, Office, Tested

if TYPE_CHECKING:
    from floodmark.client import Client
    from floodmark.sources.telegram.login import Application

# How much longer than its deadline a check may hold the session: for its goodbye.
_SPARE = timedelta(seconds=15)
# A server on this machine does not look at them.
_LOOPBACK_APPLICATION = (1, "loopback")


class Known(Struct, frozen=True, kw_only=True):
    """What is there under a name already. `secrets`: only beside the database, and if they can be read."""

    row: AccountRow | None = None
    secrets: Account | None = None

    def __repr__(self) -> str:
        return f"Known({self.row!r})"


class AccountVerbs(Protocol):
    """What can be done with accounts, here or on a server."""

    async def show(self, name: str) -> AccountRow:
        """One of them, without its secrets."""
        ...

    async def jobs_of(self, name: str) -> list[str]:
        """The names of the jobs that ask for it."""
        ...

    async def expect(self, name: str, *, replace: bool) -> Known:
        """What is there under the name of an account that is about to be added; refuses now what `add` would refuse.

        Otherwise a login would be lost, and Telegram counts them.
        """
        ...

    async def add(self, new: NewAccount) -> tuple[Added, Person | None]:
        """Store an account, and who it is, if that was to be checked. What is not said stays as it was."""
        ...

    async def test(self, name: str, *, activate: bool = False) -> Tested:
        """Ask Telegram who it is; with `activate` it is used again, should it be parked."""
        ...

    async def remove(self, name: str, *, force: bool = False) -> AccountRow:
        """Forget an account; what it was."""
        ...


def accounts_of(office: Office) -> AccountVerbs:
    """The accounts of the installation that an office is for."""
    if isinstance(office, LocalOffice):
        return LocalAccounts(office)
    from .remote import RemoteOffice  # noqa: PLC0415 - needs an HTTP client, which a server does not

    assert isinstance(office, RemoteOffice)
    return RemoteAccounts(office.client)


class LocalAccounts:
    """The verbs on the store of this installation. `deadline`: how long Telegram may take (TELEGRAM_CALL_TIMEOUT)."""

    def __init__(self, office: LocalOffice, *, deadline: timedelta | None = None) -> None:
        parts = office.parts
        self._office, self._parts, self._vault = office, parts, Vault.of(parts.settings)
        self._store = Accounts(parts.database, parts.clock, self._vault, parts.events)
        usual = parts.settings.telegram_call_timeout
        self._deadline = usual if deadline is None else min(usual, deadline)

    async def show(self, name: str) -> AccountRow:
        """One of them, without its secrets."""
        return await self._store.show(name)

    async def jobs_of(self, name: str) -> list[str]:
        """The names of the jobs that ask for it."""
        return await self._store.jobs_of(name)

    async def expect(self, name: str, *, replace: bool) -> Known:
        """What is there under the name of an account that is about to be added; refuses now what `add` would refuse."""
        check_name(name)
        self._vault.seal("", label=name)
        try:
            row = await self._store.show(name)
        except NotFound:
            return Known()
        if not replace:
            raise taken(name)
        try:
            return Known(row=row, secrets=await self._store.get(name))
        except FloodmarkError:
            # Stored with a key that is lost: storing it anew is the way out.
            return Known(row=row)

    async def add(self, new: NewAccount) -> tuple[Added, Person | None]:
        """Store an account, and who it is, if that was to be checked. What is not said stays as it was."""
        from floodmark.sources.telegram import login  # noqa: PLC0415 - heavy

        known = await self.expect(new.name, replace=new.replace)
        session = login.session_of_text(new.session)
        is_loopback = login.is_loopback(login.server_of(session))
        app = application_of(new, self._parts.settings, known, is_loopback=is_loopback)
        person = await self._checked(new.name, session, app) if new.is_checked else None
        async with self._office.changing():
            added = await self._store.add(
                new.name,
                api_id=app.api_id,
                api_hash=app.api_hash,
                session=session,
                phone=new.phone or (known.secrets.secrets.phone if known.secrets is not None else None),
                identity=new.identity if person is None else person.id,
                tenant_id=new.tenant_id or (known.row.tenant_id if known.row is not None else None),
                user_id=new.user_id or (known.row.user_id if known.row is not None else None),
                replace=new.replace,
            )
            action = "account.replaced" if added.replaced else "account.added"
            await self._office.note(action, f"account:{new.name}", after=_told(added.account))
        await self._parts.signals.notify(Topic.JOBS)
        return added, person

    async def test(self, name: str, *, activate: bool = False) -> Tested:
        """Ask Telegram who it is; with `activate` it is used again, should it be parked."""
        person = await self._tried(name)
        row = await self._store.show(name)
        if not activate or row.state == "active":
            return Tested(account=row, person=person)
        async with self._office.changing():
            added = await self._store.activate(name)
            was, now = {"state": row.state}, {"state": "active"}
            await self._office.note("account.activated", f"account:{name}", before=was, after=now)
        await self._parts.signals.notify(Topic.JOBS)
        return Tested(account=added.account, person=person, activated=True, resumed=added.resumed)

    async def remove(self, name: str, *, force: bool = False) -> AccountRow:
        """Forget an account; what it was."""
        async with self._office.changing():
            row = await self._store.show(name)
            await self._store.remove(name, force=force)
            await self._office.note("account.removed", f"account:{name}", before=_told(row))
        return row

    async def _tried(self, name: str) -> Person:
        from floodmark.sources.telegram.login import Application, check  # noqa: PLC0415 - heavy

        await self._store.show(name)
        async with self._store.held(name, holder=self._holder(), ttl=self._deadline + _SPARE):
            # Read while it is ours: it may have been replaced a moment ago.
            account = await self._store.get(name)
            app = Application(account.api_id, account.api_hash)
            return await check(account.session, app, account=name, timeout=self._deadline)

    async def _checked(self, name: str, session: str, app: "Application") -> Person:
        """Who it is. Asked under the account's lease, if some process could have this very session open."""
        from floodmark.sources.telegram.login import check  # noqa: PLC0415 - heavy

        twin = await self._store.with_session(session)
        if twin is None:
            return await check(session, app, account=name, timeout=self._deadline)
        if twin != name:
            # The store would refuse it, too, but connecting with it could end it.
            raise same_session(twin)
        async with self._store.held(twin, holder=self._holder(), ttl=self._deadline + _SPARE):
            return await check(session, app, account=name, timeout=self._deadline)

    def _holder(self) -> str:
        """Not the name of the process: its own worker may have the session open under that."""
        return f"{self._parts.name}-check-{secrets.token_hex(2)}"


class RemoteAccounts:
    """The same behind a server, which keeps its secrets to itself."""

    def __init__(self, client: "Client") -> None:
        self._client = client

    async def show(self, name: str) -> AccountRow:
        """One of them, without its secrets."""
        return (await self._client.account(name)).account

    async def jobs_of(self, name: str) -> list[str]:
        """The names of the jobs that ask for it."""
        return list((await self._client.account(name)).jobs)

    async def expect(self, name: str, *, replace: bool) -> Known:
        """What is there under the name of an account that is about to be added; refuses now what `add` would refuse."""
        return Known(row=await self._client.expect_account(name, replace=replace))

    async def add(self, new: NewAccount) -> tuple[Added, Person | None]:
        """Store an account, and who it is, if that was to be checked. What is not said stays as it was."""
        return await self._client.add_account(new)

    async def test(self, name: str, *, activate: bool = False) -> Tested:
        """Ask Telegram who it is; with `activate` it is used again, should it be parked."""
        return await self._client.test_account(name, activate=activate)

    async def remove(self, name: str, *, force: bool = False) -> AccountRow:
        """Forget an account; what it was."""
        return await self._client.remove_account(name, force=force)


def application_of(new: NewAccount, settings: Settings, known: Known, *, is_loopback: bool) -> "Application":
    """The program that a session belongs to: what was said, else the settings, else what is stored under the name."""
    from floodmark.sources.telegram.login import REGISTER, Application  # noqa: PLC0415 - heavy

    stored = settings.telegram_api_hash
    api_id = new.api_id or settings.telegram_api_id
    api_hash = new.api_hash or (stored.get_secret_value() if stored is not None else None)
    if api_id is None and api_hash is None:
        if known.secrets is not None:
            return Application(known.secrets.api_id, known.secrets.api_hash)
        if is_loopback:
            return Application(*_LOOPBACK_APPLICATION)
    if api_id is None or not api_hash:
        missing = " and ".join([*(["id"] if api_id is None else []), *([] if api_hash else ["hash"])])
        raise InvalidInput(
            f"the api {missing} of your application at Telegram is missing",
            hint=f"get both at {REGISTER} (API development tools), then set TELEGRAM_API_ID and TELEGRAM_API_HASH, "
            "or say --api-id N --api-hash H",
        )
    return Application(api_id, api_hash)


def _told(row: AccountRow) -> dict[str, object]:
    """What the audit may say of an account."""
    return {name: getattr(row, name) for name in ("name", "phone", "tenant_id", "user_id", "state")}
