"""Tokens of the API: list, add, revoke."""

from datetime import timedelta
from typing import Annotated

from floodmark.model.durations import parse_every
from floodmark.model.page import Page
from floodmark.model.tokens import Minted, Role, TokenRow, Visitor

from .declaration import Body, Each, Path, delete, get, post
from .words import Cursor, Limit

_TAG = "Installation"

TokenName = Annotated[str, Path(description="The name of a token.", min_length=1, max_length=64)]


def _duration_text(value: timedelta) -> str:
    return f"{value.days}d{value.seconds}s"


class TokenOperations:
    """Who may use the API, and what for."""

    @get("/whoami", role=None, tag=_TAG)
    async def whoami(self) -> Visitor:
        """Tell who asks.

        Under which name, and what that may do: to try out a token.
        """

    @get("/tokens", role="admin", tag=_TAG, operation_id="list_tokens")
    async def tokens(self, *, cursor: Cursor = None, limit: Limit = 50) -> Page[TokenRow]:
        """List tokens.

        In order of name, with those that are revoked or have expired.
        """

    each_token = Each(tokens)

    @post("/tokens", role="admin", tag=_TAG, status=201, body=("TokenIn", "A token to be made."))
    async def add_token(
        self,
        name: Annotated[
            str,
            Body(
                description="What the audit calls whoever uses it: letters, digits, and any of - _ .",
                min_length=1,
                max_length=64,
                examples=["ci"],
            ),
        ],
        role: Annotated[Role, Body(description="`read`, `operate` or `admin`; each may what those before it may.")],
        expires_in: Annotated[
            timedelta | None,
            Body(
                type=str | None,
                send=_duration_text,
                read=parse_every,
                description="How long it is good for; for ever, if left out.",
                max_length=40,
                examples=["90d"],
            ),
        ] = None,
    ) -> Minted:
        """Make a token.

        Make a token. Keep the answer: `token` is not shown again. From the first one on everybody needs one.
        """

    @get("/tokens/{name}", role="admin", tag=_TAG, operation_id="show_token")
    async def token(self, name: TokenName) -> TokenRow:
        """Show a token.

        What it may do, when it was last used, and until when it is good.
        """

    @delete("/tokens/{name}", tag=_TAG)
    async def revoke_token(self, name: TokenName) -> TokenRow:
        """Revoke a token.

        Let nobody in with it any more: at once here, within a second elsewhere. It stays in the list as revoked.
        """
