"""Responses to requests with an Idempotency-Key. Table: `idempotency_keys`, one row per key, deleted after a day.

A row is a claim first: its `answer` has only the id that was promised to the new object. The holder of the claim
creates the object and adds the response. If the holder stays silent, the claim is taken over with the same id, so that
an object that was created just before is found and not created twice.
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
# Longer than the time limit of a request.
SILENT = timedelta(seconds=60)

_c = idempotency_keys.c


class Claim(Struct, frozen=True, kw_only=True):
    """The state of a key. `is_mine`: the caller has to carry out the request, under the id `promised`."""

    fingerprint: str
    promised: str
    is_mine: bool = False
    is_taken_over: bool = False
    answer: dict[str, Any] | None = None


class IdempotencyKeys:
    """Stores which requests were answered, and how."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database, self._clock = database, clock

    async def claim(self, key: str, fingerprint: str) -> Claim:
        """Take a key that nobody has, or return its state."""
        now = present(self._database, self._clock)
        promised = new_id()
        row = {"key": key, "fingerprint": fingerprint, "answer": {"promised": promised}, "created_at": now}
        insert = insert_into(self._database, idempotency_keys).values(row).on_conflict_do_nothing()
        async with self._database.writing() as connection:
            await connection.execute(delete(idempotency_keys).where(_c.key == key, _c.created_at < self._ago(KEPT)))
            if (await connection.execute(insert)).rowcount:
                return Claim(fingerprint=fingerprint, promised=promised, is_mine=True)
            # Locked, so that only one of two requests takes over a silent claim.
            query = select(_c.fingerprint, _c.answer, (_c.created_at < self._ago(SILENT)).label("is_silent"))
            found = (await connection.execute(query.where(_c.key == key).with_for_update())).first()
            if found is None:
                # Given up between the two statements: the next try gets it.
                return Claim(fingerprint=fingerprint, promised=promised)
            answer = found.answer
            if "status" in answer:
                return Claim(fingerprint=found.fingerprint, promised=answer["promised"], answer=answer)
            is_mine = bool(found.is_silent) and found.fingerprint == fingerprint
            if is_mine:
                await connection.execute(update(idempotency_keys).where(_c.key == key).values(created_at=now))
            return Claim(
                fingerprint=found.fingerprint, promised=answer["promised"], is_mine=is_mine, is_taken_over=is_mine
            )

    async def keep_answer(self, key: str, claim: Claim, answer: dict[str, Any]) -> None:
        """Store the response, for repeated requests."""
        answer = {**answer, "promised": claim.promised}
        async with self._database.writing() as connection:
            await connection.execute(update(idempotency_keys).where(_c.key == key).values(answer=answer))

    async def give_up(self, key: str) -> None:
        """Free the key: nothing was created."""
        async with self._database.writing() as connection:
            await connection.execute(delete(idempotency_keys).where(_c.key == key))

    async def mark_silent(self, key: str) -> None:
        """Let a repeated request take over the claim: something may have been created."""
        long_ago = self._ago(SILENT * 2)
        async with self._database.writing() as connection:
            await connection.execute(update(idempotency_keys).where(_c.key == key).values(created_at=long_ago))

    async def prune(self) -> int:
        """Delete keys that are older than a day; return their number."""
        async with self._database.writing() as connection:
            gone = await connection.execute(delete(idempotency_keys).where(_c.created_at < self._ago(KEPT)))
        return int(gone.rowcount)

    def _ago(self, time: timedelta) -> Any:
        return present(self._database, self._clock, -time)
