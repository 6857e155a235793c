"""Add jobs: paste targets, see what would be collected, choose when, save."""

import asyncio
from collections.abc import Mapping
from typing import Any
from zoneinfo import available_timezones

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from floodmark.api.access import Recent
from floodmark.dashboard.actions import first, read_form
from floodmark.dashboard.flash import set_flash
from floodmark.dashboard.job_form import ADAPTIVE, form_field, groups_of
from floodmark.dashboard.new_jobs import Line, NewJobsForm
from floodmark.dashboard.page import forget_shared, html, page
from floodmark.dashboard.param_form import option_fields
from floodmark.dashboard.view import View
from floodmark.dashboard.when_form import DAYS, WAYS, plan_runs
from floodmark.errors import Conflict, FloodmarkError
from floodmark.model.accounts import AccountRow
from floodmark.model.job_fields import FIELDS
from floodmark.model.previews import TargetPreview
from floodmark.sources.form import find_form

# The first lines are fetched; of the others only the text is examined.
_FETCHED, _AT_ONCE = 10, 4
# A preview is used again while the rest of the form is filled in.
_KEPT_SECONDS, _MOST_KEPT = 120.0, 500
_LISTED = 200


@page("/add", "add.html", role="admin", methods=("GET", "POST"), shared=False)
async def add_jobs(view: View) -> Mapping[str, Any] | Response:
    """Show the form, or what was typed with its previews, or save it."""
    fields: Mapping[str, list[str]] = {"what": [view.query("what") or ""]}
    if view.request.method == "POST":
        fields = await read_form(view.request)
    new = NewJobsForm.read(fields, zone=str(view.zone))
    planned = plan_runs(new.when, view.now, new.refusals)
    if view.query("part") == "runs":
        return html(view, "runs.html", {"planned": planned, "refusals": new.refusals})
    await _look_at_all(view, new)
    accounts = {account.name: account for account in await _accounts(view, new)}
    if view.request.method == "POST" and first(fields, "step") == "save":
        response = await _save(view, new, accounts)
        if response is not None:
            return response
    return {
        "new": new,
        "refusals": new.refusals,
        "planned": planned,
        "ways": WAYS,
        "days": [(day, day.capitalize()) for day in DAYS],
        "zones": sorted(available_timezones()),
        "options": {source: option_fields(source, find_form(source), new.texts) for source in new.sources},
        "groups": groups_of(new.texts, is_new=True),
        "adaptive": [form_field(FIELDS[name], new.texts.get(name, ""), is_new=True) for name in ADAPTIVE],
        "budgets": (await view.operations.budgets(limit=_LISTED)).items,
        "accounts": list(accounts),
        "uses_account": any(find_form(source).uses_account for source in new.sources),
        "name": form_field(FIELDS["name"], new.texts.get("name", ""), is_new=True),
        "tags": form_field(FIELDS["tags"], new.texts.get("tags", ""), is_new=True),
    }


async def _accounts(view: View, new: NewJobsForm) -> list[AccountRow]:
    is_needed = any(find_form(source).uses_account for source in new.sources)
    return (await view.operations.accounts(limit=_LISTED)).items if is_needed else []


async def _look_at_all(view: View, new: NewJobsForm) -> None:
    """Preview every line, some of them at once."""
    gate = asyncio.Semaphore(_AT_ONCE)

    async def look(number: int, line: Line) -> None:
        async with gate:
            try:
                line.preview = await _look(view, line, fetch=number < _FETCHED)
            except FloodmarkError as error:
                line.refuse(error)

    await asyncio.gather(*(look(number, line) for number, line in enumerate(new.lines)))


async def _look(view: View, line: Line, *, fetch: bool) -> TargetPreview:
    kept, key = _kept_previews(view.request), repr((line.text, line.source, fetch))
    known = kept.get(key)
    if known is not None:
        return known
    found = await view.operations.preview(line.text, line.source, fetch=fetch)
    # A failure may be over by the next look, and an account may be added.
    return found if found.note or found.missing else kept.put(key, found)


def _kept_previews(request: Request) -> "Recent[TargetPreview]":
    state = request.app.state
    if not hasattr(state, "dashboard_previews"):
        loop = asyncio.get_running_loop()
        state.dashboard_previews = Recent[TargetPreview](loop.time, _KEPT_SECONDS, _MOST_KEPT)
    found: Recent[TargetPreview] = state.dashboard_previews
    return found


async def _save(view: View, new: NewJobsForm, accounts: Mapping[str, AccountRow]) -> Response | None:
    """Add a job for each line and open it, or the list of all; None if one was refused."""
    columns = new.columns(accounts)
    if new.refusals or not new.lines:
        return None
    for line in new.lines:
        if line.preview is not None:
            await _add(view, new, line, columns[line.preview.source])
    _kept_previews(view.request).clear()
    forget_shared(view.request)
    added = [line for line in new.lines if line.added is not None]
    if len(added) < len(new.lines):
        # What is added already is not typed again.
        new.what = "\n".join(line.text for line in new.lines if line.added is None)
        return None
    if new.is_single:
        response = RedirectResponse(view.url(f"/jobs/{added[0].added}"), 303)
        set_flash(view.request, response, "done", "Added. It runs by its schedule.")
    else:
        response = RedirectResponse(view.url("/jobs"), 303)
        set_flash(view.request, response, "done", f"Added {len(added)} jobs.")
    return response


async def _add(view: View, new: NewJobsForm, line: Line, columns: Mapping[str, Any]) -> None:
    assert line.preview is not None
    found = line.preview
    try:
        if found.jobs and "name" not in columns:
            raise Conflict(f"{found.jobs[0]} collects it already", hint="a second job for it needs a name and a stream")
        job = await view.operations.add_job({**columns, "source": found.source, "target": found.target})
        if "run" in new.fields:
            await view.operations.run_job(job.job_id)
    except FloodmarkError as error:
        new.refuse(line, error)
    else:
        line.added = job.job_id


PAGES = (add_jobs,)
