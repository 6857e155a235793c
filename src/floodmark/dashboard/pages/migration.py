"""Migration from another scheduler: the shadow and its comparison, moving jobs, importing a crontab, syncing schedules.

Each change is previewed first: the same form with `do` carries it out.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from msgspec import Struct
from starlette.responses import Response

from floodmark.dashboard.actions import first, read_form
from floodmark.dashboard.forms import Refused, go_to, show_again
from floodmark.dashboard.page import html, page
from floodmark.dashboard.view import View
from floodmark.errors import FloodmarkError, InvalidInput
from floodmark.importers.build_jobs import jobs_of_crontab
from floodmark.importers.crontab import LineError, read_crontab
from floodmark.model.handover import Imports, NewJob, Which
from floodmark.triggers.parsing import words_of

_TYPED = ("which", "jobs", "tag", "domain", "direction", "crontab", "target", "tz", "prefix", "take_over", "force")
_MOST_SHOWN = 200
_HOURS = (1, 24, 72, 168)


class PlannedJob(Struct, frozen=True):
    """A job that an import would create."""

    name: str
    when: str
    work: str
    is_there: bool


class ImportPlan(Struct, frozen=True):
    """What an import would do, and the lines that it cannot use."""

    jobs: tuple[PlannedJob, ...]
    errors: tuple[LineError, ...]
    new: int


@page("/migration", "migration.html", live=("change",), shared=False, methods=("GET", "POST"))
async def show_migration(view: View) -> Mapping[str, Any] | Response:
    """Show the shadow, the sync and the forms; preview or carry out what a form asks for."""
    if view.request.method != "POST":
        return await _values(view)
    fields = await read_form(view.request)
    typed = {name: first(fields, name) for name in _TYPED}
    form, is_real = first(fields, "form"), bool(first(fields, "do"))
    work = {"move": _move, "import": _import, "sync": _sync}.get(form)
    if work is None:
        raise InvalidInput(f"there is no form {form[:40]!r}", hint="load the page again")
    try:
        found = await work(view, typed, is_real)
    except FloodmarkError as error:
        values = {**await _values(view), "typed": typed, "refused_form": form}
        return show_again(view, "migration.html", values, Refused.of(error))
    if isinstance(found, Response):
        return found
    return html(view, "migration.html", {**await _values(view), "typed": typed, **found})


async def _values(view: View) -> dict[str, Any]:
    shadow, sync = await view.operations.shadow(), await view.operations.sync_status()
    report = await _report(view) if shadow.on and view.query("hours") else None
    empty = {"moved": None, "plan": None, "synced": None, "refused": None, "refused_form": ""}
    typed = {**dict.fromkeys(_TYPED, ""), "prefix": "cron"}
    most = {"most": _MOST_SHOWN, "hours": _HOURS}
    return {"shadow": shadow, "sync": sync, "report": report, "typed": typed, **empty, **most}


async def _report(view: View) -> Any:
    asked = view.query("hours") or ""
    hours = float(asked) if asked.isascii() and asked.isdecimal() and 0 < int(asked) <= max(_HOURS) else 24.0
    tolerance = view.query("tolerance")
    within = timedelta(seconds=int(tolerance)) if tolerance and tolerance.isdecimal() and len(tolerance) < 6 else None
    return await view.operations.shadow_report(hours=hours, tolerance=within)


async def _move(view: View, typed: Mapping[str, str], is_real: bool) -> Mapping[str, Any] | Response:
    which = Which(
        jobs=_words(typed["jobs"]) if typed["which"] == "jobs" else (),
        tag=typed["tag"].strip() or None if typed["which"] == "tag" else None,
        domain=typed["domain"].strip() or None if typed["which"] == "domain" else None,
        everything=typed["which"] == "all",
    )
    is_back = typed["direction"] == "back"
    moved = await view.operations.migrate_jobs(which, back=is_back, dry_run=not is_real)
    if not is_real:
        return {"moved": moved}
    goal = "back to the old scheduler" if is_back else "to Floodmark"
    return go_to(view, view.url("/migration"), f"Moved {len(moved.jobs)} jobs {goal}.")


async def _import(view: View, typed: Mapping[str, str], is_real: bool) -> Mapping[str, Any] | Response:
    if not typed["target"].strip():
        raise InvalidInput("the function is missing", hint="name your function that runs a command, as MODULE:NAME")
    found = read_crontab(typed["crontab"], timezone=typed["tz"].strip() or "UTC")
    if not found.entries and not found.errors:
        raise InvalidInput("the crontab is empty", hint="paste the output of: crontab -l")
    jobs = jobs_of_crontab(found.entries, target=typed["target"].strip(), prefix=typed["prefix"].strip() or "cron")
    is_real = is_real and not found.errors
    imports = await view.operations.import_jobs(
        jobs, take_over=bool(typed["take_over"]), dry_run=not is_real, usual=True
    )
    if not is_real:
        return {"plan": plan_of(jobs, imports, found.errors)}
    whose = "" if typed["take_over"] else " They still belong to the old scheduler."
    return go_to(view, view.url("/migration"), f"Imported {len(imports.made)} jobs.{whose}")


def plan_of(jobs: Sequence[NewJob], imports: Imports, errors: Sequence[LineError]) -> ImportPlan:
    """Return what an import would do."""
    there = set(imports.already)
    rows = [
        PlannedJob(
            str(job.spec.name),
            words_of(job.spec.when),
            str(job.spec.params.get("command", job.spec.target)),
            job.spec.name in there,
        )
        for job in jobs
    ]
    return ImportPlan(tuple(rows), tuple(errors), len(imports.made))


async def _sync(view: View, typed: Mapping[str, str], is_real: bool) -> Mapping[str, Any] | Response:
    report = await view.operations.sync(dry_run=not is_real, force=bool(typed["force"]))
    if not is_real:
        return {"synced": report}
    counts = f"{report.created} created, {report.updated} updated, {report.disabled} disabled"
    return go_to(view, view.url("/migration"), f"Synced: {counts}, {len(report.errors)} errors.")


def _words(text: str) -> tuple[str, ...]:
    return tuple(word for word in text.replace(",", " ").split() if word)


PAGES = (show_migration,)
