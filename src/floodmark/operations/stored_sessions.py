"""Sessions of the dashboard. Table: `sessions`, written at sign-in and once a minute of use.

A row is deleted at sign-out, when it is ended, and some time after it has expired. A session expires 30 days after
sign-in, and when it has not been used for a week.

The cookie of a session is `fs_ID_SECRET`. As with tokens, only a digest of it is stored.
"""

import re
import secrets
from datetime import timedelta
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, delete, or_, select, update

from floodmark.errors import NotFound
from floodmark.model.tokens import SessionRow
from floodmark.repositories.repository import Repository, bound_limit

from .stored_tokens import USE_NOTED_EVERY, digest_of
from .tables import sessions, tokens

MOST_SHOWN = 500
KEPT, KEPT_UNUSED = timedelta(days=30), timedelta(days=7)
# A token that signs in more often ends its oldest sessions.
MOST_OF_A_TOKEN = 100
_COOKIE = re.compile(r"fs_([0-9a-f]{16})_[0-9a-f]{64}", re.ASCII)
_LONGEST_BROWSER, _LONGEST_ADDRESS = 200, 60


class StoredSession(SessionRow, frozen=True, kw_only=True):
    """A session with what is needed to check it."""

    digest: str
    use_is_due: bool
    """Whether the stored last use is out of date."""

    def __repr__(self) -> str:
        return f"StoredSession({self.session_id!r})"


def session_id_in(cookie: str) -> str | None:
    """Return the id in the cookie of a session; None if it is malformed."""
    found = _COOKIE.fullmatch(cookie)
    return found[1] if found else None


class DashboardSessions(Repository):
    """The repository of sessions."""

    async def add(self, token_id: str, *, browser: str, address: str) -> str:
        """Begin a session of a token; return its cookie."""
        session_id = secrets.token_hex(8)
        cookie = f"fs_{session_id}_{secrets.token_hex(32)}"
        row = {
            "session_id": session_id,
            "digest": digest_of(cookie),
            "token_id": token_id,
            "browser": browser[:_LONGEST_BROWSER],
            "address": address[:_LONGEST_ADDRESS],
            "created_at": self._now(),
            "last_used_at": self._now(),
            "expires_at": self._now(KEPT),
        }
        newest = select(sessions.c.session_id).where(sessions.c.token_id == token_id)
        kept = newest.order_by(sessions.c.created_at.desc(), sessions.c.session_id).limit(MOST_OF_A_TOKEN - 1)
        superfluous = and_(sessions.c.token_id == token_id, sessions.c.session_id.not_in(kept))
        async with self._database.writing() as connection:
            await connection.execute(delete(sessions).where(or_(~self._is_timely(), superfluous)))
            await connection.execute(self._insert_into(sessions).values(**row))
        return cookie

    async def page(self, after: str | None = None, limit: int = 100) -> list[SessionRow]:
        """Return the sessions that are valid, by id. The next page is `after` the last id."""
        query = self._valid() if after is None else self._valid().where(sessions.c.session_id > after)
        ordered = query.order_by(sessions.c.session_id).limit(bound_limit(limit, MOST_SHOWN))
        return [SessionRow(**row) for row in await self._database.fetch(ordered)]

    async def find(self, session_id: str) -> StoredSession | None:
        """Return a valid session with what is needed to check it."""
        is_due = sessions.c.last_used_at <= self._now(-USE_NOTED_EVERY)
        query = self._valid().add_columns(sessions.c.digest, is_due.label("use_is_due"))
        rows = await self._database.fetch(query.where(sessions.c.session_id == session_id))
        return StoredSession(**{**rows[0], "use_is_due": bool(rows[0]["use_is_due"])}) if rows else None

    async def note_use(self, session_id: str) -> None:
        """Set the last use to now."""
        this = update(sessions).where(sessions.c.session_id == session_id)
        async with self._database.writing() as connection:
            await connection.execute(this.values(last_used_at=self._now()))

    async def end(self, session_id: str) -> SessionRow:
        """End a session; return what it was. Every process refuses it within a second."""
        found = await self._database.fetch(self._valid().where(sessions.c.session_id == session_id))
        if not found:
            raise NotFound(
                f"there is no session {session_id[:80]!r}", hint="see the sessions with: floodmark tokens sessions"
            )
        async with self._database.writing() as connection:
            await connection.execute(delete(sessions).where(sessions.c.session_id == session_id))
        return SessionRow(**found[0])

    async def end_all(self, token: str | None = None) -> int:
        """End the sessions of a token, or all; return their number."""
        query = delete(sessions)
        if token is not None:
            query = query.where(sessions.c.token_id.in_(select(tokens.c.token_id).where(tokens.c.name == token)))
        async with self._database.writing() as connection:
            return (await connection.execute(query)).rowcount

    def _is_timely(self) -> ColumnElement[bool]:
        is_used = sessions.c.last_used_at > self._now(-KEPT_UNUSED)
        return and_(sessions.c.expires_at > self._now(), is_used)

    def _valid(self) -> Select[Any]:
        own = [sessions.c[name] for name in SessionRow.__struct_fields__ if name not in ("token", "role")]
        is_active = or_(tokens.c.expires_at.is_(None), tokens.c.expires_at > self._now())
        return (
            select(*own, tokens.c.name.label("token"), tokens.c.role)
            .join(tokens, tokens.c.token_id == sessions.c.token_id)
            .where(self._is_timely(), tokens.c.revoked_at.is_(None), is_active)
        )
