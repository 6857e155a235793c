"""The queue on Redis Streams. Every hot step is one script for many executions, with its lists as one JSON text: the
client encodes each argument by itself.

`<prefix>:jobs:high|normal|low`  streams with one entry per execution, field `id`; deleted when settled. A traced one
                                 has a second field, `traceparent`, for people: workers read it from the store
`<prefix>:jobs:known`            hash, execution id -> "<priority>:<entry>"; makes a second put harmless; deleted with
                                 the entry
group `workers`                  one consumer per worker process; removed when it leaves or has been silent for long

An emptied Redis is filled again from the store. While Redis is unreachable, the fallback queue is used.
"""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import RedisError, ResponseError

from floodmark.coordination.lua import Script
from floodmark.model.execution import Lease, Queued
from floodmark.model.job import Priority
from floodmark.model.outcome import Released
from floodmark.observability.events import (
    Events,
    ExecutionsEnqueued,
    ExecutionsLeased,
    QueueDegraded,
    QueueRestored,
    StepFailed,
)
from floodmark.process.failpoints import failpoint
from floodmark.rules.rank import BATCH_SHARES, rank_delays
from floodmark.store.database import encode_json
from floodmark.store.port import Extended, Leasing, Offer, Settlement

from .port import Queue

GROUP = "workers"
# After a failure Redis is not called for this long, so that time-outs do not add up.
_AWAY_SECONDS = 2.0
# One script call must not block Redis for long.
_PUT_AT_ONCE = 500
# No execution id is longer, not even one typed by hand.
_LONGEST_ID = 200
_UNREACHABLE = (RedisError, OSError)


