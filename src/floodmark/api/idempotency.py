"""Answers to requests that may be repeated. Table: `idempotency_keys`, one row for each key; forgotten after a day.

A row is a claim first: its `answer` holds nothing but the id that was promised to what is being made. Whoever holds
the claim makes it and completes the answer. A claim whose holder has gone silent is taken over, with the same id, so
that what was made just before the silence is found and not made twice.
"""

from datetime import timedelta
from typing import Any

from msgspec import Struct
from sqlalchemy import delete, select, update

from floodmark.model.clock import Clock
from floodmark.model.ids import new_id
from floodmark.store.database import Database
from floodmark.store.dialects import insert_into, present

from .tables import idempotency_keys

KEPT = timedelta(hours=24)
# Longer than any request is allowed to take.
SILENT = timedelta(seconds=60)

_c = idempotency_keys.c


class Claim(Struct, frozen=True, kw_only=True):
    """A key as it was found. `is_mine`: whoever asked has to make the answer, under the id `promised`."""

    fingerprint: str
    promised: str
    is_mine: bool = False
    is_taken_over: bool = False
    answer: dict[str, Any] | None = None


class IdempotencyKeys:
    """Remembers which requests were answered, and how."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database, self._clock = database, clock

    async def claim(self, key: str, fingerprint: str) -> Claim:
        """Take a key that nobody has, or see what became of it."""
        now = present(self._database, self._clock)
        promised = new_id()
        row = {"key": key, "fingerprint": fingerprint, "answer": {"promised": promised}, "created_at": now}
        insert = insert_into(self._database, idempotency_keys).values(row).on_conflict_do_nothing()
        async with self._database.writing() as connection:
            await connection.execute(delete(idempotency_keys).where(_c.key == key, _c.created_at < self._ago(KEPT)))
            if (await connection.execute(insert)).rowcount:
                return Claim(fingerprint=fingerprint, promised=promised, is_mine=True)
            # Locked, so that of two who find it silent only one takes it over.
            query = select(_c.fingerprint, _c.answer, (_c.created_at < self._ago(SILENT)).label("is_silent"))
            found = (await connection.execute(query.where(_c.key == key).with_for_update())).first()
            if found is None:
                # Given up between the two statements: it can be had at the next try.
                return Claim(fingerprint=fingerprint, promised=promised)
            told = found.answer
            if "status" in told:
                return Claim(fingerprint=found.fingerprint, promised=told["promised"], answer=told)
            is_mine = bool(found.is_silent) and found.fingerprint == fingerprint
            if is_mine:
                await connection.execute(update(idempotency_keys).where(_c.key == key).values(created_at=now))
            return Claim(
                fingerprint=found.fingerprint, promised=told["promised"], is_mine=is_mine, is_taken_over=is_mine
            )

    async def answered(self, key: str, claim: Claim, answer: dict[str, Any]) -> None:
        """Remember the answer for whoever repeats the request."""
        told = {**answer, "promised": claim.promised}
        async with self._database.writing() as connection:
            await connection.execute(update(idempotency_keys).where(_c.key == key).values(answer=told))

    async def give_up(self, key: str) -> None:
        """Nothing was made: the key is free again."""
        async with self._database.writing() as connection:
            await connection.execute(delete(idempotency_keys).where(_c.key == key))

    async def fall_silent(self, key: str) -> None:
        """Something may have been made: whoever repeats the request shall look."""
        long_ago = self._ago(SILENT * 2)
        async with self._database.writing() as connection:
            await connection.execute(update(idempotency_keys).where(_c.key == key).values(created_at=long_ago))

    async def prune(self) -> int:
        """Forget what is older than a day; how many."""
        async with self._database.writing() as connection:
            gone = await connection.execute(delete(idempotency_keys).where(_c.created_at < self._ago(KEPT)))
        return int(gone.rowcount)

    def _ago(self, time: timedelta) -> Any:
        return present(self._database, self._clock, -time)
