"""Handlers of accounts. Neither results nor the audit log contain secrets.

A session is tested by the installation that uses it: it knows which process has the session open, and Telegram ends a
session that is opened twice.
"""

import secrets
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import asdict, replace

from floodmark.coordination.signals.port import Topic
from floodmark.errors import FloodmarkError, InvalidInput, NotFound
from floodmark.model.accounts import AccountRow, Added, JoinedChannel, Person
from floodmark.model.page import Page, last_key, page_of
from floodmark.operations.accounts import AccountOperations, AccountShown, NewAccount, StoredAccount, Tested
from floodmark.security.vault import Vault
from floodmark.settings import Settings
from floodmark.sources.telegram.accounts import Accounts, TelegramAccount, check_name, name_taken, same_session
from floodmark.sources.telegram.proxies import mask_proxy, resolve_proxy
from floodmark.wiring.services import services_for

from .base import Handlers

if TYPE_CHECKING:
    from floodmark.sources.telegram.login import Application, Server

# Time to disconnect after the deadline of a test.
_SPARE = timedelta(seconds=15)
# A server on this machine ignores these.
_LOOPBACK_APPLICATION = (1, "loopback")


class KnownAccount(Struct, frozen=True, kw_only=True):
    """The stored account of a name. `secrets` are there if they can be decrypted."""

    row: AccountRow | None = None
    secrets: TelegramAccount | None = None

    def __repr__(self) -> str:
        return f"KnownAccount({self.row!r})"


