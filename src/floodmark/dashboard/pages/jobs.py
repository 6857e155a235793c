"""The list of jobs, and actions on several of them."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from starlette.responses import RedirectResponse, Response

from floodmark.dashboard.actions import back_to, first, read_form
from floodmark.dashboard.bulk import ACTIONS, carry_out, question_of, words_for
from floodmark.dashboard.csrf import FIELD
from floodmark.dashboard.flash import set_flash
from floodmark.dashboard.marks import bars_of_marks
from floodmark.dashboard.page import forget_shared, html, page
from floodmark.dashboard.view import View
from floodmark.errors import InvalidInput
from floodmark.model.execution import ExecutionMark
from floodmark.model.job import Job, Priority
from floodmark.operations.jobs import JobFilter
from floodmark.sources.form import find_forms

_ROWS, _RUNS = 50, 16
_STATES = ("active", "paused", "disabled")


@page("/jobs", "jobs.html", live=("execution", "change"))
async def list_jobs(view: View) -> Mapping[str, Any]:
    """List jobs, with their last runs."""
    jobs = await view.operations.jobs(_filter(view), cursor=view.query("cursor"), limit=_ROWS)
    marks = await _latest(view, jobs.items)
    return {
        "jobs": jobs,
        "marks": marks,
        "bars_of_marks": bars_of_marks,
        "sources": sorted({*_known_sources(), *(job.source for job in jobs.items)}),
        "is_filtered": bool(set(view.filters) - {"cursor"}),
        "actions": [action for action in ACTIONS if view.may(action.operation)],
    }


@cache
def _known_sources() -> frozenset[str]:
    """Return the kinds of sources that are installed. Finding them takes as long as everything else on this page."""
    return frozenset(find_forms())


def _filter(view: View) -> JobFilter:
    state, priority = view.query("state"), view.query("priority")
    if state not in (None, *_STATES):
        raise InvalidInput(f"state is {state[:40]!r}", hint=f"use one of {', '.join(_STATES)}")
    if priority not in (None, "1", "2", "3"):
        raise InvalidInput(f"priority is {priority[:40]!r}", hint="use 1, 2 or 3")
    return JobFilter(
        state=state,  # type: ignore[arg-type] # checked above
        source=_short(view, "kind"),
        tag=_short(view, "tag"),
        text=_short(view, "text"),
        stale=True if view.query("stale") else None,
        priority=None if priority is None else Priority(int(priority)),
    )


def _short(view: View, name: str) -> str | None:
    """Return a filter that is not longer than anything it could find."""
    found = view.query(name)
    return None if found is None else found.strip()[:200] or None


async def _latest(view: View, jobs: Sequence[Job]) -> dict[str, list[ExecutionMark]]:
    found: dict[str, list[ExecutionMark]] = {}
    if jobs:
        for mark in await view.operations.latest_executions([job.job_id for job in jobs], _RUNS):
            found.setdefault(mark.job_id, []).append(mark)
    return found


@page("/jobs/bulk", "bulk.html", methods=("POST",), role="operate", shared=False)
async def act_on_jobs(view: View) -> Mapping[str, Any] | Response:
    """Carry out one action on each chosen job, and show the result of each that failed."""
    fields = await read_form(view.request)
    action = next((one for one in ACTIONS if one.name == first(fields, "do")), None)
    back, names = back_to(view, first(fields, "back")), list(dict.fromkeys(fields.get("job", ())))
    if action is None or not names:
        raise InvalidInput("no jobs are chosen, or no action", hint="choose jobs in the list, and then an action")
    if not first(fields, "sure"):
        kept = [(name, value) for name, values in fields.items() if name != FIELD for value in values]
        question = question_of(action, len(names))
        return html(view, "confirm.html", {"question": question, "fields": kept, "back": back})
    lines = await carry_out(view.operations, action, names, first(fields, "tag").strip())
    forget_shared(view.request)
    failed = [line for line in lines if line.error is not None]
    if failed:
        return {"action": action, "lines": lines, "failed": len(failed), "back": back}
    response = RedirectResponse(back, 303)
    set_flash(view.request, response, "done", words_for(action, lines))
    return response


PAGES = (list_jobs, act_on_jobs)