class RedisStreamsQueue:
    """A queue for many workers on many machines."""

    def __init__(
        self,
        redis: Redis,
        leasing: Leasing,
        fallback: Queue,
        events: Events,
        *,
        prefix: str,
        patience: timedelta,
    ) -> None:
        self._redis, self._leasing, self._fallback, self._events = redis, leasing, fallback, events
        self._streams = [f"{prefix}:jobs:{priority.name.lower()}" for priority in Priority]
        self._keys = [f"{prefix}:jobs:known", *self._streams]
        delays = [int(delay.total_seconds() * 1000) for delay in rank_delays(patience)]
        self._order = [*delays, *(share for shares in BATCH_SHARES for share in shares)]
        scripts = ("put", "lease", "sweep", "renew", "ack", "depth", "hand_on")
        self._put, self._lease, self._sweep, self._renew, self._ack, self._depth, self._hand_on = (
            Script(redis, __package__, name) for name in scripts
        )
        # "<priority>:<entry>" of each lease we hold. One execution can have two: a lost lease and a new one.
        self._entries: dict[tuple[str, int], str] = {}
        self._away_until = 0.0
        self._swept_at = time.monotonic()
        self._is_prepared = False

    async def put(self, executions: Sequence[Queued], *, again: bool = False) -> int:
        """Add an entry for each execution that has none yet."""
        if not executions:
            return 0
        added: Counter[Priority] = Counter()
        for start in range(0, len(executions), _PUT_AT_ONCE):
            part = executions[start : start + _PUT_AT_ONCE]
            ids, priorities = [e.execution_id for e in part], [int(e.priority) for e in part]
            traces = [e.traceparent or "" for e in part] if any(e.traceparent for e in part) else ()
            counts = await self._call(self._put, int(again), encode_json((ids, priorities, traces)))
            if counts is None:
                return await self._fallback.put(executions)
            added.update(dict(zip(Priority, counts, strict=True)))
        self._note_answer()
        self._events.emit(ExecutionsEnqueued(+added))
        return added.total()

    async def depth(self) -> Mapping[Priority, int]:
        """Return the number of waiting executions by priority."""
        depths = await self._call(self._depth)
        return await self._fallback.depth() if depths is None else dict(zip(Priority, depths, strict=True))

    async def hand_on(self, worker: str) -> None:
        """Add the entries that a dead worker had read as new ones; the store drops those it had settled."""
        while await self._call(self._hand_on, worker, _PUT_AT_ONCE):
            pass

    async def lease(self, limit: int, *, worker: str, ttl: timedelta, wait: timedelta) -> list[Lease]:
        """Read entries, most urgent first, and claim their executions in the store."""
        if self._is_away():
            return await self._fallback.lease(limit, worker=worker, ttl=ttl, wait=wait)
        if not self._is_prepared:
            # Connect to the store before waiting for the first entry, not when it has arrived.
            await self._leasing.prepare()
            self._is_prepared = True
        try:
            entries = await self._read(limit, worker, ttl, wait)
        except _UNREACHABLE as error:
            self._note_failure(error)
            return await self._fallback.lease(limit, worker=worker, ttl=ttl, wait=wait)
        entries = await self._drop_garbage(entries)
        if not entries:
            return []
        failpoint("queue.read")
        try:
            leases = await self._leasing.claim(list(entries), worker=worker, ttl=ttl)
        except Exception:
            # No other worker reads entries that are pending for us; without this they would wait for the next sweep.
            await self.put([Queued(i, Priority(int(entry[0]))) for i, entry in entries.items()], again=True)
            raise
        held = {lease.execution_id for lease in leases}
        self._entries.update((_key(lease), entries[lease.execution_id]) for lease in leases)
        await self._acknowledge({i: entry for i, entry in entries.items() if i not in held})
        self._events.emit(ExecutionsLeased(Counter(lease.job.priority for lease in leases)))
        return leases

    async def offer(self, offers: Sequence[Offer], *, within: timedelta) -> list[bool]:
        """Offer executions in the store, which knows who may claim them; then delete their entries."""
        offered = await self._fallback.offer(offers, within=within)
        entries = {}
        for offer, is_offered in zip(offers, offered, strict=True):
            entry = self._entries.pop(_key(offer.lease), None) if is_offered else None
            if entry is not None:
                entries[offer.lease.execution_id] = entry
        await self._acknowledge(entries)
        return offered

    async def lease_offers(self, limit: int, *, worker: str, ttl: timedelta, within: timedelta) -> list[Lease]:
        """Claim executions that are offered to `worker`. They have no entries."""
        return await self._fallback.lease_offers(limit, worker=worker, ttl=ttl, within=within)

    async def extend(self, leases: Sequence[Lease], *, ttl: timedelta) -> Extended:
        """Extend the leases by `ttl`, in the store and in the group's list of pending entries."""
        extended = await self._leasing.extend(leases, ttl=ttl)
        for lease in leases:
            if lease.execution_id in extended.lost:
                self._entries.pop(_key(lease), None)
        entries = [self._entries[_key(lease)] for lease in leases if _key(lease) in self._entries]
        if entries:
            await self._call(self._renew, leases[0].worker, encode_json(entries))
        return extended

    async def settle(self, settlements: Sequence[Settlement]) -> list[bool]:
        """Write the outcomes, then delete the entries: in reverse order a crash could lose an execution."""
        settled = await self._leasing.settle(settlements)
        failpoint("settle.committed")
        entries, startable = {}, list(settled.woken)
        for settlement, is_mine in zip(settlements, settled.mine, strict=True):
            lease = settlement.lease
            entry = self._entries.pop(_key(lease), None)
            if is_mine and entry is not None:
                entries[lease.execution_id] = entry
            if is_mine and isinstance(settlement.outcome, Released):
                startable.append(Queued(lease.execution_id, lease.job.priority, lease.traceparent))
        await self._acknowledge(entries)
        # Released and woken executions can start now; the requeuer would find them only after a while.
        # With `again`: a worker that could not claim one may be about to delete its older entry.
        await self.put(startable, again=True)
        return settled.mine

    async def leave(self, worker: str) -> None:
        """Remove our consumer from the group, unless it has pending entries."""
        if self._is_away():
            return
        try:
            for stream in self._streams:
                if not await self._redis.xpending_range(stream, GROUP, "-", "+", 1, consumername=worker):
                    await self._redis.xgroup_delconsumer(stream, GROUP, worker)
        except ResponseError:
            # There is no such stream or group, so there is nothing to leave.
            return
        except _UNREACHABLE as error:
            self._note_failure(error)

    async def _read(self, limit: int, worker: str, ttl: timedelta, wait: timedelta) -> dict[str, str]:
        # Three times per lease: the entries of a dead worker wait little longer than its leases last.
        if time.monotonic() - self._swept_at > ttl.total_seconds() / 3:
            swept = _entries(await self._sweep(self._keys, [GROUP, worker, int(ttl.total_seconds() * 1000), limit]))
            if len(swept) < limit:
                # Otherwise there may be more: sweep again with the next lease.
                self._swept_at = time.monotonic()
            if swept:
                return swept
        found = await self._lease(self._keys, [GROUP, worker, limit, *self._order])
        self._note_answer()
        if found or not wait:
            return _entries(found)
        return await self._wait(limit, worker, wait)

    async def _wait(self, limit: int, worker: str, wait: timedelta) -> dict[str, str]:
        """Wait for the first new entries of any priority: all streams are empty."""
        milliseconds = max(1, int(wait.total_seconds() * 1000))
        try:
            answer = await self._redis.xreadgroup(
                GROUP, worker, dict.fromkeys(self._streams, ">"), count=limit, block=milliseconds
            )
        except ResponseError as error:
            if "NOGROUP" in str(error):
                # Redis was emptied. The next lease creates the groups again.
                return {}
            raise
        entries = {}
        for stream, rows in _pairs(answer):
            number = self._streams.index(stream.decode()) + 1
            for entry, fields in rows:
                reference = f"{number}:{entry.decode()}"
                # An entry without an id gets an invalid id, and is dropped as garbage.
                entries[fields[b"id"].decode(errors="replace") if b"id" in fields else f"\0{reference}"] = reference
        return entries

    async def _drop_garbage(self, entries: dict[str, str]) -> dict[str, str]:
        """Return the entries without those that Floodmark did not write; acknowledge and report these."""
        garbage = {i: entry for i, entry in entries.items() if len(i) > _LONGEST_ID or "\0" in i}
        if not garbage:
            return entries
        # By entry: an id may be megabytes long.
        await self._acknowledge({entry: entry for entry in garbage.values()})
        dropped = f"acknowledged and dropped, not an execution: {', '.join(list(garbage.values())[:5])}"
        self._events.emit(StepFailed(step="queue", error=f"{len(garbage)} stream entries {dropped}"))
        return {i: entry for i, entry in entries.items() if i not in garbage}

    async def _acknowledge(self, entries: Mapping[str, str]) -> None:
        # If this fails, the entries are delivered again, and dropped because their executions cannot be claimed.
        if entries:
            await self._call(self._ack, encode_json((tuple(entries), tuple(entries.values()))))

    async def _call(self, script: Script, *arguments: Any) -> Any:
        """Run a script on the group; None while Redis is unreachable."""
        if self._is_away():
            return None
        try:
            return await script(self._keys, [GROUP, *arguments])
        except _UNREACHABLE as error:
            self._note_failure(error)
            return None

    def _is_away(self) -> bool:
        return time.monotonic() < self._away_until

    def _note_failure(self, error: BaseException) -> None:
        if not self._away_until:
            self._events.emit(QueueDegraded(reason=str(error) or type(error).__name__))
        self._away_until = time.monotonic() + _AWAY_SECONDS

    def _note_answer(self) -> None:
        if self._away_until:
            self._away_until = 0.0
            self._events.emit(QueueRestored())


def _key(lease: Lease) -> tuple[str, int]:
    return lease.execution_id, lease.fence


def _entries(flat: Sequence[bytes]) -> dict[str, str]:
    """Return entries by id, from the flat list id, entry, id, entry, ... of the scripts."""
    return {flat[i].decode(errors="replace"): flat[i + 1].decode() for i in range(0, len(flat), 2)}


def _pairs(answer: Any) -> Any:
    """Return the answer of XREADGROUP as pairs: it is a mapping or a list, depending on the protocol."""
    return answer.items() if isinstance(answer, dict) else (answer or ())
