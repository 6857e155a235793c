"""The worker: slots that run leases, and the batches in which leases come and outcomes go."""

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
from floodmark.queue.port import Consumer
from floodmark.rules.backoff import backoff
from floodmark.rules.outcomes import state_of
from floodmark.store.port import Settlement

from .executor import Executor, Interrupt

_WAIT = timedelta(seconds=1)
# After a failure of the queue or the store.
_PAUSE, _LONGEST_PAUSE = timedelta(seconds=0.4), timedelta(seconds=5)
# Leases fetched ahead are worth it only if they start within this time; otherwise another worker should have them.
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
    ) -> None:
        self._queue, self._executor, self._events, self._tracing = queue, executor, events, tracing
        self.name, self.slots, self._batch, self._ttl = name, slots, batch, ttl
        self._ready: deque[tuple[Lease, Interrupt]] = deque()
        self._held: dict[str, tuple[Lease, Interrupt]] = {}
        self._ended: list[Settlement] = []
        self._work, self._room, self._outcome = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._busy, self._started = 0, 0
        self._pace, self._pace_since = 0.0, time.monotonic()
        self.is_draining = False
        self._stopping, self._is_over = False, False
        # The last lease brought a full batch, so the next one brings more.
        self._is_flowing = False

    @property
    def busy(self) -> int:
        """How many slots are running something."""
        return self._busy

    async def run(self) -> None:
        """Work until `stop`; returns once nothing is in hand any more. Cancelled, it abandons what is in hand."""
        slots = [asyncio.create_task(self._slot(), name=f"slot-{n}") for n in range(self.slots)]
        settling = asyncio.create_task(self._settle_all(), name="settling")
        try:
            await self._take_in()
            self._work.set()
            await asyncio.gather(*slots)
            # Not before: a lease that was under way when we were stopped may still have brought something.
            self._is_over = True
            self._outcome.set()
            await settling
            await self._queue.leave(self.name)
        finally:
            left = [task for task in (*slots, settling) if not task.done()]
            for task in left:
                task.cancel()
            if left:
                await asyncio.wait(left)

    def drain(self) -> None:
        """Take no more work; what is in hand goes on."""
        if not self.is_draining:
            self.is_draining = True
            self._events.emit(WorkerDraining(self.name, len(self._held)))

    def resume(self) -> None:
        """Take work again."""
        self.is_draining = False
        self._room.set()

    def stop(self) -> None:
        """Take no more work, hand back what has not begun, and return from `run` when the rest has ended."""
        self._stopping = True
        self._release(len(self._ready))
        self._room.set()

    def hand_back(self) -> None:
        """The grace is over: end everything that runs; it goes on elsewhere from its watermark."""
        for _, interrupt in self._held.values():
            interrupt.end(Released())

    async def heartbeat(self) -> timedelta:
        """Renew every lease in hand; end what was lost or cancelled."""
        held = dict(self._held)
        if held:
            extended = await self._queue.extend([lease for lease, _ in held.values()], ttl=self._ttl)
            for execution_id in extended.lost:
                self._interrupt(held[execution_id], None)
            for execution_id, reason in extended.cancelled.items():
                self._interrupt(held[execution_id], Cancelled(reason=reason))
        # A third: two heartbeats may be lost before the lease is.
        return self._ttl / 3

    def _interrupt(self, held: tuple[Lease, Interrupt], outcome: Outcome | None) -> None:
        lease, interrupt = held
        if self._held.get(lease.execution_id) is not held:
            # Settled in the meantime, or held by a later lease.
            return
        if outcome is None and not interrupt.is_ended:
            self._events.emit(LeaseLost(lease.execution_id, lease.job.name))
        interrupt.end(outcome)

    async def _take_in(self) -> None:
        failures = 0
        while not self._stopping:
            room = self._room_for()
            if self.is_draining or room < 1:
                self._room.clear()
                await self._room.wait()
                continue
            try:
                leases = await self._queue.lease(room, worker=self.name, ttl=self._ttl, wait=_WAIT)
                failures = 0
            except Exception as error:  # noqa: BLE001 - a worker outlives any trouble of its stores; it is reported
                failures += 1
                self._events.emit(StepFailed(step="lease", error=f"{type(error).__name__}: {error}"))
                await asyncio.sleep(_pause_after(failures))
                continue
            if leases:
                failpoint("lease.claimed")
            self._is_flowing = len(leases) == self._batch
            self._accept(leases)
            self._events.emit(SlotsChanged(self.slots, self._busy + min(len(leases), self.slots - self._busy)))
            # What has come begins before more is asked for.
            await asyncio.sleep(0)

    def _accept(self, leases: list[Lease]) -> None:
        if self._tracing is not None:
            leases = self._tracing.leased(leases)
        for lease in leases:
            # One of ours that was rescued may come back to us before we have noticed: the earlier run is over.
            if lease.execution_id in self._held:
                self._interrupt(self._held[lease.execution_id], None)
            self._held[lease.execution_id] = (lease, Interrupt())
            self._ready.append(self._held[lease.execution_id])
        if self._stopping or self.is_draining:
            # Asked for before we were told to take no more.
            self._release(len(leases))
        self._work.set()

    def _release(self, newest: int) -> None:
        for _ in range(newest):
            lease, _ = self._ready.pop()
            self._close(lease, Released(), 0.0)

    def _room_for(self) -> int:
        """Free slots, and as many more as will start very soon at the present pace."""
        now = time.monotonic()
        if now - self._pace_since > _AHEAD_SECONDS:
            self._pace = self._started / (now - self._pace_since) * _AHEAD_SECONDS
            self._started, self._pace_since = 0, now
        ahead = min(2 * self._batch, max(int(self._pace), self._started))
        room = self.slots + ahead - len(self._ready) - self._busy
        # While there is something left to start, rather a full batch a little later than a small one now.
        return 0 if self._ready and room < self._batch else min(room, self._batch)

    async def _slot(self) -> None:
        while True:
            while self._ready:
                lease, interrupt = self._ready.popleft()
                if not self._ready:
                    # There was no room while something was left to start; slots that are still free want more now,
                    # not when the first execution ends.
                    self._room.set()
                await self._execute(lease, interrupt)
            if self._stopping:
                return
            self._work.clear()
            await self._work.wait()

    async def _execute(self, lease: Lease, interrupt: Interrupt) -> None:
        if interrupt.is_ended:
            # Lost or cancelled before it began.
            self._room.set()
            return self._close(lease, interrupt.outcome, 0.0)
        self._busy += 1
        self._started += 1
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
        """Have the outcome written down; without one the lease is another's, and so is the last word."""
        if outcome is None:
            self._let_go(lease)
        else:
            self._ended.append(Settlement(lease=lease, outcome=outcome, duration=duration))
        self._outcome.set()

    def _let_go(self, lease: Lease) -> None:
        held, _ = self._held.get(lease.execution_id, (None, None))
        # By its fence: we may hold the same execution by a later lease.
        if held is not None and held.fence == lease.fence:
            del self._held[lease.execution_id]

    async def _settle_all(self) -> None:
        """Outcomes are written as they come; those that come during a write go together in the next."""
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
            except Exception as error:  # noqa: BLE001 - an outcome must be written down: we try until it is
                failures += 1
                self._ended = batch + self._ended
                self._events.emit(StepFailed(step="settle", error=f"{type(error).__name__}: {error}"))
                await asyncio.sleep(_pause_after(failures))

    async def _gather(self) -> None:
        """While more is waiting to start, or on its way, more outcomes are moments away: one write for all of them."""
        for _ in range(_GATHER_TIMES):
            if not (self._ready or self._is_flowing) or len(self._ended) >= 2 * self._batch:
                return
            await asyncio.sleep(_GATHER_SECONDS)

    async def _settle(self, batch: list[Settlement]) -> None:
        failpoint("settle.before")
        settled = await self._queue.settle(batch)
        failpoint("settle.acked")
        for settlement, is_mine in zip(batch, settled, strict=True):
            lease, outcome = settlement.lease, settlement.outcome
            self._let_go(lease)
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
        self._events.emit(SlotsChanged(self.slots, self._busy))


def _pause_after(failures: int) -> float:
    return backoff(failures, base=_PAUSE, longest=_LONGEST_PAUSE).total_seconds()
