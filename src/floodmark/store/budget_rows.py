"""Rows of `budgets` and `activity` as values, for the hot steps."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

from floodmark.model.batch import Batch
from floodmark.model.execution import Queued
from floodmark.model.job import ScheduleType
from floodmark.rules.budgets import FLAT, Terms, count_free, next_step
from floodmark.rules.freshness import Habits
from floodmark.rules.lessons import Known, Lesson, learn_poll

from .port import Decision, Fired
from .rows import decode_json

# In the order of `terms_from_row`; `b` is the budget.
TERMS_SELECT = (
    "b.name, b.requests, b.period, b.interval_seconds, b.sources, b.price, b.max_delay_seconds, b.fairness, b.habits"
)
_TERMS = TERMS_SELECT.count(",") + 1
KNOWN_SELECT = f"a.learned, a.measured, j.weight, j.max_delay_seconds, {TERMS_SELECT}"


def terms_from_row(row: Sequence[Any]) -> Terms:
    """Return the terms of a budget from columns in the order of `TERMS_SELECT`."""
    name, requests, period, interval, sources, price, max_delay, fairness, measured = row
    habits, shape = _read_habits(measured if isinstance(measured, str | None) else measured.decode())
    return Terms(
        name=name,
        requests=requests,
        period=period,
        interval=interval,
        sources=sources,
        price=price,
        max_delay=max_delay,
        fairness=fairness,
        habits=habits,
        shape=shape,
    )


def terms_of(row: Mapping[str, Any], *, sources: int) -> Terms:
    """Return the terms of a row of `budgets` that was read for people."""
    habits, shape = _habits_from(row["habits"])
    return Terms(
        name=row["name"],
        requests=row["requests"],
        period=row["period"],
        interval=row["interval_seconds"],
        sources=sources,
        price=row["price"],
        max_delay=row["max_delay_seconds"],
        fairness=row["fairness"],
        habits=habits,
        shape=shape,
    )


@lru_cache(maxsize=64)
def _read_habits(text: str | None) -> tuple[Habits, tuple[float, ...]]:
    return _habits_from(None if text is None else decode_json(text))


def _habits_from(stored: Mapping[str, Any] | None) -> tuple[Habits, tuple[float, ...]]:
    if not stored:
        return Habits(), FLAT
    shape = stored.get("shape")
    return Habits(rate=stored["rate"], day=tuple(stored["day"])), FLAT if shape is None else tuple(shape)


class BudgetTurn:
    """One round of the leader over all budgets."""

    def __init__(self, now: datetime, limit: int) -> None:
        self._now, self._limit = now, limit
        self._queued: list[Queued] = []
        self._written, self._looked_at = 0, 0
        self._steps: list[datetime] = []

    def count_free(self, terms: Terms, next_free: datetime, granted: int) -> int:
        """Return how many runs of a budget may be fired."""
        return min(self._limit, count_free(terms, next_free, granted, self._now))

    def add(self, decisions: Sequence[Decision], queued: Sequence[Queued], written: int) -> list[str]:
        """Add what was written for a budget; returns the ids of its new executions."""
        self._queued += queued
        self._written, self._looked_at = self._written + written, self._looked_at + len(decisions)
        return [new.execution_id for decision in decisions for new in decision.executions]

    def end(self, terms: Terms, next_free: datetime, granted: int) -> None:
        """Note when the next run of a budget can be fired."""
        self._steps.append(next_step(terms, next_free, granted, self._now))

    def make_fired(self) -> Fired:
        """Return the result of the round."""
        return Fired(
            queued=self._queued,
            written=self._written,
            looked_at=self._looked_at,
            next_due=min(self._steps, default=None),
            now=self._now,
        )


def needs_budget(decisions: Sequence[Decision]) -> list[str]:
    """Return the ids of adaptive jobs without a budget."""
    return [
        decision.job.job_id
        for decision in decisions
        if decision.job.when.schedule_type is ScheduleType.ADAPTIVE and decision.job.budget is None
    ]


def lateness_of(decisions: Sequence[Decision], now: datetime) -> list[float]:
    """Return by how many seconds the jobs that are fired are late; early ones are negative."""
    return [
        (now - decision.job.next_run).total_seconds()
        for decision in decisions
        if decision.executions and decision.job.next_run is not None
    ]


def lesson_of(row: Sequence[Any], batch: Batch, new: Sequence[str], changed: int, now: datetime) -> Lesson:
    """Return what a kept batch teaches, from columns in the order of `KNOWN_SELECT`."""
    learned, measured, weight, max_delay, *terms = row
    known = Known(learned=learned, measured=measured, weight=weight, max_delay=max_delay, terms=terms_from_row(terms))
    return learn_poll(known, batch, frozenset(new), changed, now)


def is_only_poll(batch: Batch) -> bool:
    """Return whether a batch holds nothing but the news that a poll found nothing."""
    more = (batch.items, batch.pages, batch.blobs, batch.matches, batch.files, batch.coverage)
    return batch.poll is not None and batch.watermark is None and not any(more)
