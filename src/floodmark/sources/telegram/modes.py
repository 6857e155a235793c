"""How a channel is read this time, and from where: decided from what is known, without asking anyone."""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from floodmark.errors import Permanent
from floodmark.model.batch import Watermark

from .targets import TelegramParams, bounds_of

Mode = Literal["historical", "incremental"]
Override = Literal["auto", "historical", "incremental"]
Phase = Literal["new", "revisit"]
Moment = Annotated[datetime, Meta(tz=True)]

# What is read when incremental collection is switched off.
_FALLBACK_WINDOW = timedelta(hours=24)


class UnfinishedRun(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run that has not come to its end: where it stands."""

    execution: str
    mode: Mode
    at: int = 0
    """Everything up to this id has been read in this run."""
    phase: Phase = "new"
    date: Moment | None = None
    """Of the last post that was read again, in a revisit."""
    key: str | None = None
    began: Moment | None = None
    parsed: int = 0
    requests: int = 0


class ChannelMark(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The watermark of a channel. `run` is there while a run is unfinished."""

    id: int | None = None
    channel: int | None = None
    date: Moment | None = None
    revisited_at: Moment | None = None
    complete: bool = False
    """For a single day: it is over and has been read to its end."""
    run: UnfinishedRun | None = None


class ReadingRules(Struct, frozen=True, kw_only=True):
    """What the settings say."""

    override: Override = "auto"
    max_age: timedelta = timedelta(hours=24)
    is_incremental: bool = True


class ReadingPlan(Struct, frozen=True, kw_only=True):
    """What to read: behind `after`, or from `since`, or the `newest` so many; the oldest of those that are given."""

    mode: Mode
    forced: str | None = None
    after: int | None = None
    since: datetime | None = None
    newest: int | None = None
    until: datetime | None = None
    """Nothing from this moment on."""
    is_resumed: bool = False
    phase: Phase = "new"


def mark_of(watermark: Watermark | None) -> ChannelMark:
    """A watermark as it was stored, or as a person typed it."""
    if watermark is None:
        return ChannelMark()
    try:
        return msgspec.convert(watermark, ChannelMark, strict=False)
    except msgspec.ValidationError as error:
        raise Permanent(
            f"the watermark is not one of a channel: {error}",
            hint="Set it as in: floodmark watermark set JOB '{\"id\": 4812}', or reset it",
        ) from None


def watermark_of(mark: ChannelMark) -> Watermark:
    """The same the other way round."""
    encoded: dict[str, Any] = msgspec.to_builtins(mark)
    return encoded


def plan(
    mark: ChannelMark, params: TelegramParams, rules: ReadingRules, *, last_checked_at: datetime | None, now: datetime
) -> ReadingPlan:
    """How this run reads. It never begins behind what was collected, so that no gap remains."""
    if params.day is not None:
        return _plan_of_day(mark, params)
    mode, forced = _mode(mark, rules, last_checked_at=last_checked_at, now=now)
    if mark.run is not None and mark.run.mode == mode:
        # It goes on where it was interrupted; what it has read is not read again.
        return ReadingPlan(mode=mode, after=mark.run.at, is_resumed=True, phase=mark.run.phase)
    if mark.id is None:
        return _first(mode, forced, params, rules, now)
    if mode == "incremental":
        return ReadingPlan(mode=mode, forced=forced, after=mark.id)
    start = now - (rules.max_age if rules.is_incremental else _FALLBACK_WINDOW)
    if mark.date is not None and mark.date <= start:
        return ReadingPlan(mode=mode, forced=forced, after=mark.id)
    return ReadingPlan(mode=mode, forced=forced, after=mark.id, since=start)


def _mode(
    mark: ChannelMark, rules: ReadingRules, *, last_checked_at: datetime | None, now: datetime
) -> tuple[Mode, str | None]:
    if not rules.is_incremental:
        return "historical", "feature_off"
    if rules.override != "auto":
        return rules.override, "override"
    if mark.run is not None:
        return mark.run.mode, None
    if mark.id is None:
        return "historical", None
    if last_checked_at is not None and now - last_checked_at > rules.max_age:
        return "historical", "stale_lpa"
    return "incremental", None


def _first(mode: Mode, forced: str | None, params: TelegramParams, rules: ReadingRules, now: datetime) -> ReadingPlan:
    if not rules.is_incremental:
        return ReadingPlan(mode=mode, forced=forced, since=now - _FALLBACK_WINDOW)
    if params.since is not None:
        return ReadingPlan(mode=mode, forced=forced, since=params.since)
    if params.history is not None:
        return ReadingPlan(mode=mode, forced=forced, newest=params.history)
    return ReadingPlan(mode=mode, forced=forced, after=0)


def _plan_of_day(mark: ChannelMark, params: TelegramParams) -> ReadingPlan:
    assert params.day is not None
    begin, end = bounds_of(params.day)
    if mark.run is not None:
        # Also if it has read nothing yet: where the day begins is known.
        return ReadingPlan(mode="historical", after=mark.run.at, until=end, is_resumed=True)
    if mark.id is not None:
        return ReadingPlan(mode="historical", after=mark.id, until=end)
    return ReadingPlan(mode="historical", since=begin, until=end)


def is_revisit_due(mark: ChannelMark, params: TelegramParams, *, is_asked_for: bool, now: datetime) -> bool:
    """Whether recent posts are read again in this run: at once when a person asks, else now and then."""
    if params.revisit is None or params.day is not None:
        return False
    if is_asked_for or mark.revisited_at is None:
        return True
    every = params.revisit_every or params.revisit / 96
    return now - mark.revisited_at.astimezone(UTC) >= every
