"""The audit log: who changed what, and when. Table: `audit`; rows are never changed or pruned.

An entry is written in the transaction of its change, so that neither exists without the other.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct
from sqlalchemy import insert, select

from floodmark.model.audit import Actor, AuditRow
from floodmark.model.clean_text import clean
from floodmark.process.failpoints import OPERATION_POINT, failpoint
from floodmark.security.masking import mask_values
from floodmark.store.async_engine import AsyncConnection
from floodmark.store.tables import audit

from .repository import Repository, bound_limit

MOST_SHOWN = 500


class AuditEntry(Struct, frozen=True, kw_only=True):
    """A change. `what` is the kind and name of the changed object, as in `job:news`."""

    action: str
    what: str
    before: Mapping[str, Any] | None = None
    after: Mapping[str, Any] | None = None


class AuditLog(Repository):
    """Records and lists changes."""

    async def record(
        self,
        actor: Actor,
        action: str,
        what: str,
        *,
        before: Mapping[str, Any] | None = None,
        after: Mapping[str, Any] | None = None,
    ) -> None:
        """Record one change, within the `writing` that makes it. `what`: its kind and name, as in `job:news`."""
        assert self._database.is_writing, f"{action} is recorded outside the transaction of its change"
        entry = AuditEntry(action=action, what=what, before=before, after=after)
        async with self._database.writing() as connection:
            await self.record_within(connection, actor, [entry])

    async def record_within(self, connection: AsyncConnection, actor: Actor, entries: Sequence[AuditEntry]) -> None:
        """Record changes in the transaction that makes them."""
        if entries:
            failpoint(OPERATION_POINT)
            statement = insert(audit).values(at=self._now())
            await connection.execute(statement, [_columns(actor, entry) for entry in entries])

    async def page(self, *, what: str | None = None, before: int | None = None, limit: int = 50) -> list[AuditRow]:
        """Return entries, newest first, of one object or of all. The next page is `before` the `seq` of the last."""
        query = select(*(audit.c[name] for name in AuditRow.__struct_fields__)).order_by(audit.c.seq.desc())
        if what is not None:
            query = query.where(audit.c.object == what)
        if before is not None:
            query = query.where(audit.c.seq < before)
        rows = await self._database.fetch(query.limit(bound_limit(limit, MOST_SHOWN)))
        return [AuditRow(**row) for row in rows]

    async def newest(self, limit: int = 50) -> list[dict[str, Any]]:
        """Return number, action, object and author of the newest entries, without their values."""
        columns = (audit.c.seq, audit.c.action, audit.c.object, audit.c.who)
        rows = await self._database.fetch(select(*columns).order_by(audit.c.seq.desc()).limit(limit))
        return [dict(row) for row in rows]


def _columns(actor: Actor, entry: AuditEntry) -> dict[str, Any]:
    return {
        "who": clean(actor.who),
        "via": actor.via,
        "action": entry.action,
        "object": clean(entry.what),
        "before": _mask_secrets(entry.before),
        "after": _mask_secrets(entry.after),
        "request_id": actor.request_id,
    }


def _mask_secrets(columns: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return columns without secrets: the audit log is readable with every role, and kept for ever."""
    if columns is None:
        return None
    # Only params and texts can contain secrets; the names of our own columns never hide one.
    return {
        name: mask_values(value) if name == "params" or isinstance(value, str) else value
        for name, value in clean(dict(columns)).items()
    }
