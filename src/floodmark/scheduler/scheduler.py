"""The scheduler: writes executions of due jobs, then puts them on the queue."""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from floodmark.errors import InvalidInput
from floodmark.model.execution import Hold, State
from floodmark.model.ids import new_id
from floodmark.model.job import DueJob, Priority, ScheduleType
from floodmark.observability.events import Events, ExecutionsFired, InvalidJob, SchedulerTicked
from floodmark.observability.tracing import Started, Tracing
from floodmark.process.failpoints import failpoint
from floodmark.queue.port import Publisher
from floodmark.rules.budgets import Terms
from floodmark.rules.holding import wait_for_success
from floodmark.rules.planner import Fire, FireAction, plan
from floodmark.store.port import Decision, Fired, Firing, NewExecution
from floodmark.triggers import trigger_of

# As many as a step can write in a tenth of a second; much of its time does not depend on their number.
_AT_ONCE = 1000
# Portions that a scheduler that is behind fires at the same time, and one after the other, in a step.
_BESIDE, _IN_TURN = 2, 4
_INSTANT = timedelta(microseconds=1)

_STATES = {
    FireAction.RUN: State.QUEUED,
    FireAction.QUEUE: State.WAITING,
    FireAction.REPLACE: State.WAITING,
    FireAction.SKIP: State.SKIPPED,
}


class Scheduler:
    """Fires due jobs. Two schedulers at once do no harm, so leadership only saves work."""

    def __init__(self, firing: Firing, queue: Publisher, events: Events, tracing: Tracing | None = None) -> None:
        self._firing, self._queue, self._events, self._tracing = firing, queue, events, tracing
        self.last_tick: datetime | None = None
        self._is_behind = False

    async def step(self) -> timedelta | None:
        """Fire due jobs; returns the time until the next one is due."""
        fired = await self._fire_together() if self._is_behind else [await self._fire()]
        now = max(one.now for one in fired)
        self.last_tick = now
        self._events.emit(SchedulerTicked(now))
        next_steps = (*(one.next_due for one in fired), await self._hand_out())
        self._is_behind = any(one.looked_at >= _AT_ONCE for one in fired)
        if self._is_behind:
            return timedelta()
        rest = min((moment - now for moment in next_steps if moment is not None), default=None)
        return None if rest is None else max(timedelta(), rest)

    async def _fire_together(self) -> list[Fired]:
        """Fire several portions, which never have a job in common: while one is being written, another is decided."""
        found = await asyncio.gather(*(self._fire_in_turn() for _ in range(_BESIDE)), return_exceptions=True)
        for failed in found:
            if isinstance(failed, BaseException):
                raise failed
        return [fired for some in found if not isinstance(some, BaseException) for fired in some]

    async def _fire_in_turn(self) -> list[Fired]:
        """Fire some portions one after the other, without waiting for those that are fired beside them."""
        found: list[Fired] = []
        while len(found) < _IN_TURN and (not found or found[-1].looked_at >= _AT_ONCE):
            found.append(await self._fire())
        return found

    async def _fire(self) -> Fired:
        """Fire a portion of the due jobs."""
        decided: list[Decision] = []
        spans: dict[str, Started] = {}

        def decide(due: Sequence[DueJob], now: datetime) -> Sequence[Decision]:
            # The store calls this again when it repeats a step after a fault.
            decided[:] = [decide_one(job, now) for job in due]
            if self._tracing is not None:
                spans.clear()
                decided[:] = [_add_traces(decision, now, self._tracing, spans) for decision in decided]
            return decided

        fired = await self._firing.fire(decide, limit=_AT_ONCE)
        failpoint("fire.committed")
        await self._queue.put(fired.queued)
        failpoint("fire.put")
        for span in spans.values():
            span.end()
        self._report(decided, fired.now)
        return fired

    async def _hand_out(self) -> datetime | None:
        """Fire adaptive jobs within their budgets; returns when the next one can be fired."""
        decided: dict[str, Sequence[Decision]] = {}
        spans: dict[str, Started] = {}

        def decide(terms: Terms, due: Sequence[DueJob], now: datetime) -> Sequence[Decision]:
            # Called again for the same budget when the store repeats a step after a fault.
            decided[terms.name] = [decide_adaptive(job, terms, now) for job in due]
            if self._tracing is not None:
                decided[terms.name] = [_add_traces(one, now, self._tracing, spans) for one in decided[terms.name]]
            return decided[terms.name]

        fired = await self._firing.hand_out(decide, limit=_AT_ONCE)
        failpoint("hand_out.committed")
        await self._queue.put(fired.queued)
        for span in spans.values():
            span.end()
        self._report([decision for some in decided.values() for decision in some], fired.now)
        return fired.next_due

    def _report(self, decisions: Sequence[Decision], now: datetime) -> None:
        lateness = defaultdict[tuple[ScheduleType, Priority], list[float]](list)
        for decision in decisions:
            job = decision.job
            # An adaptive job may run before it is due.
            due = job.next_run if job.when.schedule_type is ScheduleType.ADAPTIVE else None
            if decision.invalid_reason is not None:
                self._events.emit(InvalidJob(job.name, decision.invalid_reason))
            if decision.executions:
                lateness[job.when.schedule_type, job.priority] += [
                    max(0.0, (now - (due or new.scheduled_for)).total_seconds()) for new in decision.executions
                ]
        for (schedule_type, priority), seconds in lateness.items():
            self._events.emit(ExecutionsFired(schedule_type, priority, seconds))


