"""The verbs for tokens, with an audit of every change. The text of a token is in none of it."""

from datetime import timedelta
from typing import Any

from floodmark.store.tokens import Minted, Role, TokenRow, Tokens

from .local import LocalOffice


class TokenOffice:
    """Adds, lists and revokes tokens in the name of whoever the office acts for."""

    def __init__(self, office: LocalOffice) -> None:
        self._office, self._tokens = office, Tokens(office.parts.database, office.parts.clock)

    async def page(self, *, after: str | None = None, limit: int = 100) -> list[TokenRow]:
        """In order of name, revoked ones too. The next page is `after` the name of the last one."""
        return await self._tokens.page(after, limit)

    async def show(self, name: str) -> TokenRow:
        """One of them."""
        return await self._tokens.show(name)

    async def add(self, name: str, role: Role, expires_in: timedelta | None = None) -> Minted:
        """Make a token. Its text cannot be had again."""
        minted = await self._tokens.add(name, role, expires_in)
        await self._office.note("token.added", f"token:{name}", after=_told(minted.row))
        return minted

    async def revoke(self, name: str) -> TokenRow:
        """Let nobody in with it any more; what it is now."""
        before = await self._tokens.revoke(name)
        after = await self._tokens.show(name)
        await self._office.note(
            "token.revoked", f"token:{name}", before={"state": before.state}, after={"state": after.state}
        )
        return after


def _told(row: TokenRow) -> dict[str, Any]:
    return {"token_id": row.token_id, "role": row.role, "expires_at": row.expires_at}
