"""Decide which instants of a job fire, which are coalesced or skipped, and when to plan again.

An instant is due once `now` has reached it, and missed once it is late by more than the grace time.

| in time | |
|---|---|
| coalesce | the newest fires and stands for the others |
| no coalesce | each fires |

| missed, catch up | |
|---|---|
| none | the newest is recorded as skipped and stands for the others |
| one | the first that fires in time stands for them; if there is none, the newest of them fires |
| all | each fires, oldest first |
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from hashlib import blake2b
from itertools import islice, takewhile

from msgspec import Struct
from msgspec.structs import replace

from floodmark.model.durations import format_duration
from floodmark.model.job import NEVER, CatchUp, Overlap, Policy
from floodmark.triggers.port import Trigger, between, instants

# More would only make a number in a sentence larger, and planning a year of seconds slow.
MOST_COUNTED = 1000

REPLACED = "replaced by a newer instant"

_INSTANT = timedelta(microseconds=1)
_CENTURY = timedelta(days=36525)


class FireAction(StrEnum):
    """What the scheduler does with an instant."""

    RUN = "run"
    QUEUE = "queue"  # run it once the earlier executions are finished
    REPLACE = "replace"  # cancel the earlier executions and run it
    SKIP = "skip"  # record it with its reason, never run it


class Fire(Struct, frozen=True, kw_only=True):
    """One execution to record. `instant` is its nominal time in UTC and, within the job, its identity."""

    instant: datetime
    action: FireAction = FireAction.RUN
    reason: str | None = None
    coalesced: int = 0  # earlier instants this one stands for, counted up to MOST_COUNTED
    not_before: datetime | None = None  # only while its jitter keeps it waiting


class Plan(Struct, frozen=True, kw_only=True):
    """What to record, oldest first, and where the next step continues."""

    fires: tuple[Fire, ...]
    next_run: datetime  # the first instant that is not planned; NEVER if there is none
    planned_until: datetime  # every instant up to this one is planned


def plan(
    trigger: Trigger,
    policy: Policy,
    *,
    planned_until: datetime,
    now: datetime,
    active: int = 0,
    limit: int = 100,
    seed: str = "",
) -> Plan:
    """Plan the instants later than `planned_until` that are due at `now`, in at most `limit` fires.

    `active` is the number of unfinished executions of the job; `seed` makes its jitter differ from that of other
    jobs. Instants beyond `limit` are not lost: `next_run` is then already due, and the next step continues there.
    """
    due = list(islice(_fires(trigger, policy, planned_until, now), limit))
    # A fire covers all earlier instants, so only a full plan can leave some over.
    is_full = len(due) == limit
    reached = max((fire.instant for fire in due), default=planned_until) if is_full else max(planned_until, now)
    next_run = trigger.after(reached) or NEVER
    return Plan(
        fires=tuple(_add_jitter(fire, policy.jitter, now, seed) for fire in _apply_overlap(due, policy, active)),
        next_run=next_run,
        planned_until=reached if next_run <= now else max(reached, now),
    )


def _fires(trigger: Trigger, policy: Policy, after: datetime, now: datetime) -> Iterator[Fire]:
    """Yield the fires for the instants later than `after` that are due at `now`, oldest first."""
    first = trigger.after(after)
    if first is None or first > now:
        return iter(())
    second = trigger.after(first)
    if (second is None or second > now) and now - first <= policy.misfire_grace:
        # One instant, in time: by far the most common case, and the same under all rules below.
        return iter((Fire(instant=first),))
    return _Backlog(trigger, policy, after, now).fires()


@dataclass(frozen=True, slots=True)
class _Backlog:
    """The instants later than `after` that are due at `now`, never listed in full."""

    trigger: Trigger
    policy: Policy
    after: datetime
    now: datetime

    def fires(self) -> Iterator[Fire]:
        """Yield the fires, oldest first, as if no execution were unfinished."""
        missed = self._newest(self.after, self.now - min(self.policy.misfire_grace, _CENTURY) - _INSTANT)
        in_time = self._newest(missed or self.after, self.now)
        if missed and not (in_time and self.policy.catch_up is CatchUp.ONE):
            yield from self._fire_missed(missed)
        if in_time:
            yield from self._fire_in_time(missed or self.after, in_time)

    def _fire_missed(self, newest: datetime) -> Iterator[Fire]:
        match self.policy.catch_up:
            case CatchUp.NONE:
                yield self._stand_for(self.after, newest, self._lateness(newest), action=FireAction.SKIP)
            case CatchUp.ONE:
                yield self._stand_for(self.after, newest, self._lateness(newest))
            case CatchUp.ALL:
                for instant in self._each(self.after, newest):
                    yield Fire(instant=instant, reason=self._lateness(instant))

    def _fire_in_time(self, after: datetime, newest: datetime) -> Iterator[Fire]:
        first = newest if self.policy.coalesce else self.trigger.after(after)
        assert first is not None
        yield self._stand_for(self.after if self.policy.catch_up is CatchUp.ONE else after, first)
        for instant in self._each(first, newest):
            yield Fire(instant=instant)

    def _newest(self, after: datetime, until: datetime) -> datetime | None:
        newest = self.trigger.latest(until)
        return newest if newest and newest > after else None

    def _each(self, after: datetime, until: datetime) -> Iterator[datetime]:
        return takewhile(lambda instant: instant <= until, instants(self.trigger, after))

    def _stand_for(
        self,
        after: datetime,
        instant: datetime,
        lateness: str | None = None,
        *,
        action: FireAction = FireAction.RUN,
    ) -> Fire:
        """Return a fire that stands for all instants between `after` and its own."""
        others = len(between(self.trigger, after, instant - _INSTANT, MOST_COUNTED))
        reason = _join_reasons(lateness, _describe_others(others))
        return Fire(instant=instant, action=action, reason=reason, coalesced=others)

    def _lateness(self, instant: datetime) -> str:
        late, grace = format_duration(self.now - instant), format_duration(self.policy.misfire_grace)
        return f"missed by {late} (grace {grace})"


def _apply_overlap(due: Sequence[Fire], policy: Policy, active: int) -> Iterator[Fire]:
    """Apply the overlap policy to the fires: the unfinished executions of the job may change their action."""
    if policy.overlap is Overlap.REPLACE:
        return _replace_earlier(due, policy, active)
    return _queue_or_skip(due, policy, active)


def _queue_or_skip(due: Sequence[Fire], policy: Policy, active: int) -> Iterator[Fire]:
    otherwise = FireAction.QUEUE if policy.overlap is Overlap.QUEUE else FireAction.SKIP
    for fire in due:
        is_room = fire.action is FireAction.SKIP or active < policy.max_instances
        admitted = fire if is_room else _change_action(fire, otherwise, _describe_active(active))
        active += admitted.action is not FireAction.SKIP
        yield admitted


def _replace_earlier(due: Sequence[Fire], policy: Policy, active: int) -> Iterator[Fire]:
    """If there is no room for all, only the newest runs: the others would be cancelled at once."""
    runs = [fire for fire in due if fire.action is FireAction.RUN]
    is_room = active + len(runs) <= policy.max_instances
    for fire in due:
        if is_room or fire.action is FireAction.SKIP:
            yield fire
        elif fire is not runs[-1]:
            yield _change_action(fire, FireAction.SKIP, REPLACED)
        else:
            yield _change_action(fire, FireAction.REPLACE, _describe_active(active)) if active else fire


def _add_jitter(fire: Fire, jitter: timedelta, now: datetime, seed: str) -> Fire:
    """Return the fire with its delay by jitter, if that is not over yet. The delay of an instant never changes."""
    if fire.action is FireAction.SKIP or not jitter:
        return fire
    digest = blake2b(f"{seed} {fire.instant.isoformat()}".encode(), digest_size=8).digest()
    not_before = fire.instant + jitter * (int.from_bytes(digest) / 2**64)
    return replace(fire, not_before=not_before) if not_before > now else fire


def _change_action(fire: Fire, action: FireAction, reason: str) -> Fire:
    return replace(fire, action=action, reason=_join_reasons(reason, fire.reason))


def _join_reasons(*parts: str | None) -> str | None:
    return "; ".join(filter(None, parts)) or None


def _describe_active(active: int) -> str:
    return f"overlap: {active} execution{'s' if active > 1 else ''} unfinished"


def _describe_others(others: int) -> str | None:
    if not others:
        return None
    count = f"{others} or more" if others == MOST_COUNTED else f"{others}"
    return f"stands for {count} earlier instant{'s' if others > 1 else ''}"
