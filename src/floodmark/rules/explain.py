"""Explain in one sentence why a job is not running, and until when, for the CLI, the API and the dashboard."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

from floodmark.errors import InvalidInput
from floodmark.model.durations import format_duration
from floodmark.model.execution import Execution, Hold, State
from floodmark.model.job import NEVER, SCHEDULER_VERSION, Job, ScheduleType
from floodmark.model.notes import notes_of
from floodmark.triggers import zone_of

from .starting import holds_pause

_ERROR_SHOWN = 200
# The items of a source have this name in a sentence.
_NOUNS = {"telegram": "posts"}
# A budget has free requests all the time; one whose next request is further away than this is used up.
_USED_UP = timedelta(minutes=2)
_UNTIL = re.compile(r"\buntil (?:\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d(?: UTC)?", re.ASCII)


class Limit(Struct, frozen=True, kw_only=True):
    """A rate limit of the whole fleet."""

    key: str
    until: datetime
    reason: str


class ExpectedPoll(Struct, frozen=True, kw_only=True):
    """The budget of an adaptive job, and what is expected of its source.

    `items` are expected since the last poll (changes, if `is_dated` is false); None if it was never polled.
    `next_free` is the earliest time of the next request of the budget.
    """

    budget: str
    next_free: datetime
    items: float | None = None
    polled_at: datetime | None = None
    is_dated: bool = True


class JobView(Struct, frozen=True, kw_only=True):
    """A job and everything that could keep it from running.

    `last` is its newest ended execution, `ahead` the number of executions before it in the queue, `workers` the
    number of live workers, `leader` the process that schedules, `waits_for` the jobs that have yet to succeed. `poll`
    is only set for an adaptive job.
    """

    job: Job
    now: datetime
    active: tuple[Execution, ...] = ()
    last: Execution | None = None
    limit: Limit | None = None
    workers: int = 0
    is_draining: bool = False
    leader: str | None = None
    waits_for: tuple[str, ...] = ()
    ahead: int = 0
    poll: ExpectedPoll | None = None


class Explanation(Struct, frozen=True, kw_only=True):
    """Why a job is not running, or its current state."""

    code: Annotated[
        str, Meta(description="The reason for programs: running, queued, paused, limit, retry, not_due, ...")
    ]
    sentence: Annotated[
        str, Meta(description="The reason for people.", examples=["not due: next run at 14:06:40 UTC, in 40 s"])
    ]
    until: Annotated[datetime | None, Meta(description="When this changes by itself; null if it does not.")] = None


def explain(view: JobView) -> Explanation:
    """Return the first reason why the job is not running, or its current state."""
    in_order = sorted(view.active, key=_by_relevance)
    if in_order:
        return _EXPLAIN_ACTIVE[in_order[0].state](view, in_order[0])
    return _explain_stop(view) or _add_notes(view, _explain_end(view) or _explain_next_run(view))


def _add_notes(view: JobView, found: Explanation) -> Explanation:
    """Add the notes of the last run to the explanation of a job without a failure."""
    notes = [] if view.last is None or view.last.state is State.DEAD else notes_of(view.last.result)
    if not notes or view.last is None:
        return found
    more = "" if len(notes) == 1 else f" ({len(notes) - 1} more: floodmark history --id {view.last.execution_id})"
    return replace(found, sentence=f"{found.sentence}; note of the last run: {_shorten(notes[0])}{more}")


def _by_relevance(execution: Execution) -> tuple[int, datetime]:
    rank = (State.RUNNING, State.QUEUED, State.WAITING).index(execution.state)
    return rank, execution.not_before or execution.scheduled_for


def _explain_running(view: JobView, execution: Execution) -> Explanation:
    started = execution.started_at or view.now
    if execution.lease_until is not None and execution.lease_until < view.now:
        return Explanation(
            code="silent",
            sentence=f"worker {execution.worker} has gone silent while running it; "
            f"{_scheduler_will(view, 'it is handed to another')}",
        )
    # The database's clock, which set the start, may be a little ahead.
    lasted = format_duration(max(timedelta(), view.now - started))
    since = f"running since {_format_time(started, view)}, for {lasted}"
    sentence = f"{since}, on worker {execution.worker}{_say_why_now(view, execution)}"
    return Explanation(code="running", sentence=sentence)


def _explain_queued(view: JobView, execution: Execution) -> Explanation:
    if holds_pause(execution.trigger, is_paused=view.job.paused):
        return _explain_pause(view)
    if view.limit is not None:
        return _explain_limit(view, view.limit.reason, view.limit.until)
    if view.is_draining:
        return Explanation(code="draining", sentence="queued, but the workers were told to take no more work (drain)")
    if not view.workers:
        return Explanation(code="no_worker", sentence="queued, but no worker is running; start one with: floodmark up")
    if view.ahead:
        others = "1 other" if view.ahead == 1 else f"{view.ahead} others"
        return Explanation(code="queued", sentence=f"queued behind {others}{_say_why_now(view, execution)}")
    first = "first in the queue; a worker takes it as soon as it has room"
    return Explanation(code="queued", sentence=f"{first}{_say_why_now(view, execution)}")


def _explain_waiting(view: JobView, execution: Execution) -> Explanation:
    match execution.hold:
        case Hold.PAUSED:
            return _explain_pause(view) if view.job.paused else _explain_wake(view, "it was paused")
        case Hold.OVERLAP:
            return Explanation(
                code="overlap", sentence=f"waiting: {execution.reason or 'an earlier execution is unfinished'}"
            )
        case Hold.DEPENDENCY:
            return _explain_dependency(view)
    return _explain_wait(view, execution)


def _explain_wait(view: JobView, execution: Execution) -> Explanation:
    """Explain a wait for a point in time: a retry, a limit or the jitter."""
    until = execution.not_before
    if until is None or until <= view.now:
        return _explain_wake(view, execution.reason or "its time has come")
    if execution.reason is not None and execution.reason == execution.error_message:
        attempts = f"attempt {execution.attempt} of {view.job.retry_max + 1} failed"
        sentence = f"{attempts}: {_shorten(execution.reason)}; tries again {_format_when(until, view)}"
        return Explanation(code="retry", sentence=sentence, until=until)
    if execution.attempt > 0 or execution.reason is not None:
        return _explain_limit(view, execution.reason or "told to wait", until)
    return Explanation(code="jitter", sentence=f"spread by its jitter: starts {_format_when(until, view)}", until=until)


def _explain_stop(view: JobView) -> Explanation | None:
    """Explain what a person has to change first."""
    job = view.job
    if job.scheduler_version != SCHEDULER_VERSION:
        sentence = f"it belongs to the old scheduler (scheduler_version {job.scheduler_version}) and is left alone"
        return Explanation(code="old_scheduler", sentence=sentence)
    if job.paused:
        return _explain_pause(view)
    if not job.schedule_enabled:
        sentence = f"its schedule is disabled (schedule_enabled is false); run it once with: floodmark run {job.name}"
        return Explanation(code="disabled", sentence=sentence)
    if job.unreadable is not None:
        return Explanation(
            code="invalid", sentence=f"its row in the database cannot be read: {_shorten(job.unreadable)}"
        )
    if job.invalid_reason is not None:
        return Explanation(code="invalid", sentence=f"its schedule makes no sense: {_shorten(job.invalid_reason)}")
    return None


def _explain_end(view: JobView) -> Explanation | None:
    """Explain a job that has ended, at least for now."""
    job, last = view.job, view.last
    if last is not None and last.state is State.DEAD:
        return _explain_dead(view, last)
    if job.when.schedule_type is ScheduleType.EVENT:
        return Explanation(code="event", sentence=f"runs when triggered: floodmark run {job.name}")
    if job.next_run == NEVER:
        if last is None:
            return Explanation(code="finished", sentence="its schedule holds no further run")
        ended = _format_time(last.completed_at or last.scheduled_for, view)
        return Explanation(code="finished", sentence=f"finished: it ran at {ended} and is not due again")
    return None


def _explain_next_run(view: JobView) -> Explanation:
    job = view.job
    if view.leader is None:
        due = "" if job.next_run is None else f"due {_format_when(job.next_run, view)}, but "
        return Explanation(code="no_leader", sentence=f"{due}no scheduler is running; start one with: floodmark up")
    if job.next_run is None:
        return Explanation(code="unplanned", sentence="new or changed: the scheduler plans it at its next step")
    if view.poll is not None:
        return _explain_poll(view, view.poll, job.next_run)
    if job.next_run <= view.now:
        return Explanation(
            code="due", sentence=f"due since {_format_time(job.next_run, view)}: the scheduler is about to run it"
        )
    return Explanation(
        code="not_due", sentence=f"not due: next run {_format_when(job.next_run, view)}", until=job.next_run
    )


def _explain_poll(view: JobView, poll: ExpectedPoll, next_run: datetime) -> Explanation:
    """Explain when an adaptive job runs: in the order in which the jobs of its budget are due, hinted ones first."""
    hinted_at = view.job.hinted_at
    code = "due" if hinted_at is not None or next_run <= view.now else "not_due"
    if hinted_at is not None:
        why = f"hinted {format_duration(max(timedelta(), view.now - hinted_at))} ago"
    else:
        why = _describe_expectation(view, poll)
    if poll.next_free > view.now + _USED_UP:
        used_up = f"its budget {poll.budget} is used up: the next request is free {_format_when(poll.next_free, view)}"
        return Explanation(code=code, sentence=f"{why}, but {used_up}", until=poll.next_free)
    if hinted_at is not None:
        return Explanation(code=code, sentence=f"{why}: first in line when its budget {poll.budget} has a free request")
    if code == "due":
        return Explanation(code=code, sentence=f"{why}, due: it runs when its budget {poll.budget} has a free request")
    due = f"due in {format_duration(next_run - view.now)} at today's budget"
    return Explanation(code=code, sentence=f"{why}, {due}", until=next_run)


def _say_why_now(view: JobView, execution: Execution) -> str:
    """Return why an adaptive job was fired, unless its poll has already found something."""
    poll, fired = view.poll, execution.scheduled_for
    is_polled = poll is not None and poll.polled_at is not None and poll.polled_at >= fired
    if poll is None or is_polled or execution.trigger != "schedule":
        return ""
    return f"; why now: {_describe_expectation(view, poll)}"


def _describe_expectation(view: JobView, poll: ExpectedPoll) -> str:
    """ "about 2.4 new posts expected, 11 min since the last look"."""
    if poll.items is None or poll.polled_at is None:
        return "never polled yet"
    noun = f"new {_NOUNS.get(view.job.source, 'items')}" if poll.is_dated else "changes"
    number = f"about {poll.items:,.0f}" if poll.items >= 10 else f"about {poll.items:.1f}"
    if poll.items < 0.1:
        number = "less than 0.1"
    waited = format_duration(max(timedelta(), view.now - poll.polled_at))
    return f"{number} {noun} expected, {waited} since the last look"


def _explain_pause(view: JobView) -> Explanation:
    reason = f": {_shorten(view.job.pause_reason)}" if view.job.pause_reason else ""
    return Explanation(code="paused", sentence=f"paused{reason}; resume it with: floodmark resume {view.job.name}")


def _explain_limit(view: JobView, reason: str, until: datetime) -> Explanation:
    told, when = _shorten(reason), _format_when(until, view)
    # The reason of a flood wait contains its end in UTC: replaced here, because two times would confuse.
    named = _UNTIL.sub(f"until {when.removeprefix('at ')}", told, count=1) if until > view.now else told
    sentence = named if named != told else f"{told}; continues {when}"
    return Explanation(code="limit", sentence=sentence, until=until)


def _explain_dependency(view: JobView) -> Explanation:
    if not view.waits_for:
        return _explain_wake(view, "the jobs it waited for have succeeded")
    names = ", ".join(view.waits_for)
    return Explanation(code="dependency", sentence=f"waiting until {names} succeed{'s' * (len(view.waits_for) == 1)}")


def _explain_dead(view: JobView, last: Execution) -> Explanation:
    ended = _format_time(last.completed_at or last.scheduled_for, view)
    retry = f"retry it with: floodmark dlq retry {view.job.name}"
    sentence = f"failed permanently at {ended}: {_shorten(last.error_message or 'no error message')}; {retry}"
    next_run = view.job.next_run
    if next_run is None or next_run == NEVER:
        return Explanation(code="dead", sentence=sentence)
    return Explanation(code="dead", sentence=f"{sentence}; next run {_format_when(next_run, view)}", until=next_run)


def _explain_wake(view: JobView, why: str) -> Explanation:
    if view.leader is None:
        return Explanation(
            code="no_leader",
            sentence=f"{_shorten(why)}, but no scheduler is running; start one with: floodmark up",
        )
    return Explanation(code="due", sentence=f"{_shorten(why)}: the scheduler is about to queue it")


def _scheduler_will(view: JobView, what: str) -> str:
    return what if view.leader is not None else "no scheduler is running to rescue it: floodmark scheduler"


def _format_when(moment: datetime, view: JobView) -> str:
    """ "at 14:06:40 UTC, in 40 s"."""
    if moment <= view.now:
        return f"since {_format_time(moment, view)}"
    return f"at {_format_time(moment, view)}, in {format_duration(moment - view.now)}"


def _format_time(moment: datetime, view: JobView) -> str:
    """Return the time in the time zone of the job, with the date unless it is today."""
    zone = _find_zone(view.job.when.timezone)
    local, today = moment.astimezone(zone), view.now.astimezone(zone).date()
    shown = f"{local:%H:%M:%S}" if local.date() == today else f"{local:%Y-%m-%d %H:%M:%S}"
    return f"{shown} {zone}"


def _find_zone(name: str) -> tzinfo:
    try:
        return zone_of(name)
    except InvalidInput:
        # A row edited by hand: the job is reported as invalid, and can still be explained.
        return UTC


def _shorten(text: str) -> str:
    """Return the first line, shortened for a sentence."""
    first = text.strip().partition("\n")[0]
    return first if len(first) <= _ERROR_SHOWN else f"{first[: _ERROR_SHOWN - 1]}…"


_EXPLAIN_ACTIVE: dict[State, Callable[[JobView, Execution], Explanation]] = {
    State.RUNNING: _explain_running,
    State.QUEUED: _explain_queued,
    State.WAITING: _explain_waiting,
}
