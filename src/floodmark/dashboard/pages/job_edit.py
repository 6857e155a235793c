"""The form that changes a job: every field of the field table, with the version of the job that it shows."""

from collections.abc import Mapping
from typing import Any
from zoneinfo import available_timezones

from starlette.responses import RedirectResponse, Response

from floodmark.dashboard.actions import read_form
from floodmark.dashboard.flash import set_flash
from floodmark.dashboard.job_draft import JobDraft
from floodmark.dashboard.job_form import groups_of, labels_of
from floodmark.dashboard.page import forget_shared, html, page
from floodmark.dashboard.param_form import option_fields
from floodmark.dashboard.view import View
from floodmark.dashboard.when_form import DAYS, KEPT, WAYS, PlannedRuns, plan_runs
from floodmark.errors import Conflict, FloodmarkError
from floodmark.model.audit import AuditRow


@page("/jobs/{job}/edit", "job_edit.html", role="admin", methods=("GET", "POST"), shared=False)
async def edit_job(view: View) -> Mapping[str, Any] | Response:
    """Show the form, or change the job with what was typed."""
    draft = JobDraft.of(await view.operations.job(view.param("job")))
    if view.request.method == "POST":
        draft.read(await read_form(view.request))
        response = await (_show_runs if view.query("part") == "runs" else _save)(view, draft)
        if response is not None:
            return response
    way = draft.when.way
    return {
        "job": draft.job,
        "draft": draft,
        "refusals": draft.refusals,
        "groups": groups_of(draft.texts),
        "options": option_fields(draft.job.source, draft.form, draft.texts),
        "planned": None if way == KEPT else _plan(view, draft),
        "ways": [*WAYS, *([(KEPT, "As it is")] if way == KEPT else [])],
        "days": [(day, day.capitalize()) for day in DAYS],
        "zones": sorted(available_timezones()),
        "labels_of": labels_of,
        "by": await _last_change(view, draft) if draft.others else None,
    }


def _plan(view: View, draft: JobDraft) -> PlannedRuns | None:
    return plan_runs(draft.when, view.now, draft.refusals, anchor=draft.job.created_at)


async def _show_runs(view: View, draft: JobDraft) -> Response:
    return html(view, "runs.html", {"planned": _plan(view, draft), "refusals": draft.refusals})


async def _save(view: View, draft: JobDraft) -> Response | None:
    """Change the job and return to its page; None if something was refused."""
    changes, job_id = draft.changes(), draft.job.job_id
    if draft.refusals:
        return None
    response, said = RedirectResponse(view.url(f"/jobs/{job_id}"), 303), "Nothing was changed."
    if changes:
        try:
            changed = await view.operations.change_job(job_id, changes, version=draft.version)
        except FloodmarkError as error:
            current = await view.operations.job(job_id)
            if isinstance(error, Conflict) and current.version != draft.version:
                draft.continue_from(current)
            else:
                draft.refuse(error)
            return None
        said = f"Changed {labels_of(changes)}. It is version {changed.version} now."
        forget_shared(view.request)
    set_flash(view.request, response, "done", said)
    return response


async def _last_change(view: View, draft: JobDraft) -> AuditRow | None:
    rows = (await view.operations.audit(what=f"job:{draft.job.name}", limit=1)).items
    return rows[0] if rows else None


PAGES = (edit_job,)
