"""The queue on Redis Streams. Every hot step is one script for many executions.

`<prefix>:jobs:high|normal|low`  streams, one entry an execution, field `id`; deleted when settled. A second field,
                                 `traceparent`, if it is traced: for whoever looks; workers go by the store
`<prefix>:jobs:known`            hash, execution id -> "<priority>:<entry>"; makes a second put harmless; goes with it
group `workers`                  one consumer a worker process; removed when it leaves or has been silent for long

Nothing here is the truth: an emptied Redis is filled again from the store. While Redis is away the fallback serves.
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
from floodmark.rules.rank import rank_delays
from floodmark.store.port import Extended, Leasing, Settlement

from .port import Queue

GROUP = "workers"
# After a failure Redis is left alone this long, so that time-outs do not add up.
_AWAY_SECONDS = 2.0
# One script call must not block Redis for long.
_PUT_AT_ONCE = 500
# No id of an execution is longer, also not one typed by hand.
_LONGEST_ID = 200
_AWAY = (RedisError, OSError, TimeoutError)


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
        self._delays = [int(delay.total_seconds() * 1000) for delay in rank_delays(patience)]
        scripts = ("put", "lease", "sweep", "renew", "ack", "depth", "hand_on")
        self._put, self._lease, self._sweep, self._renew, self._ack, self._depth, self._hand_on = (
            Script(redis, __package__, name) for name in scripts
        )
        # "<priority>:<entry>" of each lease in our hands. Of one execution that may be a lost lease and a new one.
        self._entries: dict[tuple[str, int], str] = {}
        self._away_until = 0.0
        self._swept_at = time.monotonic()
        self._is_prepared = False

    async def put(self, executions: Sequence[Queued], *, again: bool = False) -> int:
        """Add an entry for each that has none yet."""
        if not executions:
            return 0
        added = None if self._is_away() else await self._put_all(executions, again)
        return await self._fallback.put(executions) if added is None else added

    async def _put_all(self, executions: Sequence[Queued], again: bool) -> int | None:
        added: Counter[Priority] = Counter()
        try:
            for start in range(0, len(executions), _PUT_AT_ONCE):
                part = executions[start : start + _PUT_AT_ONCE]
                ids, priorities = [e.execution_id for e in part], [int(e.priority) for e in part]
                traces = [e.traceparent or "" for e in part] if any(e.traceparent for e in part) else ()
                counts = await self._put(self._keys, [GROUP, int(again), len(part), *ids, *priorities, *traces])
                added.update(dict(zip(Priority, counts, strict=True)))
        except _AWAY as error:
            self._lost(error)
            return None
        self._found()
        self._events.emit(ExecutionsEnqueued(+added))
        return added.total()

    async def depth(self) -> Mapping[Priority, int]:
        """How many wait, by priority."""
        try:
            depths = await self._depth(self._keys, [GROUP])
        except _AWAY as error:
            self._lost(error)
            return await self._fallback.depth()
        return dict(zip(Priority, depths, strict=True))

    async def hand_on(self, worker: str) -> None:
        """Make the entries new that a dead worker had read: the store drops those it had settled."""
        try:
            while not self._is_away() and await self._hand_on(self._keys, [GROUP, worker, _PUT_AT_ONCE]):
                pass
        except _AWAY as error:
            self._lost(error)

    async def lease(self, limit: int, *, worker: str, ttl: timedelta, wait: timedelta) -> list[Lease]:
        """Read entries, most urgent first, and claim their executions in the store."""
        if self._is_away():
            return await self._fallback.lease(limit, worker=worker, ttl=ttl, wait=wait)
        if not self._is_prepared:
            # Whoever waits for an entry has not talked to the store yet, and should not begin when one has come.
            await self._leasing.prepare()
            self._is_prepared = True
        try:
            entries = await self._read(limit, worker, ttl, wait)
        except _AWAY as error:
            self._lost(error)
            return await self._fallback.lease(limit, worker=worker, ttl=ttl, wait=wait)
        entries = await self._without_garbage(entries)
        if not entries:
            return []
        failpoint("queue.read")
        try:
            leases = await self._leasing.claim(list(entries), worker=worker, ttl=ttl)
        except Exception:
            # Nobody reads them again as long as they are ours; they would lie here until they are swept up.
            await self.put([Queued(i, Priority(int(entry[0]))) for i, entry in entries.items()], again=True)
            raise
        held = {lease.execution_id for lease in leases}
        self._entries.update((_key(lease), entries[lease.execution_id]) for lease in leases)
        await self._acknowledge({i: entry for i, entry in entries.items() if i not in held})
        self._events.emit(ExecutionsLeased(Counter(lease.job.priority for lease in leases)))
        return leases

    async def extend(self, leases: Sequence[Lease], *, ttl: timedelta) -> Extended:
        """Keep them for another `ttl`, in the store and in the group's list of pending entries."""
        extended = await self._leasing.extend(leases, ttl=ttl)
        for lease in leases:
            if lease.execution_id in extended.lost:
                self._entries.pop(_key(lease), None)
        entries = [self._entries[_key(lease)] for lease in leases if _key(lease) in self._entries]
        if entries and not self._is_away():
            try:
                await self._renew(self._keys, [GROUP, leases[0].worker, *entries])
            except _AWAY as error:
                self._lost(error)
        return extended

    async def settle(self, settlements: Sequence[Settlement]) -> list[bool]:
        """Write the outcomes, then delete the entries: the other way round a crash could lose one."""
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
        # What was handed back, and what waited for it, can start now; the requeuer would find it only after a while.
        # Again: an older entry may be in the hands of a worker that found it taken, and will delete it.
        await self.put(startable, again=True)
        return settled.mine

    async def leave(self, worker: str) -> None:
        """Take our consumer out of the group, unless entries are still pending on it."""
        if self._is_away():
            return
        try:
            for stream in self._streams:
                if not await self._redis.xpending_range(stream, GROUP, "-", "+", 1, consumername=worker):
                    await self._redis.xgroup_delconsumer(stream, GROUP, worker)
        except ResponseError:
            # No such stream or group: then there is nothing to leave.
            return
        except _AWAY as error:
            self._lost(error)

    async def _read(self, limit: int, worker: str, ttl: timedelta, wait: timedelta) -> dict[str, str]:
        # Three times in a lease: what a dead worker had read lies there for little longer than its leases last.
        if time.monotonic() - self._swept_at > ttl.total_seconds() / 3:
            swept = _entries(await self._sweep(self._keys, [GROUP, worker, int(ttl.total_seconds() * 1000), limit]))
            if len(swept) < limit:
                # Otherwise there may be more, and they have lain there for long enough.
                self._swept_at = time.monotonic()
            if swept:
                return swept
        found = await self._lease(self._keys, [GROUP, worker, limit, *self._delays])
        self._found()
        if found or not wait:
            return _entries(found)
        return await self._wait(limit, worker, wait)

    async def _wait(self, limit: int, worker: str, wait: timedelta) -> dict[str, str]:
        """The streams are empty, so urgency does not matter: take what comes first."""
        milliseconds = max(1, int(wait.total_seconds() * 1000))
        try:
            answer = await self._redis.xreadgroup(
                GROUP, worker, dict.fromkeys(self._streams, ">"), count=limit, block=milliseconds
            )
        except ResponseError as error:
            if "NOGROUP" in str(error):
                # Someone emptied Redis. The next lease makes the groups anew.
                return {}
            raise
        entries = {}
        for stream, rows in _pairs(answer):
            number = self._streams.index(stream.decode()) + 1
            for entry, fields in rows:
                reference = f"{number}:{entry.decode()}"
                # One without an id stands under an id that nobody has.
                entries[fields[b"id"].decode(errors="replace") if b"id" in fields else f"\0{reference}"] = reference
        return entries

    async def _without_garbage(self, entries: dict[str, str]) -> dict[str, str]:
        """Acknowledge and report entries that somebody else has put there. No database is asked for such an id."""
        garbage = {i: entry for i, entry in entries.items() if len(i) > _LONGEST_ID or "\0" in i}
        if not garbage:
            return entries
        # By their entry: the id of one may be megabytes long.
        await self._acknowledge({entry: entry for entry in garbage.values()})
        told = f"acknowledged and dropped, not an execution: {', '.join(list(garbage.values())[:5])}"
        self._events.emit(StepFailed(step="queue", error=f"{len(garbage)} stream entries {told}"))
        return {i: entry for i, entry in entries.items() if i not in garbage}

    async def _acknowledge(self, entries: Mapping[str, str]) -> None:
        if not entries or self._is_away():
            return
        try:
            await self._ack(self._keys, [GROUP, len(entries), *entries.keys(), *entries.values()])
        except _AWAY as error:
            # A redelivery will be dropped by the store, which knows better.
            self._lost(error)

    def _is_away(self) -> bool:
        return time.monotonic() < self._away_until

    def _lost(self, error: BaseException) -> None:
        if not self._away_until:
            self._events.emit(QueueDegraded(reason=str(error) or type(error).__name__))
        self._away_until = time.monotonic() + _AWAY_SECONDS

    def _found(self) -> None:
        if self._away_until:
            self._away_until = 0.0
            self._events.emit(QueueRestored())


def _key(lease: Lease) -> tuple[str, int]:
    return lease.execution_id, lease.fence


def _entries(flat: Sequence[bytes]) -> dict[str, str]:
    """id, entry, id, entry, ... as the scripts return them. What is no text is no id of ours: the store drops it."""
    return {flat[i].decode(errors="replace"): flat[i + 1].decode() for i in range(0, len(flat), 2)}


def _pairs(answer: Any) -> Any:
    """XREADGROUP answers a mapping or a list of pairs, as the protocol goes."""
    return answer.items() if isinstance(answer, dict) else (answer or ())
