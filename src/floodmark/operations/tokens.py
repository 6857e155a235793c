"""The verbs for tokens, with an audit of every change. The text of a token is in none of it."""

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol

from .local import LocalOffice
from .port import Office
from .stored_tokens import Minted, Role, TokenRow, Tokens

if TYPE_CHECKING:
    from floodmark.client import Client

# As many as a server gives at once.
_AT_ONCE = 200


class TokenVerbs(Protocol):
    """What can be done with tokens, here or on a server."""

    async def page(self, *, after: str | None = None, limit: int = 100) -> list[TokenRow]:
        """In order of name, revoked ones too. The next page is `after` the name of the last one."""
        ...

    async def show(self, name: str) -> TokenRow:
        """One of them."""
        ...

    async def add(self, name: str, role: Role, expires_in: timedelta | None = None) -> Minted:
        """Make a token. Its text cannot be had again."""
        ...

    async def revoke(self, name: str) -> TokenRow:
        """Let nobody in with it any more; what it is now."""
        ...


def tokens_of(office: Office) -> TokenVerbs:
    """The tokens of the installation that an office is for."""
    if isinstance(office, LocalOffice):
        return TokenOffice(office)
    from .remote import RemoteOffice  # noqa: PLC0415 - needs an HTTP client, which a server does not

    assert isinstance(office, RemoteOffice)
    return RemoteTokens(office.client)


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
        async with self._office.changing():
            minted = await self._tokens.add(name, role, expires_in)
            await self._office.note("token.added", f"token:{name}", after=_told(minted.row))
        return minted

    async def revoke(self, name: str) -> TokenRow:
        """Let nobody in with it any more; what it is now."""
        async with self._office.changing():
            before = await self._tokens.revoke(name)
            after = await self._tokens.show(name)
            was, now = {"state": before.state}, {"state": after.state}
            await self._office.note("token.revoked", f"token:{name}", before=was, after=now)
        return after


class RemoteTokens:
    """The same behind a server, which writes the audit."""

    def __init__(self, client: "Client") -> None:
        self._client = client

    async def page(self, *, after: str | None = None, limit: int = 100) -> list[TokenRow]:
        """In order of name, revoked ones too. The next page is `after` the name of the last one."""
        found: list[TokenRow] = []
        cursor: str | None = None
        while True:
            part = await self._client.tokens(cursor=cursor, limit=_AT_ONCE)
            found += [row for row in part.items if after is None or row.name > after]
            cursor = part.next
            if cursor is None or len(found) >= limit:
                return found[:limit]

    async def show(self, name: str) -> TokenRow:
        """One of them."""
        return await self._client.token(name)

    async def add(self, name: str, role: Role, expires_in: timedelta | None = None) -> Minted:
        """Make a token. Its text cannot be had again."""
        return await self._client.add_token(name, role, expires_in)

    async def revoke(self, name: str) -> TokenRow:
        """Let nobody in with it any more; what it is now."""
        return await self._client.revoke_token(name)


def _told(row: TokenRow) -> dict[str, Any]:
    return {"token_id": row.token_id, "role": row.role, "expires_at": row.expires_at}
