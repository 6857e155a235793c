"""Tokens of the API. Table: `tokens`, written when a token is added, revoked or used; a revoked token stays until its
name is reused.

A token is `fm_ID_SECRET`. Only a SHA-256 digest of the secret is stored: 32 random bytes cannot be guessed, so a slow
hash would add cost to every request and no protection.
"""

import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, delete, or_, select, update

from floodmark.errors import Conflict, InvalidInput, NotFound
from floodmark.model.clock import Clock
from floodmark.model.tokens import ROLES, Minted, Role, TokenRow
from floodmark.store.database import Database
from floodmark.store.dialects import insert_into, present

from .tables import tokens

MOST_SHOWN = 500
# The names of callers without a token in the audit log.
RESERVED = ("local", "anonymous")
# The resolution of `last_used_at`, so that a busy token costs one write in this time.
USE_NOTED_EVERY = timedelta(minutes=1)

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_TOKEN = re.compile(r"fm_([0-9a-f]{16})_[0-9a-f]{64}", re.ASCII)
_LONGEST = timedelta(days=36_500)


class StoredToken(TokenRow, frozen=True, kw_only=True):
    """A token with what is needed to check it."""

    digest: str
    use_is_due: bool
    """Whether the stored last use is out of date."""

    def __repr__(self) -> str:
        return f"StoredToken({self.name!r})"

    def fits(self, text: str) -> bool:
        """Return whether this is the text of the token, in constant time."""
        return hmac.compare_digest(self.digest, digest_of(text))


def digest_of(text: str) -> str:
    """Return the digest of a token, as it is stored."""
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def id_in(text: str) -> str | None:
    """Return the id in the text of a token; None if it is malformed."""
    found = _TOKEN.fullmatch(text)
    return found[1] if found else None


class Tokens:
    """The repository of tokens."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database, self._clock = database, clock

    async def add(self, name: str, role: Role, expires_in: timedelta | None = None) -> Minted:
        """Create a token; only the caller gets its text.

        `Conflict` if an active token has the name. A revoked or expired one is replaced.
        """
        _check(name, role, expires_in)
        token_id = secrets.token_hex(8)
        text = f"fm_{token_id}_{secrets.token_hex(32)}"
        row = {
            "token_id": token_id,
            "name": name,
            "role": role,
            "digest": digest_of(text),
            "created_at": self._now(),
            "expires_at": None if expires_in is None else self._now(expires_in),
        }
        async with self._database.writing() as connection:
            await connection.execute(delete(tokens).where(tokens.c.name == name, ~self._is_active()))
            statement = insert_into(self._database, tokens).values(**row).on_conflict_do_nothing()
            if not (await connection.execute(statement)).rowcount:
                raise Conflict(
                    f"there is already a token {name}",
                    hint=f"choose another name, or revoke it first: floodmark tokens revoke {name}",
                )
            made = (await connection.execute(self._rows().where(tokens.c.name == name))).mappings().one()
            return Minted(_token(made), text)

    async def page(self, after: str | None = None, limit: int = 100) -> list[TokenRow]:
        """Return tokens sorted by name, including revoked ones. The next page is `after` the last name."""
        query = self._rows() if after is None else self._rows().where(tokens.c.name > after)
        async with self._database.reading() as connection:
            rows = await connection.execute(query.order_by(tokens.c.name).limit(max(1, min(limit, MOST_SHOWN))))
            return [_token(row) for row in rows.mappings()]

    async def show(self, name: str) -> TokenRow:
        """Return one token. `NotFound` lists some names."""
        async with self._database.reading() as connection:
            row = (await connection.execute(self._rows().where(tokens.c.name == name))).mappings().first()
        if row is None:
            there = [known.name for known in await self.page(limit=5)]
            hint = f"there are: {', '.join(there)}" if there else "add one: floodmark tokens add NAME --role read"
            raise NotFound(f"there is no token {name[:80]!r}", hint=hint)
        return _token(row)

    async def revoke(self, name: str) -> TokenRow:
        """Revoke a token; return what it was. Every process refuses it within a second."""
        before = await self.show(name)
        statement = update(tokens).where(tokens.c.name == name, tokens.c.revoked_at.is_(None))
        async with self._database.writing() as connection:
            if not (await connection.execute(statement.values(revoked_at=self._now()))).rowcount:
                raise Conflict(f"the token {name} is revoked already", hint="see them with: floodmark tokens ls")
        return before

    async def find(self, token_id: str) -> StoredToken | None:
        """Return a token with what is needed to check it."""
        is_due = or_(tokens.c.last_used_at.is_(None), tokens.c.last_used_at <= self._now(-USE_NOTED_EVERY))
        query = self._rows().add_columns(tokens.c.digest, is_due.label("use_is_due"))
        async with self._database.reading() as connection:
            row = (await connection.execute(query.where(tokens.c.token_id == token_id))).mappings().first()
        if row is None:
            return None
        return StoredToken(**_with_state(row), digest=row["digest"], use_is_due=bool(row["use_is_due"]))

    async def note_use(self, token_id: str) -> None:
        """Set the last use to now."""
        statement = update(tokens).where(tokens.c.token_id == token_id).values(last_used_at=self._now())
        async with self._database.writing() as connection:
            await connection.execute(statement)

    async def is_empty(self) -> bool:
        """Return whether there has never been a token. Revoked ones count: revoking the last must not open the API."""
        return not await self._exists(select(tokens.c.token_id))

    async def has_active(self) -> bool:
        """Return whether there is an active token."""
        return await self._exists(select(tokens.c.token_id).where(self._is_active()))

    async def _exists(self, query: Select[Any]) -> bool:
        async with self._database.reading() as connection:
            return (await connection.execute(query.limit(1))).first() is not None

    def _now(self, after: timedelta = timedelta()) -> ColumnElement[Any]:
        return present(self._database, self._clock, after)

    def _is_active(self) -> ColumnElement[bool]:
        is_timely = or_(tokens.c.expires_at.is_(None), tokens.c.expires_at > self._now())
        return and_(tokens.c.revoked_at.is_(None), is_timely)

    def _rows(self) -> Select[Any]:
        columns = [tokens.c[name] for name in TokenRow.__struct_fields__ if name != "state"]
        return select(*columns, self._is_active().label("is_active"))


def _token(row: Mapping[Any, Any]) -> TokenRow:
    return TokenRow(**_with_state(row))


def _with_state(row: Mapping[Any, Any]) -> dict[str, Any]:
    state = "revoked" if row["revoked_at"] is not None else "active" if row["is_active"] else "expired"
    return {name: row[name] for name in TokenRow.__struct_fields__ if name != "state"} | {"state": state}


def _check(name: str, role: str, expires_in: timedelta | None) -> None:
    if _NAME.fullmatch(name) is None or name in RESERVED:
        raise InvalidInput(
            f"{name[:80]!r} cannot be the name of a token",
            hint=f"up to 64 letters, digits and any of - _ . that begin with a letter or digit; not {RESERVED[0]}, "
            f"not {RESERVED[1]}",
        )
    if role not in ROLES:
        raise InvalidInput(f"{str(role)[:80]!r} is not a role", hint=f"choose one of: {', '.join(ROLES)}")
    if expires_in is not None and not timedelta() < expires_in <= _LONGEST:
        raise InvalidInput(
            "a token can be valid for at most a hundred years", hint="write it like 90d, or leave it out"
        )
