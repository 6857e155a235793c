"""The timeline of a job, from its executions, its events and the audit log. Pure."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import groupby
from typing import Any, Literal

import msgspec
from msgspec import Struct

from floodmark.model.audit import AuditRow
from floodmark.model.counts import list_counts
from floodmark.model.durations import format_duration
from floodmark.model.execution import Execution, State
from floodmark.store.port import Event

Level = Literal["debug", "info", "warning", "error"]
LEVELS: tuple[Level, ...] = ("debug", "info", "warning", "error")
# Events of one batch have nearly the same time.
_ONE_BATCH = timedelta(milliseconds=20)
_ONE_MOMENT = timedelta(milliseconds=500)
# Start and duration of an attempt come from two clocks.
_ROUNDING_SECONDS = 0.5


class TimelineEntry(Struct, frozen=True, kw_only=True):
    """One entry. Entries with the same time, event and execution are the same."""

    at: datetime
    level: Level
    event: str
    text: str
    execution_id: str | None = None

    @property
    def key(self) -> tuple[datetime, str, str | None]:
        """What identifies the entry."""
        return self.at, self.event, self.execution_id


def timeline_of(execution: Execution, zone: tzinfo | None = None) -> list[TimelineEntry]:
    """Return the entries of an execution: fired, started, failed, waiting, ended.

    Times within texts are in `zone`; by default in that of this machine.
    """
    return sorted(_entries(execution, zone), key=lambda entry: entry.at)


def _entries(e: Execution, zone: tzinfo | None) -> Iterator[TimelineEntry]:
    created = e.created_at or e.scheduled_for

    def entry(at: datetime, level: Level, event: str, text: str) -> TimelineEntry:
        return TimelineEntry(at=at, level=level, event=event, text=text, execution_id=e.execution_id)

    if e.state is State.SKIPPED:
        # An overlap is normal, a missed instant is not.
        level: Level = "debug" if (e.reason or "").startswith("overlap") else "warning"
        yield entry(created, level, "skipped", e.reason or "")
        return
    for_when = f"for {e.scheduled_for.astimezone(zone):%Y-%m-%d %H:%M:%S}"
    more = f", {e.coalesced} more instants combined" if e.coalesced else ""
    yield entry(created, "debug", "fired", f"by {e.trigger}, {for_when}{more}")
    yield from (entry(*failure) for failure in _failures(e, created))
    if e.started_at is not None:
        yield entry(e.started_at, "info", "started", f"attempt {max(1, e.attempt)} on {e.worker or '?'}")
    if e.rescues:
        at = e.started_at or created
        yield entry(at, "warning", "rescued", f"{e.rescues} times after its worker stopped responding")
    if e.state is State.WAITING:
        until = "" if e.not_before is None else f"until {e.not_before.astimezone(zone):%H:%M:%S}"
        why = e.reason or (e.hold or "")
        yield entry(_find_stop(e, created), "info", "waits", ": ".join(part for part in (until, why) if part))
    if e.completed_at is not None:
        yield entry(e.completed_at, *_end(e))


def is_in_slices(execution: Execution) -> bool:
    """Return whether it worked longer than since its last start: it was snoozed or retried in between."""
    started, ended, worked = execution.started_at, execution.completed_at, execution.duration_seconds
    if started is None or worked is None:
        return False
    return ended is None or worked > (ended - started).total_seconds() + _ROUNDING_SECONDS


class FailedAttempt(Struct, frozen=True, kw_only=True):
    """A failed attempt. The time is not known for attempts of older versions."""

    number: str
    worker: str
    error: str
    at: datetime | None
    traceback: str


def failed_attempts(e: Execution, *, with_last: bool = False) -> list[FailedAttempt]:
    """Return the failed attempts; without the last one of a dead execution, which its end reports, unless asked."""
    attempts = [one for one in e.error_details if isinstance(one, dict)] if isinstance(e.error_details, list) else []
    if not with_last and e.state is State.DEAD and attempts and attempts[-1].get("error") == e.error_message:
        attempts = attempts[:-1]
    return [
        FailedAttempt(
            number=str(one.get("attempt", "?")),
            worker=str(one.get("worker", "?")),
            error=str(one.get("error", "")),
            at=_moment(one.get("at")),
            traceback=str(details.get("traceback", "")) if isinstance(details := one.get("details"), dict) else "",
        )
        for one in attempts
    ]


def _failures(e: Execution, created: datetime) -> list[tuple[datetime, Level, str, str]]:
    return [
        (one.at or created, "warning", "failed", f"attempt {one.number} on {one.worker}: {one.error}")
        for one in failed_attempts(e)
    ]


def _end(e: Execution) -> tuple[Level, str, str]:
    took = "" if e.duration_seconds is None else f"in {format_duration(timedelta(seconds=e.duration_seconds))}"
    items = list_counts(new=e.items_new, changed=e.items_changed, known=e.items_known) or "nothing new"
    if e.state is State.DONE:
        return "info", "done", f"{items} {took}".strip()
    if e.state is State.DEAD:
        return "error", "dead", f"failed permanently: {e.error_message or '?'}"
    return "warning", str(e.state), e.reason or ""


def _find_stop(e: Execution, created: datetime) -> datetime:
    if e.started_at is None or e.duration_seconds is None:
        return e.started_at or created
    return e.started_at + timedelta(seconds=e.duration_seconds)


def _moment(text: Any) -> datetime | None:
    try:
        moment = msgspec.convert(text, datetime) if isinstance(text, str) else None
    except msgspec.ValidationError:
        return None
    return moment if moment is None or moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def batches_of(events: Sequence[Event], executions: Sequence[Execution]) -> list[TimelineEntry]:
    """Return the batches that these executions stored. Events outside of all of them are ignored."""
    found: list[TimelineEntry] = []
    batches = _batches(sorted(events, key=lambda event: event.collected_at), executions)
    for (_, execution_id), together in groupby(batches, key=lambda entry: entry[0]):
        batch = [event for _, event in together]
        new = sum(event.revision == 1 for event in batch)
        text = list_counts(new=new, changed=len(batch) - new)
        at = batch[-1].collected_at
        found.append(TimelineEntry(at=at, level="info", event="kept", text=text, execution_id=execution_id))
    return found


def _batches(events: Sequence[Event], executions: Sequence[Execution]) -> Iterator[tuple[tuple[int, str], Event]]:
    """Yield each event with the number of its batch and the execution that stored it."""
    number, last = 0, None
    for event in events:
        run = next((e for e in executions if _is_within(event.collected_at, e)), None)
        if run is None:
            continue
        if last is not None and event.collected_at - last > _ONE_BATCH:
            number += 1
        last = event.collected_at
        yield (number, run.execution_id), event


def _is_within(at: datetime, e: Execution) -> bool:
    """Return whether the execution may have stored something at this time, in any of its attempts."""
    begins = e.created_at or e.started_at
    return begins is not None and begins <= at and (e.completed_at is None or at <= e.completed_at)


def sort_entries(entries: Sequence[TimelineEntry]) -> list[TimelineEntry]:
    """Return the entries sorted by time.

    Clocks differ: a start that is dated just after the first batch is put before it.
    """
    kept: dict[str | None, list[datetime]] = {}
    for entry in entries:
        if entry.event == "kept":
            kept.setdefault(entry.execution_id, []).append(entry.at)

    def when(entry: TimelineEntry) -> tuple[datetime, bool]:
        just_before = [at for at in kept.get(entry.execution_id, ()) if timedelta() <= entry.at - at < _ONE_MOMENT]
        is_start = entry.event == "started"
        return (min(just_before) if is_start and just_before else entry.at), not is_start

    return sorted(entries, key=when)


def changes_of(rows: Sequence[AuditRow]) -> list[TimelineEntry]:
    """Return the changes that people made."""
    return [
        TimelineEntry(
            at=row.at, level="info", event=row.action.partition(".")[2] or row.action, text=f"by {row.who} ({row.via})"
        )
        for row in rows
    ]
