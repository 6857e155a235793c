"""Plan how a run reads a channel and where it starts. Pure."""

from datetime import UTC, date, datetime, time, timedelta
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from floodmark.errors import Permanent
from floodmark.model.batch import Watermark

from .targets import TelegramParams

Mode = Literal["historical", "incremental"]
Override = Literal["auto", "historical", "incremental"]
Phase = Literal["new", "revisit"]
Moment = Annotated[datetime, Meta(tz=True)]

# The posts that are read when incremental collection is switched off.
_FALLBACK_WINDOW = timedelta(hours=24)
# A known change may bring the next revisit forward this many times: some channels edit every post.
_SOONER = 10
# A day is complete once this much of the next one has passed: clocks differ, and albums take a moment.
_DAY_IS_OVER_AFTER = timedelta(minutes=5)


class UnfinishedRun(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The position of an unfinished run."""

    execution: str
    mode: Mode
    at: int = 0
    """All messages up to this id have been read in this run."""
    phase: Phase = "new"
    date: Moment | None = None
    """The time of the last post that was read again, in a revisit."""
    key: str | None = None
    began: Moment | None = None
    parsed: int = 0
    requests: int = 0


class CommentMark(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How far the discussion group of a channel is read. `group` is 0 if the channel has none."""

    group: int
    id: int = 0


class SampledMark(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The last post that was sampled at an age."""

    date: Moment
    key: str = ""


class ChannelMark(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The watermark of a channel. `run` is set while a run is unfinished."""

    id: int | None = None
    channel: int | None = None
    date: Moment | None = None
    revisited_at: Moment | None = None
    pts: int | None = None
    """The update counter of the channel, as far as the posts that were read account for it. Only for revisits."""
    comments: CommentMark | None = None
    sampled: dict[str, SampledMark] | None = None
    """For each age in seconds: how far the engagement of posts was sampled."""
    account: str | None = None
    """For a basic group: the account that numbers its messages."""
    previewed: int | None = None
    """The newest post that was read through the web preview."""
    complete: bool = False
    """For a job of a single day: the day is over and all its posts have been read."""
    run: UnfinishedRun | None = None


class ReadingRules(Struct, frozen=True, kw_only=True):
    """The settings that decide how channels are read."""

    override: Override = "auto"
    max_age: timedelta = timedelta(hours=24)
    is_incremental: bool = True
    engagement: str = "1h,1d,7d"


class ReadingPlan(Struct, frozen=True, kw_only=True):
    """Where a run starts: after the id `after`, at the time `since`, or at the `newest` posts; the oldest counts."""

    mode: Mode
    forced: str | None = None
    after: int | None = None
    since: datetime | None = None
    newest: int | None = None
    until: datetime | None = None
    """Only posts before this time are read."""
    is_resumed: bool = False
    phase: Phase = "new"


def parse_mark(watermark: Watermark | None) -> ChannelMark:
    """Return a stored watermark, or one that a person has set; `Permanent` if it is not one of a channel."""
    if watermark is None:
        return ChannelMark()
    try:
        return msgspec.convert(watermark, ChannelMark, strict=False)
    except msgspec.ValidationError as error:
        raise Permanent(
            f"the watermark is not one of a channel: {error}",
            hint="Set it, for example: floodmark watermark set JOB '{\"id\": 4812}', or reset it",
        ) from None


def encode_mark(mark: ChannelMark) -> Watermark:
    """Return the watermark to store."""
    encoded: dict[str, Any] = msgspec.to_builtins(mark)
    return encoded


def plan_reading(
    mark: ChannelMark, params: TelegramParams, rules: ReadingRules, *, last_checked_at: datetime | None, now: datetime
) -> ReadingPlan:
    """Return the plan of a run. It never starts after the last collected post, so that no gap remains."""
    if params.day is not None:
        return _plan_day(mark, params.day)
    mode, forced = _choose_mode(mark, rules, last_checked_at=last_checked_at, now=now)
    if mark.run is not None and mark.run.mode == mode:
        # Continue where the run was interrupted; posts that it has read are not read again.
        return ReadingPlan(mode=mode, after=mark.run.at, is_resumed=True, phase=mark.run.phase)
    if mark.id is None:
        return _plan_first_run(mode, forced, params, rules, now)
    if mode == "incremental":
        return ReadingPlan(mode=mode, forced=forced, after=mark.id)
    start = now - (rules.max_age if rules.is_incremental else _FALLBACK_WINDOW)
    if mark.date is not None and mark.date <= start:
        return ReadingPlan(mode=mode, forced=forced, after=mark.id)
    return ReadingPlan(mode=mode, forced=forced, after=mark.id, since=start)


def _choose_mode(
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


def plan_comments(params: TelegramParams, now: datetime) -> ReadingPlan:
    """Return where the comments of a channel are first read from: as its posts are."""
    return _plan_first_run("historical", None, params, ReadingRules(), now)


def _plan_first_run(
    mode: Mode, forced: str | None, params: TelegramParams, rules: ReadingRules, now: datetime
) -> ReadingPlan:
    if not rules.is_incremental:
        return ReadingPlan(mode=mode, forced=forced, since=now - _FALLBACK_WINDOW)
    if params.since is not None:
        return ReadingPlan(mode=mode, forced=forced, since=params.since)
    if params.history is not None:
        return ReadingPlan(mode=mode, forced=forced, newest=params.history)
    return ReadingPlan(mode=mode, forced=forced, after=0)


def _plan_day(mark: ChannelMark, day: date) -> ReadingPlan:
    begin = datetime.combine(day, time(), UTC)
    end = begin + timedelta(days=1)
    if mark.run is not None:
        # Even if it has read nothing yet: it has found where the day starts.
        return ReadingPlan(mode="historical", after=mark.run.at, until=end, is_resumed=True)
    if mark.id is not None:
        return ReadingPlan(mode="historical", after=mark.id, until=end)
    return ReadingPlan(mode="historical", since=begin, until=end)


def is_day_over(end: datetime, now: datetime) -> bool:
    """Return whether a day that ends at `end` is complete."""
    return now >= end + _DAY_IS_OVER_AFTER


def is_revisit_due(mark: ChannelMark, params: TelegramParams, *, is_forced: bool, now: datetime) -> bool:
    """Return whether this run reads recent posts again: always when a person asks, else once per interval."""
    if params.revisit is None or params.day is not None:
        return False
    if is_forced or mark.revisited_at is None:
        return True
    return now - mark.revisited_at.astimezone(UTC) >= _revisit_interval(params.revisit, params)


def may_revisit_changes(mark: ChannelMark, params: TelegramParams, *, now: datetime) -> bool:
    """Return whether this run reads recent posts again if the channel shows that some were edited or deleted."""
    if params.revisit is None or params.day is not None or mark.revisited_at is None:
        return False
    return now - mark.revisited_at.astimezone(UTC) >= _revisit_interval(params.revisit, params) / _SOONER


def _revisit_interval(revisit: timedelta, params: TelegramParams) -> timedelta:
    return params.revisit_every or revisit / 96
