"""Who changed what, and when. Table: `audit`, never changed, not pruned.

An entry is written in the transaction of the change it tells of: there is neither without the other.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct
from sqlalchemy import insert, select

from floodmark.model.audit import Actor, AuditRow
from floodmark.model.clean_text import clean
from floodmark.model.clock import Clock
from floodmark.process.failpoints import OPERATION_POINT, failpoint
from floodmark.security.masking import mask_values

from .async_engine import AsyncConnection
from .database import Database
from .dialects import present
from .tables import audit

MOST_SHOWN = 500


class AuditEntry(Struct, frozen=True, kw_only=True):
    """A change to be written down. `what` names it by kind and name, as in `job:news`."""

    action: str
    what: str
    before: Mapping[str, Any] | None = None
    after: Mapping[str, Any] | None = None


class AuditLog:
    """Remembers changes."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database, self._clock = database, clock

    async def record(
        self,
        actor: Actor,
        action: str,
        what: str,
        *,
        before: Mapping[str, Any] | None = None,
        after: Mapping[str, Any] | None = None,
    ) -> None:
        """Write one change down, within the `writing` that makes it. `what`: its kind and name, as in `job:news`."""
        assert self._database.is_writing, f"{action} is noted outside of the transaction that makes the change"
        async with self._database.writing() as connection:
            await self.record_within(
                connection, actor, [AuditEntry(action=action, what=what, before=before, after=after)]
            )

    async def record_within(self, connection: AsyncConnection, actor: Actor, entries: Sequence[AuditEntry]) -> None:
        """Write changes down in the transaction that makes them."""
        if entries:
            failpoint(OPERATION_POINT)
            statement = insert(audit).values(at=present(self._database, self._clock))
            await connection.execute(statement, [_columns(actor, entry) for entry in entries])

    async def page(self, *, what: str | None = None, before: int | None = None, limit: int = 50) -> list[AuditRow]:
        """Newest first, of one object or of all. The next page is `before` the `seq` of the last one."""
        query = select(*(audit.c[name] for name in AuditRow.__struct_fields__)).order_by(audit.c.seq.desc())
        if what is not None:
            query = query.where(audit.c.object == what)
        if before is not None:
            query = query.where(audit.c.seq < before)
        async with self._database.reading() as connection:
            rows = await connection.execute(query.limit(max(1, min(limit, MOST_SHOWN))))
            return [AuditRow(**row) for row in rows.mappings()]


def _columns(actor: Actor, entry: AuditEntry) -> dict[str, Any]:
    return {
        "who": clean(actor.who),
        "via": actor.via,
        "action": entry.action,
        "object": clean(entry.what),
        "before": _shown(entry.before),
        "after": _shown(entry.after),
        "request_id": actor.request_id,
    }


def _shown(told: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Whoever may read may read the audit, and it is kept for ever: no secret belongs into it."""
    if told is None:
        return None
    return {name: _without_secrets(name, value) for name, value in clean(dict(told)).items()}


def _without_secrets(name: str, value: Any) -> Any:
    # The names of columns are ours and hide nothing; what is in the params was named by others.
    return mask_values(value) if name == "params" or isinstance(value, str) else value
