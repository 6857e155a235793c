"""Handlers of logins. A session exists only encrypted in the store, and in memory during a step."""

from collections.abc import Mapping
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict, replace

from floodmark.errors import FloodmarkError, InvalidInput, NotFound
from floodmark.operations.accounts import NewAccount, StoredAccount
from floodmark.operations.logins import LoginOperations, LoginStep, NewLogin
from floodmark.security.vault import Vault
from floodmark.sources.telegram.accounts import Accounts
from floodmark.sources.telegram.proxies import resolve_proxy
from floodmark.sources.telegram.stored_logins import MOST_TRIES, StoredLogins

from .accounts import AccountHandlers, application_of, choose_proxy, expect_account
from .base import Handlers

if TYPE_CHECKING:
    from floodmark.sources.telegram.login import Application, PendingLogin, Server, SignedIn


class LoginHandlers(LoginOperations, Handlers):
    """Logins by phone, in the store."""

    async def begin_login(self, new: NewLogin) -> LoginStep:
        from floodmark.sources.telegram import login  # noqa: PLC0415 - heavy

        accounts = Accounts(self.resources.database, self.resources.clock, self._vault)
        known = await expect_account(accounts, self._vault, new.name, replace=new.replace)
        stored_phone = known.secrets.secrets.phone if known.secrets is not None else None
        if not (new.phone or stored_phone):
            raise InvalidInput("phone is missing", hint="send it with its country code, for example +4915112345678")
        phone, server = login.parse_phone(new.phone or stored_phone or ""), self._server()
        app = application_of(_account(new), self.resources.settings, known, is_loopback=server is not None)
        new = replace(new, proxy=choose_proxy(new.proxy, known))
        app.proxy = await resolve_proxy(new.proxy, self.resources.settings)
        await self._logins.require_room(self.actor.who, new.name)
        pending = await login.send_code(app, phone, timeout=self._deadline, server=server)
        values = {**asdict(replace(new, phone=phone, api_id=app.api_id, api_hash=app.api_hash))}
        values["pending"] = pending.secrets()
        return await self.login(await self._logins.add(self.actor.who, new.name, pending.how, values))

    async def login(self, login_id: str) -> LoginStep:
        found = await self._logins.show(self.actor.who, login_id)
        return LoginStep(
            login_id=login_id,
            account=found.account,
            step="code" if found.step == "code" else "password",
            how=found.how,
            tries_left=max(0, MOST_TRIES - found.tries),
            expires_at=found.expires_at,
        )

    async def continue_login(self, login_id: str, *, code: str | None = None, password: str | None = None) -> LoginStep:
        before = await self.login(login_id)
        secret = code if before.step == "code" else password
        if not secret:
            raise InvalidInput(f"the {before.step} is missing", hint=f"this login waits for the {before.step}")
        values = await self._logins.begin_try(self.actor.who, login_id)
        try:
            signed_in = await self._enter(values, secret, is_code=before.step == "code")
        except FloodmarkError:
            if before.tries_left <= 1:
                await self._logins.end(self.actor.who, login_id)
            raise
        if signed_in is None:
            await self._logins.expect_password(self.actor.who, login_id)
            return await self.login(login_id)
        stored = await self._store(values, signed_in)
        await self._logins.end(self.actor.who, login_id)
        return replace(before, step="done", expires_at=None, stored=stored)

    async def cancel_login(self, login_id: str) -> LoginStep:
        before = await self.login(login_id)
        if not await self._logins.end(self.actor.who, login_id):
            raise NotFound("this login has ended already", hint="there is nothing to cancel")
        return before

    async def _enter(self, values: Mapping[str, Any], secret: str, *, is_code: bool) -> "SignedIn | None":
        from floodmark.sources.telegram import login  # noqa: PLC0415 - heavy

        app, pending = await self._continued(values)
        if is_code:
            return await login.enter_code(app, pending, secret.strip(), timeout=self._deadline)
        return await login.enter_password(app, pending, secret, timeout=self._deadline)

    async def _store(self, values: Mapping[str, Any], signed_in: "SignedIn") -> StoredAccount:
        from floodmark.sources.telegram import login  # noqa: PLC0415 - heavy

        given = NewLogin(**{name: value for name, value in values.items() if name != "pending"})
        new = _account(given, session=signed_in.session, identity=signed_in.person.id)
        accounts = AccountHandlers(self.resources, self.actor, role=self.role, deadline=self.deadline)
        try:
            stored = await accounts.store_account(new)
        except FloodmarkError:
            # Nobody has this session: do not leave it open at Telegram.
            app, _ = await self._continued(values)
            await login.log_out(app, signed_in.session, timeout=self._deadline)
            raise
        return replace(stored, person=signed_in.person)

    async def _continued(self, values: Mapping[str, Any]) -> "tuple[Application, PendingLogin]":
        from floodmark.sources.telegram.login import Application, PendingLogin  # noqa: PLC0415 - heavy

        proxy = await resolve_proxy(values.get("proxy"), self.resources.settings)
        return Application(values["api_id"], values["api_hash"], proxy), PendingLogin(**values["pending"])

    @cached_property
    def _vault(self) -> Vault:
        return Vault.of(self.resources.settings)

    @cached_property
    def _logins(self) -> StoredLogins:
        return StoredLogins(self.resources.database, self.resources.clock, self._vault)

    @property
    def _deadline(self) -> timedelta:
        usual = self.resources.settings.telegram_call_timeout
        return usual if self.deadline is None else min(usual, self.deadline)

    def _server(self) -> "Server | None":
        from floodmark.sources.telegram.login import parse_server  # noqa: PLC0415 - heavy

        address = self.resources.settings.telegram_test_server
        return None if address is None else parse_server(address)


def _account(new: NewLogin, *, session: str = "", identity: int | None = None) -> NewAccount:
    return NewAccount(**asdict(new), session=session, identity=identity, is_checked=False)
