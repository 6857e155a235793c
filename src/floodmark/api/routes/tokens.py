"""Tokens: who may use the API, and what for."""

from datetime import datetime
from typing import Annotated, Literal

from fastapi import Depends, Request
from fastapi import Path as InPath
from msgspec.structs import asdict
from pydantic import BaseModel, Field
from starlette.responses import Response

from floodmark.api.access import Visitor, access_of, visiting
from floodmark.api.deps import Administering
from floodmark.api.models import Given
from floodmark.api.paging import Cursor, Limit, Page, key_of, page
from floodmark.api.routing import answer, router
from floodmark.model.durations import parse_every
from floodmark.operations.stored_tokens import Role
from floodmark.operations.tokens import TokenOffice

tokens = router(tag="Installation")

TokenName = Annotated[str, InPath(description="The name of a token.", min_length=1, max_length=64)]


class TokenIn(Given):
    """A token to be made."""

    name: str = Field(
        description="What the audit calls whoever uses it: letters, digits, and any of - _ .",
        min_length=1,
        max_length=64,
        examples=["ci"],
    )
    role: Role = Field(description="`read`, `operate` or `admin`; each may what those before it may.")
    expires_in: str | None = Field(
        default=None, description="How long it is good for; for ever, if left out.", max_length=40, examples=["90d"]
    )


class TokenOut(BaseModel):
    """A token without its secret."""

    token_id: str = Field(description="The part of it that is no secret.")
    name: str
    role: Role
    state: Literal["active", "expired", "revoked"]
    created_at: datetime
    last_used_at: datetime | None = Field(description="To the minute.")
    expires_at: datetime | None
    revoked_at: datetime | None


class NewTokenOut(TokenOut):
    """A token that was just made."""

    token: str = Field(description="The token itself. It is shown this once and stored nowhere.")


class VisitorOut(BaseModel):
    """Who asks."""

    who: str = Field(description="The name of the token; `local` for this machine without one.", examples=["ci"])
    role: Role


@tokens.get("/whoami", response_model=VisitorOut, summary="Tell who asks")
async def whoami(visitor: Annotated[Visitor, Depends(visiting)]) -> Response:
    """Under which name, and what that may do: to try out a token."""
    return answer(visitor)


@tokens.get("/tokens", response_model=Page[TokenOut], summary="List tokens")
async def list_tokens(office: Administering, cursor: Cursor = None, limit: Limit = 50) -> Response:
    """In order of name, with those that are revoked or have expired."""
    key = key_of("tokens", cursor, str)
    found = await TokenOffice(office).page(after=None if key is None else key[0], limit=limit + 1)
    return answer(page(found, limit, "tokens", lambda row: [row.name], asdict))


@tokens.post("/tokens", status_code=201, response_model=NewTokenOut, summary="Make a token")
async def add_token(request: Request, office: Administering, body: TokenIn) -> Response:
    """Make a token. Keep the answer: `token` is not shown again. From the first one on everybody needs one."""
    expires_in = None if body.expires_in is None else parse_every(body.expires_in)
    minted = await TokenOffice(office).add(body.name, body.role, expires_in)
    access_of(request.app).forget()
    return answer({**asdict(minted.row), "token": minted.text}, 201)


@tokens.get("/tokens/{name}", response_model=TokenOut, summary="Show a token")
async def show_token(office: Administering, name: TokenName) -> Response:
    """What it may do, when it was last used, and until when it is good."""
    return answer(await TokenOffice(office).show(name))


@tokens.delete("/tokens/{name}", response_model=TokenOut, summary="Revoke a token")
async def revoke_token(request: Request, office: Administering, name: TokenName) -> Response:
    """Let nobody in with it any more: at once here, within a second elsewhere. It stays in the list as revoked."""
    row = await TokenOffice(office).revoke(name)
    access_of(request.app).forget()
    return answer(row)