class AccountHandlers(AccountOperations, Handlers):
    """Accounts in the store, encrypted."""

    async def accounts(self, *, cursor: str | None = None, limit: int = 50) -> Page[AccountRow]:
        rows = await self._accounts.page(last_key("accounts", cursor, str), limit + 1)
        return page_of(rows, limit, "accounts", lambda row: [row.name])

    async def store_account(self, new: NewAccount, *, dry_run: bool = False) -> StoredAccount:
        known = await expect_account(self._accounts, self._vault, new.name, replace=new.replace)
        if dry_run:
            is_there = known.row is not None
            return StoredAccount(account=known.row, replaced=is_there, resumed=(), person=None, dry_run=True)
        if not new.session and new.proxy is not None and known.secrets is not None:
            # Only its proxy changes.
            new = replace(new, session=known.secrets.session)
        if not new.session:
            raise InvalidInput("session is missing", hint="send a string session of Telethon or Pyrogram, or dry_run")
        added, person = await self._add(new, known)
        return StoredAccount(**asdict(added), person=person, dry_run=False)

    async def account(self, name: str) -> AccountShown:
        account, jobs = await self._accounts.show(name), await self._accounts.jobs_of(name)
        return AccountShown(account=account, jobs=tuple(jobs), job_count=await self._accounts.count_jobs(name))

    async def test_account(self, name: str, *, activate: bool = False) -> Tested:
        person = await self._test(name)
        row = await self._accounts.show(name)
        if not activate or row.state == "active":
            return Tested(account=row, person=person)
        async with self.transaction(Topic.JOBS):
            added = await self._accounts.activate(name)
            was, now = {"state": row.state}, {"state": "active"}
            await self.record("account.activated", f"account:{name}", before=was, after=now)
        return Tested(account=added.account, person=person, activated=True, resumed=added.resumed)

    async def joined_channels(self, name: str) -> list[JoinedChannel]:
        from floodmark.sources.telegram.dialogs import read_joined  # noqa: PLC0415 - heavy

        await self._accounts.show(name)
        services = services_for(self.resources, "telegram")
        # A person waits until an idle session is closed; a request does not have that time.
        idle = self.resources.settings.telegram_session_linger + _SPARE
        patience = idle if self.deadline is None else self._deadline / 2
        return await read_joined(services, name, holder=self._holder(), deadline=self._deadline, patience=patience)

    async def remove_account(self, name: str, *, force: bool = False) -> AccountRow:
        async with self.transaction():
            row = await self._accounts.show(name)
            await self._accounts.remove(name, force=force)
            await self.record("account.removed", f"account:{name}", before=_describe_account(row))
        return row

    async def _add(self, new: NewAccount, known: KnownAccount) -> tuple[Added, Person | None]:
        from floodmark.sources.telegram import login  # noqa: PLC0415 - heavy
        from floodmark.sources.telegram.session_formats import read_session_text  # noqa: PLC0415

        given = read_session_text(new.session, self._test_server())
        session = given.session
        if new.api_hash and new.api_id is None and given.api_id is not None:
            new = replace(new, api_id=given.api_id)
        is_loopback = login.is_loopback(login.server_of(session))
        proxy = choose_proxy(new.proxy, known)
        app = application_of(new, self.resources.settings, known, is_loopback=is_loopback)
        if new.is_checked:
            app.proxy = await resolve_proxy(proxy, self.resources.settings)
        person = await self._check(new.name, session, app) if new.is_checked else None
        async with self.transaction(Topic.JOBS):
            added = await self._accounts.add(
                new.name,
                api_id=app.api_id,
                api_hash=app.api_hash,
                session=session,
                phone=new.phone or (known.secrets.secrets.phone if known.secrets is not None else None),
                identity=new.identity if person is None else person.id,
                proxy=proxy,
                tenant_id=new.tenant_id or (known.row.tenant_id if known.row is not None else None),
                user_id=new.user_id or (known.row.user_id if known.row is not None else None),
                replace=new.replace,
            )
            action = "account.replaced" if added.replaced else "account.added"
            await self.record(action, f"account:{new.name}", after=_describe_account(added.account))
        return added, person

    def _test_server(self) -> "Server | None":
        from floodmark.sources.telegram.login import parse_server  # noqa: PLC0415 - heavy

        address = self.resources.settings.telegram_test_server
        return None if address is None else parse_server(address)

    @cached_property
    def _vault(self) -> Vault:
        return Vault.of(self.resources.settings)

    @cached_property
    def _accounts(self) -> Accounts:
        return Accounts(self.resources.database, self.resources.clock, self._vault, self.resources.events)

    @property
    def _deadline(self) -> timedelta:
        usual = self.resources.settings.telegram_call_timeout
        return usual if self.deadline is None else min(usual, self.deadline)

    async def _test(self, name: str) -> Person:
        from floodmark.sources.telegram.login import Application, check  # noqa: PLC0415 - heavy

        await self._accounts.show(name)
        async with self._accounts.hold(name, holder=self._holder(), ttl=self._deadline + _SPARE):
            # Read under the lease: it may just have been replaced.
            account = await self._accounts.get(name)
            proxy = await resolve_proxy(account.secrets.proxy, self.resources.settings)
            app = Application(account.api_id, account.api_hash, proxy)
            return await check(account.session, app, account=name, timeout=self._deadline)

    async def _check(self, name: str, session: str, app: "Application") -> Person:
        """Ask Telegram who it is, under the lease of the account if a process may have this session open."""
        from floodmark.sources.telegram.login import check  # noqa: PLC0415 - heavy

        twin = await self._accounts.with_session(session)
        if twin is None:
            return await check(session, app, account=name, timeout=self._deadline)
        if twin != name:
            # The store refuses it as well, but connecting could end the session.
            raise same_session(twin)
        async with self._accounts.hold(twin, holder=self._holder(), ttl=self._deadline + _SPARE):
            return await check(session, app, account=name, timeout=self._deadline)

    def _holder(self) -> str:
        """Return a holder other than the process, whose own worker may have the session open."""
        return f"{self.resources.name}-check-{secrets.token_hex(2)}"


async def expect_account(accounts: Accounts, vault: Vault, name: str, *, replace: bool) -> KnownAccount:
    """Return what is stored under the name of a new account; refuse what adding it would refuse."""
    check_name(name)
    vault.seal("", label=name)
    try:
        row = await accounts.show(name)
    except NotFound:
        return KnownAccount()
    if not replace:
        raise name_taken(name)
    try:
        return KnownAccount(row=row, secrets=await accounts.get(name))
    except FloodmarkError:
        # Encrypted with a lost key: storing it again repairs it.
        return KnownAccount(row=row)


def choose_proxy(given: str | None, known: KnownAccount) -> str | None:
    """Return the proxy of an account: the given one, else the stored one. `InvalidInput` if it is not one."""
    mask_proxy(given)
    return given or (None if known.secrets is None else known.secrets.secrets.proxy)


def application_of(new: NewAccount, settings: Settings, known: KnownAccount, *, is_loopback: bool) -> "Application":
    """Return the application of a session: the given one, else that of the settings, else the stored one."""
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
            "or pass --api-id N --api-hash H",
        )
    return Application(api_id, api_hash)


def _describe_account(row: AccountRow) -> dict[str, object]:
    """Return what the audit log may contain of an account."""
    return {name: getattr(row, name) for name in ("name", "phone", "proxy", "tenant_id", "user_id", "state")}
