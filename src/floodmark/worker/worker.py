"""The worker: fetches leases in batches, runs them in slots, and writes outcomes in batches."""

import asyncio
import time
from collections import deque
from datetime import UTC, datetime, timedelta

from floodmark.model.execution import Lease
from floodmark.model.outcome import Cancelled, Outcome, Released, Snooze
from floodmark.observability.events import (
    Events,
    ExecutionSettled,
    ExecutionStarted,
    LeaseLost,
    LimitSet,
    SlotsChanged,
    StepFailed,
    WorkerDraining,
)
from floodmark.observability.tracing import Tracing, trace_id_of
from floodmark.process.failpoints import failpoint
from floodmark.process.tasks import end_tasks
from floodmark.queue.port import Consumer
from floodmark.rules.backoff import backoff
from floodmark.rules.outcomes import state_of
from floodmark.store.port import Settlement

from .affinity import Affinity
from .executor import Executor, Interrupt

_WAIT = timedelta(seconds=1)
# Offers are announced; this only covers a lost signal.
_WAIT_FOR_OFFERS = timedelta(seconds=30)
# After a failure of the queue or the store.
_PAUSE, _LONGEST_PAUSE = timedelta(seconds=0.4), timedelta(seconds=5)
# Fetch leases ahead only if they will start within this time; otherwise another worker should have them.
_AHEAD_SECONDS = 0.1
_GATHER_SECONDS, _GATHER_TIMES = 0.001, 10


