"""The overview: how things are, what runs, what waits, what failed, how late sources are."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from floodmark.dashboard.page import page
from floodmark.dashboard.regions import read_rarely
from floodmark.dashboard.view import View
from floodmark.model.fleet import Overview, Running
from floodmark.model.freshness_map import FreshnessLevel, FreshnessMap
from floodmark.model.minutes import MinuteReport
from floodmark.model.notification_channels import ChannelRow
from floodmark.model.search import IndexStatus
from floodmark.model.sinks import SinkRow
from floodmark.rules.sinks import is_stuck

HOURS = {"1": "1 h", "6": "6 h", "24": "24 h", "168": "7 days"}
_USUAL_HOURS, _FIRST_HOURS = "6", "1"
# Thinner bars would say no more.
_BARS = 180


@page("/", "overview.html", live=("execution", "change", "limit", "breaker", "worker"))
async def show_overview(view: View) -> Mapping[str, Any]:
    """Show how things are."""
    operations = view.operations
    overview = await operations.overview()
    fresh = await read_rarely(view, "map", operations.freshness_map)
    accounts = await read_rarely(view, "accounts", lambda: operations.accounts(limit=200))
    budgets = await read_rarely(view, "budgets", lambda: operations.budgets(limit=50))
    sinks = await read_rarely(view, "sinks", operations.sinks)
    channels = await read_rarely(view, "channels", operations.notification_channels)
    index = await read_rarely(view, "search index", operations.search_index)
    hours, minutes = await _read_minutes(view, overview.at)
    return {
        "overview": overview,
        "sentence": summarise(overview, fresh),
        "minutes": minutes,
        "hours": hours,
        "hour_choices": HOURS,
        "fresh": fresh,
        "levels": count_levels(fresh),
        "accounts": Counter(account.state for account in accounts.items),
        "parked": [account for account in accounts.items if account.state == "parked"],
        "budgets": budgets.items,
        "delivery": [*describe_sinks(sinks), *describe_channels(channels), *describe_index(index)],
        "is_empty": not fresh.jobs and not (await operations.jobs(limit=1)).items,
        "progress": {run.execution_id: progress_of(run, overview.at) for run in overview.running},
    }


async def _read_minutes(view: View, now: datetime) -> tuple[str, MinuteReport]:
    """Return how many hours to show, and what happened in them: in an installation's first hour, that hour."""

    async def read(hours: str) -> tuple[str, MinuteReport]:
        found = await read_rarely(view, f"minutes {hours}", lambda: view.operations.minutes(float(hours), rows=_BARS))
        return hours, found

    asked = view.query("hours")
    if asked in HOURS:
        return await read(asked)
    hours, found = await read(_USUAL_HOURS)
    begin = now - timedelta(hours=float(_FIRST_HOURS))
    is_young = not any(row.created or row.items_new or row.items_changed for row in found.rows if row.at < begin)
    return await read(_FIRST_HOURS) if is_young else (hours, found)


class DeliveryFact(NamedTuple):
    """One line about what is delivered: its name, text, page and level."""

    name: str
    text: str
    path: str
    level: str = ""


def describe_sinks(sinks: Sequence[SinkRow]) -> list[DeliveryFact]:
    """Return a line about sinks; none if there are none."""
    used = [sink for sink in sinks if sink.state != "removed"]
    failing = [sink for sink in used if sink.state == "failing" or is_stuck(sink)]
    if failing:
        text = f"{len(failing)} of {len(used)} failing: {failing[0].name}"
        return [DeliveryFact("Sinks", text, "/sinks", "bad")]
    letters, paused = sum(sink.dead_letters for sink in used), sum(sink.state == "paused" for sink in used)
    parts = [f"{len(used)} in use", *([f"{paused} paused"] if paused else [])]
    parts += [f"{letters:,} dead letters"] if letters else []
    return [DeliveryFact("Sinks", ", ".join(parts), "/sinks", "warn" if letters or paused else "")] if used else []


