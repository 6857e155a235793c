"""The overview: how things are, what runs, what waits, what failed."""

from collections.abc import Mapping
from typing import Any

from floodmark.dashboard.page import page
from floodmark.dashboard.view import View
from floodmark.model.fleet import Overview


@page("/", "overview.html", live=("execution", "change", "limit", "breaker", "worker"))
async def show_overview(view: View) -> Mapping[str, Any]:
    """Show how things are."""
    overview = await view.operations.overview()
    is_empty = not (await view.operations.jobs(limit=1)).items
    return {"overview": overview, "sentence": summarise(overview), "is_empty": is_empty}


def summarise(overview: Overview) -> tuple[str, str]:
    """Return one sentence on how things are, and its level: `ok`, `warn` or `bad`."""
    is_worked = any(worker.alive and worker.slots for worker in overview.workers)
    stale, dead = sum(source.stale for source in overview.freshness), overview.dead_letters
    failed = f"{dead} {'execution has' if dead == 1 else 'executions have'} failed for good and wait for a decision"
    late = f"{stale} {'source is' if stale == 1 else 'sources are'} late"
    found = (
        (overview.scheduler == "down", "Nothing is scheduled: no scheduler runs.", "bad"),
        (not is_worked, "Jobs are scheduled, but no worker runs them.", "bad"),
        (overview.scheduler == "stale", "The scheduler has not responded for a while.", "warn"),
        (overview.draining, "Workers are draining: running jobs end, and no new ones start.", "warn"),
        (dead > 0, f"Jobs run. {failed}.", "warn"),
        (stale > 0, f"Jobs run, but {late}.", "warn"),
        (True, "Everything runs on time.", "ok"),
    )
    return next((sentence, level) for is_so, sentence, level in found if is_so)


PAGES = (show_overview,)