class Worker:
    """Leases executions in batches, runs up to `slots` of them at once, and settles them in batches."""

    def __init__(
        self,
        queue: Consumer,
        executor: Executor,
        events: Events,
        *,
        name: str,
        slots: int,
        batch: int,
        ttl: timedelta,
        tracing: Tracing | None = None,
        affinity: Affinity | None = None,
    ) -> None:
        self._queue, self._executor, self._events, self._tracing = queue, executor, events, tracing
        self._affinity = affinity
        self.name, self.slots, self._batch, self._ttl = name, slots, batch, ttl
        self._ready: deque[tuple[Lease, Interrupt]] = deque()
        self._held: dict[str, tuple[Lease, Interrupt]] = {}
        self._ended: list[Settlement] = []
        self._work, self._room, self._outcome = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._busy, self._written = 0, 0
        # Executions that were asked for and have not arrived.
        self._asked = 0
        self._pace, self._pace_since = 0.0, time.monotonic()
        self.is_draining = False
        self._stopping, self._is_over = False, False
        # Set while calls of `lease` return full batches, so that there is probably more.
        self._flow = asyncio.Event()

    @property
    def is_leaving(self) -> bool:
        """Whether it leases no more executions, because it drains or stops."""
        return self.is_draining or self._stopping

    @property
    def busy(self) -> int:
        """The number of slots that are running an execution."""
        return self._busy

    async def run(self) -> None:
        """Work until `stop`; returns once all leases are settled. When cancelled, it abandons them."""
        slots = [asyncio.create_task(self._slot(), name=f"slot-{n}") for n in range(self.slots)]
        settling = asyncio.create_task(self._settle_all(), name="settling")
        try:
            await asyncio.gather(self._fetch_leases(), self._fetch_more_leases(), self._fetch_offers())
            self._work.set()
            await asyncio.gather(*slots)
            # Not before: the last call of `lease` may have returned executions after `stop`.
            self._is_over = True
            self._outcome.set()
            await settling
            await self._queue.leave(self.name)
        finally:
            await end_tasks(*(task for task in (*slots, settling) if not task.done()))

    def drain(self) -> None:
        """Lease no more executions; running ones continue."""
        if not self.is_draining:
            self.is_draining = True
            self._events.emit(WorkerDraining(self.name, len(self._held)))

    def resume(self) -> None:
        """Lease executions again."""
        self.is_draining = False
        self._room.set()

    def stop(self) -> None:
        """Lease no more, release what has not started, and return from `run` when the rest has ended."""
        self._stopping = True
        self._release(len(self._ready))
        self._room.set()
        self._flow.set()
        if self._affinity is not None:
            self._affinity.bell.ring()

    def hand_back(self) -> None:
        """End all running executions after the grace period; other workers continue from their watermarks."""
        for _, interrupt in self._held.values():
            interrupt.end(Released())

    async def heartbeat(self) -> timedelta:
        """Renew every lease; end executions that are lost or cancelled."""
        held = dict(self._held)
        if held:
            extended = await self._queue.extend([lease for lease, _ in held.values()], ttl=self._ttl)
            for execution_id in extended.lost:
                self._interrupt(held[execution_id], None)
            for execution_id, reason in extended.cancelled.items():
                self._interrupt(held[execution_id], Cancelled(reason=reason))
        # A third: two heartbeats may fail before the lease is lost.
        return self._ttl / 3

    def _interrupt(self, held: tuple[Lease, Interrupt], outcome: Outcome | None) -> None:
        lease, interrupt = held
        if self._held.get(lease.execution_id) is not held:
            # Settled meanwhile, or held by a later lease.
            return
        if outcome is None and not interrupt.is_ended:
            self._events.emit(LeaseLost(lease.execution_id, lease.job.name))
        interrupt.end(outcome)

    async def _fetch_leases(self) -> None:
        failures = 0
        while room := await self._wait_for_room():
            failures = 0 if await self._lease(room, _WAIT) else failures + 1
            if failures:
                await asyncio.sleep(_pause_after(failures))

    async def _fetch_more_leases(self) -> None:
        """Lease the next batch while one is on its way, as long as batches are full."""
        while not self._stopping:
            await self._flow.wait()
            room = await self._wait_for_room()
            # The other call may have emptied the queue meanwhile.
            if room and self._flow.is_set() and not await self._lease(room, timedelta()):
                self._flow.clear()

    async def _wait_for_room(self) -> int:
        """Return how many executions to lease, as soon as there is room; 0 when the worker stops."""
        while not self._stopping:
            if room := self._count_room():
                return room
            self._room.clear()
            await self._room.wait()
        return 0

    async def _lease(self, room: int, wait: timedelta) -> bool:
        """Lease executions and let them start; returns False after a failure, which is reported."""
        self._asked += room
        try:
            try:
                leases = await self._queue.lease(room, worker=self.name, ttl=self._ttl, wait=wait)
            except Exception as error:  # noqa: BLE001 - a worker survives every failure of its stores; it is reported
                self._events.emit(StepFailed(step="lease", error=f"{type(error).__name__}: {error}"))
                return False
            if leases:
                failpoint("lease.claimed")
            (self._flow.set if len(leases) == self._batch else self._flow.clear)()
            if self._affinity is not None:
                leases = await self._affinity.offer(leases)
            self._accept(leases)
        finally:
            # Not before they are accepted, or the other call would take the same room. It may be waiting for it.
            self._asked -= room
            self._room.set()
        # Start these executions before asking for more.
        await asyncio.sleep(0)
        return True

    async def _fetch_offers(self) -> None:
        """Lease the executions that other workers offer to this one, while it has room for them."""
        affinity = self._affinity
        while affinity is not None and not self._stopping:
            await affinity.bell.wait(_WAIT_FOR_OFFERS)
            while self._count_space() < 1 and not self.is_leaving:
                self._room.clear()
                await self._room.wait()
            if self.is_leaving:
                continue
            limit = min(self._count_space(), self._batch)
            try:
                leases = await affinity.take(limit, ttl=self._ttl)
            except Exception as error:  # noqa: BLE001 - other workers take them; it is reported
                self._events.emit(StepFailed(step="affinity", error=f"{type(error).__name__}: {error}"))
                continue
            if leases:
                self._accept(leases)
            if len(leases) == limit:
                # There may be more.
                affinity.bell.ring()

    def _accept(self, leases: list[Lease]) -> None:
        if self._tracing is not None:
            leases = self._tracing.trace_leases(leases)
        for lease in leases:
            # A rescued execution of ours may come back before our heartbeat notices: end the earlier run.
            if lease.execution_id in self._held:
                self._interrupt(self._held[lease.execution_id], None)
            self._held[lease.execution_id] = (lease, Interrupt())
            self._ready.append(self._held[lease.execution_id])
        if self._stopping or self.is_draining:
            # Leased by a call that began before we were stopped or drained.
            self._release(len(leases))
        self._work.set()
        self._events.emit(SlotsChanged(self.slots, self._busy + min(len(leases), self.slots - self._busy)))

    def _release(self, newest: int) -> None:
        for _ in range(newest):
            lease, _ = self._ready.pop()
            self._close(lease, Released(), 0.0)

    def _count_room(self) -> int:
        """Return how many executions to lease now."""
        if self.is_draining:
            return 0
        space = self._count_space()
        # While executions are ready to start, prefer a full batch a little later to a small one now.
        return 0 if self._ready and space < self._batch else max(0, min(space, self._batch))

    def _count_space(self) -> int:
        """Return the number of slots that are free or will be free very soon.

        An execution occupies its slot until its outcome is written: while the store cannot write, nothing is leased.
        """
        now = time.monotonic()
        if now - self._pace_since > _AHEAD_SECONDS:
            self._pace = self._written / (now - self._pace_since) * _AHEAD_SECONDS
            self._written, self._pace_since = 0, now
        # One batch is being written and one starts, while the next ones are leased.
        ahead = min(8 * self._batch, max(int(self._pace), self._written))
        return self.slots + ahead - len(self._held) - self._asked

    async def _slot(self) -> None:
        while True:
            while self._ready:
                lease, interrupt = self._ready.popleft()
                if not self._ready:
                    # `_count_room` allows small batches from here on: slots may be free already.
                    self._room.set()
                await self._execute(lease, interrupt)
            if self._stopping:
                return
            self._work.clear()
            await self._work.wait()

    async def _execute(self, lease: Lease, interrupt: Interrupt) -> None:
        if interrupt.is_ended:
            # Lost or cancelled before it started.
            self._room.set()
            return self._close(lease, interrupt.outcome, 0.0)
        self._busy += 1
        self._events.emit(ExecutionStarted(lease.job.name, lease.execution_id, lease.attempt, lease.waited))
        began = time.monotonic()
        try:
            work, tracing = self._executor.execute(lease, interrupt), self._tracing
            outcome = await (work if tracing is None else tracing.execution(lease, work))
        finally:
            self._busy -= 1
            self._room.set()
        return self._close(lease, outcome, time.monotonic() - began)

    def _close(self, lease: Lease, outcome: Outcome | None, duration: float) -> None:
        """Queue the outcome for writing. Without an outcome another worker holds the lease, and nothing is written."""
        if outcome is None:
            self._forget(lease)
            self._room.set()
        else:
            self._ended.append(Settlement(lease=lease, outcome=outcome, duration=duration))
        self._outcome.set()

    def _forget(self, lease: Lease) -> None:
        held, _ = self._held.get(lease.execution_id, (None, None))
        # Compare fences: we may hold the same execution with a later lease.
        if held is not None and held.fence == lease.fence:
            del self._held[lease.execution_id]

    async def _settle_all(self) -> None:
        """Write outcomes as they come; those that come during a write are written together next."""
        failures = 0
        while True:
            if not self._ended:
                if self._is_over:
                    return
                self._outcome.clear()
                await self._outcome.wait()
                continue
            await self._gather()
            batch, self._ended = self._ended[: 2 * self._batch], self._ended[2 * self._batch :]
            try:
                await self._settle(batch)
                failures = 0
            except Exception as error:  # noqa: BLE001 - an outcome must be written: report, and retry until it is
                failures += 1
                self._ended = batch + self._ended
                self._events.emit(StepFailed(step="settle", error=f"{type(error).__name__}: {error}"))
                await asyncio.sleep(_pause_after(failures))

    async def _gather(self) -> None:
        """Wait a moment for more outcomes while executions are starting: one write for all of them."""
        for _ in range(_GATHER_TIMES):
            if not (self._ready or self._flow.is_set()) or len(self._ended) >= 2 * self._batch:
                return
            await asyncio.sleep(_GATHER_SECONDS)

    async def _settle(self, batch: list[Settlement]) -> None:
        failpoint("settle.before")
        settled = await self._queue.settle(batch)
        failpoint("settle.acked")
        self._written += len(batch)
        for settlement, is_mine in zip(batch, settled, strict=True):
            lease, outcome = settlement.lease, settlement.outcome
            self._forget(lease)
            if isinstance(outcome, Snooze) and outcome.key is not None:
                self._events.emit(LimitSet(outcome.key, datetime.now(UTC) + outcome.after, outcome.reason))
            if not is_mine:
                self._events.emit(LeaseLost(lease.execution_id, lease.job.name))
                continue
            self._events.emit(
                ExecutionSettled(
                    lease.job.name,
                    lease.job.source_id,
                    lease.execution_id,
                    state_of(outcome).value,
                    settlement.duration,
                    outcome.kept.new,
                    outcome.kept.changed,
                    outcome.kept.known,
                    getattr(outcome, "error", None),
                    lease.job.source,
                    trace_id_of(lease.traceparent),
                )
            )
        self._room.set()
        self._events.emit(SlotsChanged(self.slots, self._busy))


def _pause_after(failures: int) -> float:
    return backoff(failures, base=_PAUSE, longest=_LONGEST_PAUSE).total_seconds()
