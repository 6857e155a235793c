"""What a poll teaches about its source, and when the source is due again. Pure.

The store calls `learn_poll` in the transaction that keeps the items of a batch, so that neither is lost without the
other. The batches of one poll have the same time: a lesson that is repeated with the same time changes nothing.
"""

from collections.abc import Collection
from datetime import UTC, datetime

from msgspec import Struct
from msgspec.structs import replace

from floodmark.model.batch import Batch, PollResult

from .budgets import Terms
from .freshness import (
    Activity,
    PollForecast,
    Rhythm,
    decode_activity,
    encode_activity,
    expect,
    explain_poll,
    learn,
    learn_change,
    learn_first,
    next_poll,
)
from .measures import Measures, decode_measures, encode_measures, record


class Known(Struct, frozen=True, kw_only=True):
    """What is stored about the source of a job, and under which terms it is polled."""

    learned: bytes | None
    measured: bytes | None
    terms: Terms
    weight: float = 1.0
    max_delay: float | None = None


class Lesson(Struct, frozen=True, kw_only=True):
    """What to store after a batch."""

    learned: bytes
    measured: bytes
    next_run: datetime
    result: PollResult


def learn_poll(known: Known, batch: Batch, new: Collection[str], changed: int, now: datetime) -> Lesson:
    """Return what is known after a batch whose items with the keys `new` were stored for the first time."""
    assert batch.poll is not None
    at = batch.poll.at.timestamp()
    before = None if known.learned is None else decode_activity(known.learned)
    is_repeated = before is not None and before.until >= at
    # A batch that is kept a second time has no new or changed items.
    counts_all = batch.has_times_of_change and changed > 0
    fresh = [item.occurred_at for item in batch.items if counts_all or item.key in new]
    if before is not None and batch.is_backfill and not is_repeated:
        # Old items say nothing about the present rate, except at the first poll.
        fresh = []
    found = _Found(
        times=[time.timestamp() for time in fresh if time is not None],
        has_undated=None in fresh,
        is_changed=bool(fresh) or changed > 0,
    )
    rhythm = None if before is None else Rhythm(before, known.terms.habits)
    activity = _learn(before, rhythm, found, known.terms, at)
    measures = (None if known.measured is None else decode_measures(known.measured)) or Measures(at)
    is_first = before is None or batch.is_backfill
    result = PollResult(
        found=0 if is_first else len(set(found.times)) if activity.is_dated else int(found.is_changed),
        expected=0.0 if before is None or rhythm is None else expect(before, rhythm, at, known.terms.habits),
        delays=() if is_first else [max(0.0, now.timestamp() - time) for time in found.times],
    )
    measures = record(measures, result, now=at, requests=batch.poll.requests, polls=int(not is_repeated))
    return Lesson(
        learned=encode_activity(activity),
        measured=encode_measures(measures),
        next_run=next_run_of(activity, known),
        result=result,
    )


class _Found(Struct, frozen=True, kw_only=True):
    times: list[float]
    has_undated: bool
    is_changed: bool


def _learn(before: Activity | None, rhythm: Rhythm | None, found: _Found, terms: Terms, at: float) -> Activity:
    if before is None:
        first = learn_first(found.times, at)
        return first if found.times or not found.has_undated else learn_change(first, True, at, terms.habits)
    if found.times or (before.is_dated and not found.has_undated):
        return learn(before, rhythm, found.times, at)
    if before.until < at:
        learned = learn_change(before, found.is_changed, at, terms.habits)
        return replace(learned, recent=float(found.is_changed))
    # Another batch of the same poll: a source without times changes once per poll.
    is_news = found.is_changed and not before.recent
    return replace(before, items=before.items + 1, recent=1.0) if is_news else before


def next_run_of(activity: Activity, known: Known) -> datetime:
    """Return when the source is due again."""
    terms = known.terms
    due = next_poll(
        activity,
        Rhythm(activity, terms.habits),
        terms.habits,
        price=terms.current_price(),
        latest=terms.latest(activity.until, known.max_delay),
        weight=known.weight,
        fairness=terms.fairness,
        shape=terms.shape,
    )
    return datetime.fromtimestamp(due, UTC)


def forecast_poll(activity: Activity, known: Known, now: datetime) -> PollForecast:
    """Return the numbers on which `next_run_of` decides."""
    terms = known.terms
    return explain_poll(
        activity,
        Rhythm(activity, terms.habits),
        terms.habits,
        now=now.timestamp(),
        price=terms.current_price(),
        latest=terms.latest(activity.until, known.max_delay),
        weight=known.weight,
        fairness=terms.fairness,
        shape=terms.shape,
    )
