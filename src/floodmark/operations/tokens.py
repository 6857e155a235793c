"""Tokens of the API: list, add, revoke."""

from datetime import timedelta
from typing import Annotated

from floodmark.model.durations import parse_every
from floodmark.model.page import Page
from floodmark.model.tokens import Minted, Role, TokenRow, Visitor

from .declaration import Body, Each, Path, delete, get, post
from .words import Cursor, Label, Limit

_TAG = "Installation"

TokenName = Annotated[Label, Path("The name of a token.")]


def _duration_text(value: timedelta) -> str:
    return f"{value.days}d{value.seconds}s"


class TokenOperations:
    """Tokens of the API."""

    @get("/whoami", role=None, tag=_TAG)
    async def whoami(self) -> Visitor:
        """Show the caller. The answer has its name and role; use it to try a token."""

    @get("/tokens", role="admin", tag=_TAG, operation_id="list_tokens")
    async def tokens(self, *, cursor: Cursor = None, limit: Limit = 50) -> Page[TokenRow]:
        """List tokens. They are sorted by name and include revoked and expired ones."""

    each_token = Each(tokens)

    @post("/tokens", role="admin", tag=_TAG, status=201, body=("TokenIn", "A new token."))
    async def add_token(
        self,
        name: Annotated[
            Label, Body("The name of its user in the audit log: letters, digits, and any of - _ .", examples=["ci"])
        ],
        role: Annotated[Role, Body("`read`, `operate` or `admin`; each includes those before it.")],
        expires_in: Annotated[
            timedelta | None,
            Body(
                "How long it is valid; without end, if left out.",
                type=str | None,
                send=_duration_text,
                read=parse_every,
                max_length=40,
                examples=["90d"],
            ),
        ] = None,
    ) -> Minted:
        """Create a token. Keep the answer: `token` is shown once. From the first token on, every caller needs one."""

    @get("/tokens/{name}", role="admin", tag=_TAG, operation_id="show_token")
    async def token(self, name: TokenName) -> TokenRow:
        """Show a token. The answer has its role, its last use and its expiry."""

    @delete("/tokens/{name}", tag=_TAG)
    async def revoke_token(self, name: TokenName) -> TokenRow:
        """Revoke a token. It is refused at once here and within a second elsewhere; it stays in the list as revoked."""
