"""API tokens."""

from datetime import datetime
from typing import Annotated, Literal, get_args

from msgspec import Meta, Struct

Role = Literal["read", "operate", "admin"]
ROLES: tuple[Role, ...] = get_args(Role)
"""From the least powerful to the most powerful; each role includes those before it."""


class TokenRow(Struct, frozen=True, kw_only=True):
    """A token without its secret."""

    token_id: Annotated[str, Meta(description="Its public part.")]
    name: str
    role: Role
    state: Literal["active", "expired", "revoked"]
    created_at: datetime
    last_used_at: Annotated[datetime | None, Meta(description="Rounded to the minute.")]
    expires_at: datetime | None
    revoked_at: datetime | None


class SessionRow(Struct, frozen=True, kw_only=True):
    """A browser that is signed in to the dashboard."""

    session_id: str
    token: Annotated[str, Meta(description="The name of the token it signed in with.")]
    role: Role
    browser: Annotated[str, Meta(description="How the browser describes itself.")]
    address: Annotated[str, Meta(description="The address it signed in from.")]
    created_at: datetime
    last_used_at: Annotated[datetime, Meta(description="Rounded to the minute.")]
    expires_at: datetime


class Minted:
    """A new token. Not a struct, so that printing or encoding it never shows the text by accident."""

    __slots__ = ("row", "text")

    def __init__(self, row: TokenRow, text: str) -> None:
        self.row, self.text = row, text

    def __repr__(self) -> str:
        return f"Minted({self.row.name!r}, ***)"


class Visitor(Struct, frozen=True, kw_only=True):
    """The caller of the API."""

    who: Annotated[
        str,
        Meta(description="The name of the token; `local` for calls from this machine without one.", examples=["ci"]),
    ]
    role: Role


def is_enough(role: Role, needed: Role) -> bool:
    """Whether `role` includes `needed`."""
    return ROLES.index(role) >= ROLES.index(needed)
