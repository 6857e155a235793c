"""One job: why it does not run, its runs, its watermark, its changes."""

from collections.abc import Mapping, Sequence
from datetime import tzinfo
from typing import Any

from starlette.responses import RedirectResponse, Response

from floodmark.dashboard.actions import first, read_form
from floodmark.dashboard.field_texts import json_text, object_of
from floodmark.dashboard.flash import set_flash
from floodmark.dashboard.marks import bars_of_items, bars_of_marks
from floodmark.dashboard.page import forget_shared, page
from floodmark.dashboard.param_form import option_fields, read_params
from floodmark.dashboard.refusals import PageRefusals
from floodmark.dashboard.view import View
from floodmark.errors import FloodmarkError, NotFound
from floodmark.model.audit import AuditRow
from floodmark.model.execution import ACTIVE, Execution
from floodmark.model.job import Job
from floodmark.model.streams import StreamState
from floodmark.operations.timeline import TimelineEntry, changes_of, sort_entries, timeline_of
from floodmark.rules.completeness import describe_place
from floodmark.sources.form import find_form

_STRIP, _LISTED, _LOGGED, _LINES, _CHANGES, _DAYS = 200, 10, 20, 40, 10, 7


@page("/jobs/{job}", "job.html", live=("execution", "change"))
async def show_job(view: View) -> Mapping[str, Any]:
    """Show one job."""
    operations = view.operations
    job = await operations.job(view.param("job"))
    runs = (await operations.executions(job=job.job_id, limit=_STRIP)).items
    changes = (await operations.audit(what=f"job:{job.name}", limit=_CHANGES)).items
    return {
        "job": job,
        "explanation": await operations.explain(job.job_id),
        "runs": runs,
        "listed": runs[:_LISTED],
        "is_active": any(run.state in ACTIVE for run in runs),
        "next_runs": await _next_runs(view, job),
        "watermark": await _watermark(view, job),
        "completeness": (await operations.completeness(job=job.job_id, limit=1)).items,
        "describe_place": describe_place,
        "statistics": await operations.statistics(_DAYS, job.job_id),
        "days": _DAYS,
        "changes": changes,
        "log": lambda zone: log_of(runs, changes, zone),
        "bars_of_marks": bars_of_marks,
        "bars_of_items": bars_of_items,
        "to_json": json_text,
    }


async def _next_runs(view: View, job: Job) -> Any:
    try:
        return await view.operations.upcoming_runs(job.job_id, 5)
    except FloodmarkError:
        # Its schedule was made invalid with SQL; the sentence at the top says so.
        return None


async def _watermark(view: View, job: Job) -> StreamState | None:
    if job.last_run is None:
        return None
    try:
        return await view.operations.watermark(job.stream)
    except NotFound:
        return None


def log_of(runs: Sequence[Execution], changes: Sequence[AuditRow], zone: tzinfo) -> list[TimelineEntry]:
    """Return what happened to a job, newest first. Times within texts are in `zone`."""
    entries = [entry for run in runs[:_LOGGED] for entry in timeline_of(run, zone)]
    oldest = min((entry.at for entry in entries), default=None)
    changed = [entry for entry in changes_of(changes) if oldest is None or entry.at >= oldest]
    return sort_entries([*entries, *changed])[::-1][:_LINES]


@page("/jobs/{job}/schedule", "error.html", role="admin", methods=("POST",), shared=False)
async def switch_schedule(view: View) -> Response:
    """Enable or disable the schedule of a job."""
    fields = await read_form(view.request)
    is_on = first(fields, "enabled") == "yes"
    return await _change(
        view, {"schedule_enabled": is_on}, "Enabled its schedule." if is_on else "Disabled its schedule."
    )


async def _change(view: View, columns: Mapping[str, Any], said: str) -> Response:
    job = await view.operations.job(view.param("job"))
    response = RedirectResponse(view.url(f"/jobs/{job.job_id}"), 303)
    try:
        await view.operations.change_job(job.job_id, columns)
        set_flash(view.request, response, "done", said)
    except FloodmarkError as error:
        set_flash(view.request, response, "failed", str(error), error.hint)
    forget_shared(view.request)
    return response


@page("/jobs/{job}/run", "job_run.html", role="operate", methods=("GET", "POST"), shared=False)
async def run_with_params(view: View) -> Mapping[str, Any] | Response:
    """Run a job now, with params for this run only."""
    job = await view.operations.job(view.param("job"))
    form, refusals = find_form(job.source), PageRefusals()
    fields: Mapping[str, list[str]] = {}
    if view.request.method == "POST":
        fields = await read_form(view.request)
        params = read_params(job.source, form, fields, {}, refusals)
        if not refusals:
            response = await _run(view, job, params, refusals)
            if response is not None:
                return response
    texts = {name: values[0] for name, values in fields.items()}
    return {
        "job": job,
        "options": option_fields(job.source, form, texts),
        "params": texts.get("params", ""),
        "current": json_text(job.params) if job.params else "",
        "refusals": refusals,
    }


async def _run(view: View, job: Job, params: Mapping[str, Any], refusals: PageRefusals) -> Response | None:
    names = {option.param: f"option.{job.source}.{option.param}" for option in find_form(job.source).options}
    try:
        asked = await view.operations.run_job(job.job_id, params or None)
    except FloodmarkError as error:
        refusals.place(error, names, "params")
        return None
    forget_shared(view.request)
    response = RedirectResponse(view.url(f"/executions/{asked.execution_id}"), 303)
    set_flash(view.request, response, "done", "It waits: " + asked.reason if asked.reason else f"{job.name} runs now.")
    return response


@page("/jobs/{job}/watermark", "watermark.html", role="operate", methods=("GET", "POST"), shared=False)
async def set_watermark(view: View) -> Mapping[str, Any] | Response:
    """Set the watermark of a job."""
    job, refusals = await view.operations.job(view.param("job")), PageRefusals()
    watermark = await _watermark(view, job)
    typed = "" if watermark is None or watermark.value is None else json_text(watermark.value)
    if view.request.method == "POST":
        typed = first(await read_form(view.request), "value")
        try:
            value = object_of("the watermark", typed)
            await view.operations.move_watermark(job.job_id, value)
            forget_shared(view.request)
            response = RedirectResponse(view.url(f"/jobs/{job.job_id}"), 303)
            set_flash(view.request, response, "done", "The watermark is set. The next run continues from there.")
            return response
        except FloodmarkError as error:
            refusals.add("value", error)
    return {"job": job, "watermark": watermark, "typed": typed, "refusals": refusals}


PAGES = (switch_schedule, run_with_params, set_watermark, show_job)
