"""Hash chains of streams. Tables: `proof_links`, `consumers` (the consumer `proofs`).

It follows the events (`outbox`) by position, and moves its position in the transaction that adds links, so that each
event is in exactly one link. Events that were deleted before they were chained are recorded in the state of the
consumer: the items of that time are not proven.
"""

import asyncio
import json
import zlib
from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import and_, func, insert, select

from floodmark.model.clock import Clock
from floodmark.model.proofs import ProofEntry, ProofHead, ProofLink, ProvenItem
from floodmark.process.failpoints import failpoint
from floodmark.rules.proofs import entry_of, make_links, pack_entries
from floodmark.store.database import Database
from floodmark.store.dialects import chunks
from floodmark.store.rows import read_moment
from floodmark.store.tables import proof_links

from .consumers import Consumers
from .events import EventLog
from .repository import Repository, bound_limit

CONSUMER = "proofs"
MOST_SHOWN = 1000
# Few enough to hold them in memory even if they are large.
_AT_ONCE = 200
_MOST_MISSED = 20
_CELL = proof_links.c


class Proofs(Repository):
    """Extends and reads the chains."""

    def __init__(self, database: Database, clock: Clock, log: EventLog, positions: Consumers) -> None:
        super().__init__(database, clock)
        self._log, self._consumers = log, positions

    async def follow(self) -> bool:
        """Chain the next events; return whether there may be more."""
        position, missed, is_paused = await self._position()
        if is_paused:
            return False
        rows = await self._log.rows_after(position, _AT_ONCE)
        if not rows:
            return False
        first, last = int(rows[0][0]), int(rows[-1][0])
        if first > position + 1:
            missed = [*missed, [position + 1, first - 1]][-_MOST_MISSED:]
        found = await asyncio.to_thread(_entries_by_stream, rows)
        known = await self._last_links(found)
        links = {stream: make_links(stream, known.get(stream), entries) for stream, entries in found.items()}
        failpoint("proof.made")
        packed = [_row(stream, link) for stream, made in links.items() for link in made]
        async with self._database.writing() as connection:
            if await self._consumers.move(CONSUMER, position, last, state={"missed": missed} if missed else None):
                await connection.execute(insert(proof_links), packed)
                failpoint("proof.written")
        failpoint("proof.committed")
        return len(rows) >= _AT_ONCE

    async def missed(self) -> list[tuple[int, int]]:
        """Return the positions of events that were deleted before they were chained."""
        stored = await self._consumers.find(CONSUMER)
        return [] if stored is None else [(first, last) for first, last in (stored.state or {}).get("missed", ())]

    async def heads(self, after: str | None = None, limit: int = 100) -> list[ProofHead]:
        """Return the ends of all chains, in order of stream."""
        ends = select(_CELL.stream, func.max(_CELL.number).label("number")).group_by(_CELL.stream)
        if after is not None:
            ends = ends.where(_CELL.stream > after)
        last = ends.order_by(_CELL.stream).limit(bound_limit(limit, MOST_SHOWN)).subquery()
        same = and_(last.c.stream == _CELL.stream, last.c.number == _CELL.number)
        query = select(_CELL.stream, _CELL.number.label("links"), _CELL.day, _CELL.digest).join(last, same)
        return [ProofHead(**row) for row in await self._database.fetch(query.order_by(_CELL.stream))]

    async def links(self, stream: str, after: int = 0, limit: int = 100) -> list[ProofLink]:
        """Return links of a chain, in order."""
        query = select(_CELL.number, _CELL.day, _CELL.previous, _CELL.digest, _CELL.entries)
        query = query.where(_CELL.stream == stream, _CELL.number > after).order_by(_CELL.number)
        rows = await self._database.fetch(query.limit(bound_limit(limit, MOST_SHOWN)))
        return [ProofLink(**{**row, "entries": _unpack(row["entries"])}) for row in rows]

    async def _position(self) -> tuple[int, list[list[int]], bool]:
        stored = await self._consumers.find(CONSUMER)
        oldest, newest = await self._log.bounds()
        if stored is None:
            position = max(oldest - 1, 0)
            await self._consumers.add(CONSUMER, position)
            return position, [], False
        missed = list((stored.state or {}).get("missed", ()))
        if stored.position > newest:
            # The database was restored without its newest events: positions are given again.
            await self._consumers.move(CONSUMER, stored.position, newest, state=stored.state)
            return newest, missed, stored.paused
        return stored.position, missed, stored.paused

    async def _last_links(self, streams: Iterable[str]) -> dict[str, ProofLink]:
        made: dict[str, ProofLink] = {}
        for some in chunks(sorted(streams)):
            ends = select(_CELL.stream, func.max(_CELL.number).label("number")).where(_CELL.stream.in_(some))
            last = ends.group_by(_CELL.stream).subquery()
            same = and_(last.c.stream == _CELL.stream, last.c.number == _CELL.number)
            query = select(_CELL.stream, _CELL.number, _CELL.day, _CELL.previous, _CELL.digest).join(last, same)
            for row in await self._database.fetch(query):
                values = dict(row)
                stream = values.pop("stream")
                made[stream] = ProofLink(**values, entries=())
        return made


def _entries_by_stream(rows: Sequence[Sequence[Any]]) -> dict[str, list[ProofEntry]]:
    """Return the entries of events in their order, by stream."""
    made: dict[str, list[ProofEntry]] = {}
    for _, stream, key, revision, occurred_at, collected_at, data, deleted, *_ in rows:
        stored_at = read_moment(collected_at)
        assert stored_at is not None
        item = ProvenItem(
            key=key,
            revision=revision,
            collected_at=stored_at,
            deleted=bool(deleted),
            occurred_at=read_moment(occurred_at),
            data=json.loads(data) if isinstance(data, str | bytes) else data,
        )
        made.setdefault(stream, []).append(entry_of(item))
    return made


def _row(stream: str, link: ProofLink) -> dict[str, Any]:
    return {
        "stream": stream,
        "number": link.number,
        "day": link.day,
        "count": len(link.entries),
        "entries": zlib.compress("\n".join(pack_entries(link.entries)).encode("utf-8", "surrogatepass")),
        "previous": link.previous,
        "digest": link.digest,
    }


def _unpack(packed: bytes) -> tuple[ProofEntry, ...]:
    text = zlib.decompress(packed).decode("utf-8", "surrogatepass")
    return tuple(_entry(json.loads(line)) for line in text.split("\n") if line)


def _entry(values: Sequence[Any]) -> ProofEntry:
    key, revision, collected_at, deleted, occurred_at, digest = values
    return key, revision, collected_at, deleted, occurred_at, digest