def describe_channels(channels: Sequence[ChannelRow]) -> list[DeliveryFact]:
    """Return a line about the channels of watches; none if no watch uses one."""
    used = [channel for channel in channels if channel.watches]
    failing = [channel for channel in used if channel.error is not None]
    if failing:
        text = f"cannot notify over {', '.join(channel.name for channel in failing[:3])}"
        return [DeliveryFact("Watches", text, "/watches", "bad")]
    names = ", ".join(channel.name for channel in used[:3])
    return [DeliveryFact("Watches", f"notify over {names}", "/watches")] if used else []


def describe_index(index: IndexStatus) -> list[DeliveryFact]:
    """Return a line about the search index; none if there is no index."""
    if index.condition == "off" or (index.condition == "missing" and not index.pending):
        return []
    behind = f", {index.pending:,} items behind" if index.pending else ""
    level = "" if index.condition == "ready" else "warn"
    return [DeliveryFact("Search", f"{index.condition}{behind}", "/sinks", level)]


def count_levels(fresh: FreshnessMap) -> dict[FreshnessLevel, int]:
    """Return how many sources have each level."""
    return {level: sum(kind.levels.get(level, 0) for kind in fresh.kinds) for level in FreshnessLevel}


def progress_of(run: Running, now: datetime) -> tuple[float, float] | None:
    """Return the seconds that a run has taken and those it usually takes; None if they are not known."""
    if not run.usual_seconds or run.started_at is None:
        return None
    return max(0.0, (now - run.started_at).total_seconds()), run.usual_seconds


def summarise(overview: Overview, fresh: FreshnessMap | None = None) -> tuple[str, str]:
    """Return one sentence on how things are, and its level: `ok`, `warn` or `bad`."""
    levels = count_levels(fresh or FreshnessMap())
    late = levels[FreshnessLevel.LATE] + levels[FreshnessLevel.VERY_LATE]
    dead, is_worked = overview.dead_letters, any(worker.alive and worker.slots for worker in overview.workers)
    many = "or more " if dead >= 10_000 else ""
    failed = f"{dead:,} {many}{'execution has' if dead == 1 else 'executions have'} failed for good"
    are_late = (
        f"{late:,} {'source is' if late == 1 else 'sources are'} late for {'its' if late == 1 else 'their'} rhythm"
    )
    both = f"{are_late}, and {failed}"
    found = (
        (overview.scheduler == "down", "Nothing is scheduled: no scheduler runs.", "bad"),
        (not is_worked, "Jobs are scheduled, but no worker runs them.", "bad"),
        (overview.scheduler == "stale", "The scheduler has not responded for a while.", "warn"),
        (overview.draining, "Workers are draining: running jobs end, and no new ones start.", "warn"),
        (dead > 0 and late > 0, f"Jobs run, but {both}.", "warn"),
        (dead > 0, f"Jobs run on time, but {failed} and {'waits' if dead == 1 else 'wait'} for a decision.", "warn"),
        (late > 0, f"Jobs run, but {are_late}.", "warn"),
        (True, _all_well(levels), "ok"),
    )
    return next((sentence, level) for is_so, sentence, level in found if is_so)


def _all_well(levels: Mapping[FreshnessLevel, int]) -> str:
    new = levels[FreshnessLevel.NEW]
    unchecked = f"{_count_sources(new)} not been checked yet"
    timed = sum(levels.values()) - levels[FreshnessLevel.OFF] - new
    if not timed:
        return f"Everything is ready. {unchecked}." if new else "Everything is ready."
    fresh = f"{levels[FreshnessLevel.FRESH]:,} of {timed:,} {'source is' if timed == 1 else 'sources are'} fresh"
    return f"Everything runs on time: {fresh}{f', {unchecked}' if new else ''}."


def _count_sources(count: int) -> str:
    return f"{count:,} {'source has' if count == 1 else 'sources have'}"


PAGES = (show_overview,)