def _add_traces(decision: Decision, now: datetime, tracing: Tracing, spans: dict[str, Started]) -> Decision:
    """Return the decision with a trace for each execution that will run."""

    def add_trace(new: NewExecution) -> NewExecution:
        if new.state is State.SKIPPED:
            return new
        span = spans[new.execution_id] = tracing.fire(decision.job, new.execution_id, new.scheduled_for, now)
        return replace(new, traceparent=span.traceparent)

    return replace(decision, executions=tuple(map(add_trace, decision.executions)))


def decide_one(job: DueJob, now: datetime) -> Decision:
    """Decide what to do with one due job: pure, so that every rule can be tested without a database."""
    # A job that was never planned is planned from just before its creation: an interval job runs at once.
    since = job.planned_until or job.created_at - _INSTANT
    if job.invalid_reason is not None:
        return _park_invalid(job, since, job.invalid_reason)
    if job.when.schedule_type is ScheduleType.ADAPTIVE:
        # From now on its budget decides. A new source is polled at once.
        return Decision(job=job, executions=(), next_run=now, planned_until=now)
    try:
        trigger = trigger_of(job.when, anchor=job.created_at)
        planned = plan(trigger, job.policy, planned_until=since, now=now, active=job.active, seed=job.job_id)
    except InvalidInput as error:
        return _park_invalid(job, since, error.in_full())
    return Decision(
        job=job,
        executions=tuple(_execution(job, fire) for fire in planned.fires),
        next_run=planned.next_run,
        planned_until=planned.planned_until,
        replace=any(fire.action is FireAction.REPLACE for fire in planned.fires),
    )


def decide_adaptive(job: DueJob, terms: Terms, now: datetime) -> Decision:
    """Fire an adaptive job. The poll sets when it is due again; until then it is due after an equal share."""
    # One that is still running, or waits for a retry, goes to the end of the line.
    executions = () if job.active else (_execution(job, Fire(instant=now)),)
    next_run = now + timedelta(seconds=terms.share)
    return Decision(job=job, executions=executions, next_run=next_run, planned_until=now)


def _park_invalid(job: DueJob, since: datetime, reason: str) -> Decision:
    """Plan nothing until someone changes the job: the database then clears the reason."""
    return Decision(job=job, executions=(), next_run=None, planned_until=since, invalid_reason=reason)


def _execution(job: DueJob, fire: Fire) -> NewExecution:
    state, hold, reason = _STATES[fire.action], None, fire.reason
    if fire.action in (FireAction.QUEUE, FireAction.REPLACE):
        hold = Hold.OVERLAP
    elif state is State.QUEUED and job.waits_for:
        state, hold, reason = State.WAITING, Hold.DEPENDENCY, wait_for_success(job.waits_for)
    elif state is State.QUEUED and fire.not_before is not None:
        state, reason = State.WAITING, None
    return NewExecution(
        execution_id=new_id(),
        scheduled_for=fire.instant,
        state=state,
        priority=job.priority,
        coalesced=fire.coalesced,
        reason=reason,
        hold=hold,
        not_before=fire.not_before,
    )
