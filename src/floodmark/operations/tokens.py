"""Access: tokens of the API, and sessions of the dashboard."""

from datetime import timedelta
from typing import Annotated

from floodmark.model.durations import parse_every
from floodmark.model.page import Page
from floodmark.model.tokens import Minted, Role, SessionRow, TokenRow, Visitor

from .declaration import Body, Each, Envelope, Path, Query, delete, get, post
from .words import Cursor, Label, Limit

_TAG = "Installation"
_ENDED = Envelope("EndedSessionsOut", "The sessions that were ended.", "ended", "Their number.")

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

    @get("/sessions", role="admin", tag=_TAG, operation_id="list_sessions")
    async def sessions(self, *, cursor: Cursor = None, limit: Limit = 50) -> Page[SessionRow]:
        """List sessions. Each is a browser that is signed in to the dashboard."""

    each_session = Each(sessions)

    @delete("/sessions", tag=_TAG, envelope=_ENDED)
    async def end_sessions(
        self, *, token: Annotated[Label | None, Query("Only the sessions of this token.", examples=["ci"])] = None
    ) -> int:
        """End all sessions, or those of a token. Every browser has to sign in again."""

    @delete("/sessions/{session_id}", tag=_TAG)
    async def end_session(
        self, session_id: Annotated[Label, Path("The id of a session.", examples=["0f8c1d2e3a4b5c6d"])]
    ) -> SessionRow:
        """End a session. Its browser has to sign in again, at once here and within a second elsewhere."""
