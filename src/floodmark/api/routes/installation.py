"""The audit, and whether everything holds."""

from typing import Annotated, Any

from fastapi import Query
from msgspec.structs import asdict
from pydantic import BaseModel, Field
from starlette.responses import Response

from floodmark.api.deps import Operating, Reading
from floodmark.api.models import AuditOut, Text, model_of
from floodmark.api.paging import Cursor, Limit, Page, key_of, page
from floodmark.api.routing import answer, router
from floodmark.operations.doctor import Finding

installation = router(tag="Installation")


FindingOut: Any = model_of(
    "FindingOut",
    Finding,
    "One thing that was looked at.",
    {
        "code": "What it is: database, schema, leader, or the name of an invariant, as in I5.",
        "ok": "Whether it is well.",
        "hint": "What to do about it; empty when all is well.",
    },
)


class DoctorOut(BaseModel):
    """How an installation is."""

    ok: bool = Field(description="Whether everything is well.")
    findings: list[FindingOut] = Field(description="In the order in which one would mend it.")


@installation.get("/doctor", response_model=DoctorOut, summary="Examine the installation")
async def examine(office: Operating) -> Response:
    """Does everything answer, does everything hold? The same as `floodmark doctor`; it reads a lot, so ask seldom."""
    found = await office.examine()
    return answer({"ok": all(finding.ok for finding in found), "findings": found})


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
