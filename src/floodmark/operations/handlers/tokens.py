"""Handlers of tokens and sessions. Their texts are neither stored nor in the audit log."""

from datetime import timedelta
from functools import cached_property

from floodmark.model.page import Page, last_key, page_of
from floodmark.model.tokens import Minted, Role, SessionRow, TokenRow, Visitor
from floodmark.operations.stored_sessions import DashboardSessions
from floodmark.operations.stored_tokens import Tokens
from floodmark.operations.tokens import TokenOperations

from .base import Handlers


class TokenHandlers(TokenOperations, Handlers):
    """Tokens and sessions in the store."""

    async def whoami(self) -> Visitor:
        return Visitor(who=self.actor.who, role=self.role)

    async def tokens(self, *, cursor: str | None = None, limit: int = 50) -> Page[TokenRow]:
        rows = await self._tokens.page(last_key("tokens", cursor, str), limit + 1)
        return page_of(rows, limit, "tokens", lambda row: [row.name])

    async def add_token(self, name: str, role: Role, expires_in: timedelta | None = None) -> Minted:
        async with self.transaction():
            minted = await self._tokens.add(name, role, expires_in)
            row = minted.row
            after = {"token_id": row.token_id, "role": row.role, "expires_at": row.expires_at}
            await self.record("token.added", f"token:{name}", after=after)
        return minted

    async def token(self, name: str) -> TokenRow:
        return await self._tokens.show(name)

    async def revoke_token(self, name: str) -> TokenRow:
        async with self.transaction():
            before = await self._tokens.revoke(name)
            after = await self._tokens.show(name)
            was, now = {"state": before.state}, {"state": after.state}
            await self.record("token.revoked", f"token:{name}", before=was, after=now)
        return after

    async def sessions(self, *, cursor: str | None = None, limit: int = 50) -> Page[SessionRow]:
        rows = await self._sessions.page(last_key("sessions", cursor, str), limit + 1)
        return page_of(rows, limit, "sessions", lambda row: [row.session_id])

    async def end_sessions(self, *, token: str | None = None) -> int:
        if token is not None:
            await self._tokens.show(token)
        what = "sessions" if token is None else f"token:{token}"
        async with self.transaction():
            ended = await self._sessions.end_all(token)
            await self.record("sessions.ended", what, before={"sessions": ended})
        return ended

    async def end_session(self, session_id: str) -> SessionRow:
        async with self.transaction():
            ended = await self._sessions.end(session_id)
            await self.record("session.ended", f"session:{session_id}", before={"token": ended.token})
        return ended

    @cached_property
    def _sessions(self) -> DashboardSessions:
        return DashboardSessions(self.resources.database, self.resources.clock)

    @cached_property
    def _tokens(self) -> Tokens:
        return Tokens(self.resources.database, self.resources.clock)
