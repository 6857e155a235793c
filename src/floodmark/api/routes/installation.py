"""Accounts and the audit."""

from typing import Annotated, Any

from fastapi import Query
from msgspec.structs import asdict
from starlette.responses import Response

from floodmark.api.deps import Reading
from floodmark.api.models import AuditOut, Text, model_of
from floodmark.api.paging import Cursor, Limit, Page, key_of, page
from floodmark.api.routing import answer, router
from floodmark.store.accounts import AccountRow, Accounts
from floodmark.vault import Vault

installation = router(tag="Installation")

AccountOut: Any = model_of(
    "AccountOut",
    AccountRow,
    "An account at a source, without anything secret.",
    {
        "phone": "As much of the number as may be shown.",
        "reason": "Why it is parked.",
        "holder": "The process that has its session open.",
    },
)


@installation.get("/accounts", response_model=Page[AccountOut], summary="List accounts")
async def list_accounts(office: Reading, cursor: Cursor = None, limit: Limit = 50) -> Response:
    """In order of name, without secrets. They are added by command: `floodmark accounts add`."""
    key = key_of("accounts", cursor, str)
    parts = office.parts
    accounts = Accounts(parts.database, parts.clock, Vault.of(parts.settings))
    found = await accounts.page(after=None if key is None else key[0], limit=limit + 1)
    return answer(page(found, limit, "accounts", lambda row: [row.name], asdict))


@installation.get("/audit", response_model=Page[AuditOut], summary="Show who changed what")
async def list_audit(
    office: Reading,
    what: Annotated[Text | None, Query(description="Only of this object.", examples=["job:news"])] = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> Response:
    """Every change, newest first, with what was there before and after."""
    key = key_of("audit", cursor, int)
    rows = await office.audit(what=what, before=None if key is None else key[0], limit=limit + 1)
    return answer(page(rows, limit, "audit", lambda row: [row.seq], asdict))
