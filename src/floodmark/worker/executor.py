"""The executor: runs one lease and returns its outcome."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from msgspec.structs import replace

from floodmark.errors import Fenced, InvalidInput, SlowDown
from floodmark.model.batch import Batch, Kept
from floodmark.model.completeness import Gap
from floodmark.model.durations import format_duration
from floodmark.model.execution import Lease
from floodmark.model.notes import carry_notes
from floodmark.model.outcome import Done, Outcome, Released, Snooze
from floodmark.rules.retries import Retries
from floodmark.rules.starting import FILL
from floodmark.sinks.port import Sink
from floodmark.sources.port import Context, FillsGaps, Source, Target

from .polls import Polls

# Sources pass on the wait that a server asks for, which may be absurd.
_SHORTEST_SNOOZE, _LONGEST_SNOOZE = timedelta(seconds=1), timedelta(days=1)
# A source that hangs while it is being closed must not block its slot.
_CLOSING_SECONDS = 10.0
# Longer than a source may take to close.
_CANCEL_AGAIN_SECONDS = 15.0


class Interrupt:
    """Ends one execution from outside: on its time-out, on a cancellation, or because the worker stops.

    Like `asyncio.timeout`, but at a third of its cost and for more reasons.
    """

    def __init__(self) -> None:
        self._task: asyncio.Task[Any] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._cancels = 0
        self.outcome: Outcome | None = None
        self.is_ended, self.is_timed_out = False, False

    def begin(self, seconds: float) -> None:
        """Apply to the running task from now on; end it after `seconds`."""
        self._task = asyncio.current_task()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._time_out)

    def close(self) -> bool:
        """Stop applying to the task; returns whether it was ended."""
        if self._timer is not None and self._task is not None:
            self._timer.cancel()
            for _ in range(self._cancels):
                # The cancellation was ours and must not go beyond this execution.
                self._task.uncancel()
            self._task = None
        return self._cancels > 0

    def end(self, outcome: Outcome | None) -> None:
        """End the execution with this outcome; None when the lease was lost and nothing may be written."""
        self.outcome, self.is_ended = outcome, True
        if not self._cancels:
            self._cancel()

    def _time_out(self) -> None:
        self.is_timed_out = True
        self._cancel()

    def _cancel(self) -> None:
        if self._task is not None and self._timer is not None:
            self._cancels += 1
            self._task.cancel()
            # A source may lose a cancellation, as `asyncio.wait_for` of Python 3.11 can: its slot must not be lost too.
            self._timer.cancel()
            self._timer = asyncio.get_running_loop().call_later(_CANCEL_AGAIN_SECONDS, self._cancel)


class Executor:
    """Runs leases. Keeps no state between them."""

    def __init__(
        self,
        sources: Mapping[str, Source],
        sink: Sink,
        retries: Retries,
        stopping: asyncio.Event,
        polls: Polls | None = None,
        *,
        find_gaps: Callable[[str], Awaitable[Sequence[Gap]]] | None = None,
    ) -> None:
        self._sources, self._sink, self._retries, self._stopping = sources, sink, retries, stopping
        self._polls, self._find_gaps = polls, find_gaps

    async def execute(self, lease: Lease, interrupt: Interrupt) -> Outcome | None:
        """Collect what is newer than the target's watermark; returns the outcome, None if the lease was lost."""
        kept, context = Kept(), self._context(lease)
        interrupt.begin(lease.job.timeout.total_seconds())
        try:
            source, target = self._source(lease), _target(lease)
            # Checked again: the row may have been edited with SQL.
            source.check(target.name, target.params)
            if lease.trigger == FILL:
                context = replace(context, gaps=await self._gaps(lease, source))
            batches = source.collect(target, lease.watermark, context)
            if lease.job.budget is not None and self._polls is not None:
                batches = self._polls.collect(lease.job.budget, lease.execution_id, batches)
            is_left = True
            try:
                async for batch in batches:
                    kept += await self._sink.keep(lease, batch)
                    if self._stopping.is_set():
                        # A good place to stop: all batches are kept, and the next worker continues from here.
                        return Released(kept=kept, result=context.result or None)
                is_left = False
            finally:
                if is_left:
                    await _close(batches)
        except Fenced:
            return None
        except asyncio.CancelledError as error:
            if not interrupt.close():
                raise
            return _add_result(self._outcome_of(lease, interrupt, error, kept), context)
        except Exception as error:  # noqa: BLE001 - every error of a source becomes an outcome in the history
            return _add_result(self._outcome_of(lease, interrupt, error, kept), context)
        finally:
            interrupt.close()
        return Done(kept=kept, result=context.result or None)

    def _outcome_of(self, lease: Lease, interrupt: Interrupt, error: BaseException, kept: Kept) -> Outcome | None:
        if interrupt.is_ended:
            # Whatever the source raised when it was interrupted.
            return None if interrupt.outcome is None else replace(interrupt.outcome, kept=kept)
        if isinstance(error, SlowDown):
            # The source is healthy and asked us to wait: that costs no attempt.
            after = min(max(error.after, _SHORTEST_SNOOZE), _LONGEST_SNOOZE)
            return Snooze(after=after, reason=error.reason, key=error.key, kept=kept)
        if interrupt.is_timed_out:
            error = TimeoutError(f"took longer than its time-out of {format_duration(lease.job.timeout)}")
        return self._retries.after(lease, error, kept)

    async def _gaps(self, lease: Lease, source: Source) -> Sequence[Gap]:
        """Return the gaps to fill as they are now: an interrupted run has filled some of them."""
        if self._find_gaps is None or not isinstance(source, FillsGaps):
            return ()
        return [gap for gap in await self._find_gaps(lease.job.stream) if gap.kind in source.fills]

    def _source(self, lease: Lease) -> Source:
        if lease.job.unreadable is not None:
            raise InvalidInput(
                f"{lease.job.name} cannot be run: {lease.job.unreadable}",
                hint=f"correct it, then: floodmark run {lease.job.name}",
            )
        source = self._sources.get(lease.job.source)
        if source is None:
            raise InvalidInput(
                f"this worker has no source {lease.job.source!r}",
                hint=f"It has: {', '.join(sorted(self._sources))}. Install the package that brings it on every worker",
            )
        return source

    def _context(self, lease: Lease) -> Context:
        return Context(
            execution_id=lease.execution_id,
            job_name=lease.job.name,
            attempt=lease.attempt,
            scheduled_for=lease.scheduled_for,
            trigger=lease.trigger,
            stopping=self._stopping,
            tenant_id=lease.job.tenant_id,
            user_id=lease.job.user_id,
            result=carry_notes(lease.result),
        )


def _add_result(outcome: Outcome | None, context: Context) -> Outcome | None:
    """Return the outcome with what the source has reported so far: it helps most when a run has failed."""
    return outcome if outcome is None or not context.result else replace(outcome, result=context.result)


async def _close(batches: AsyncIterator[Batch]) -> None:
    """Close what the source has opened now, not when it is collected as garbage."""
    if isinstance(batches, AsyncGenerator):
        async with asyncio.timeout(_CLOSING_SECONDS):
            await batches.aclose()


def _target(lease: Lease) -> Target:
    job = lease.job
    params = job.params if not lease.params else {**job.params, **lease.params}
    return Target(name=job.target, stream=job.stream, params=params, url=job.url, account=job.account)
