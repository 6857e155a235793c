"""Budgets, and how late items are stored."""

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from urllib.parse import quote

from starlette.responses import Response

from floodmark.dashboard.actions import first, read_form
from floodmark.dashboard.forms import Refused, go_to, show_again
from floodmark.dashboard.page import page
from floodmark.dashboard.view import View
from floodmark.errors import Conflict, FloodmarkError, InvalidInput, NotFound
from floodmark.model.budget import DEFAULT_FAIRNESS, BudgetRow
from floodmark.model.durations import parse_every

_DECIMAL = re.compile(r"\d{1,9}\.\d{1,6}", re.ASCII)
_FIELDS = ("name", "requests", "period", "max_delay", "fairness")
_NEW = {"name": "", "requests": "", "period": "minute", "max_delay": "", "fairness": f"{DEFAULT_FAIRNESS:g}"}


@page("/budgets", "budgets.html", live=("change", "execution"))
async def list_budgets(view: View) -> Mapping[str, Any]:
    """List budgets with their use and what they bring."""
    budgets = await view.operations.budgets(cursor=view.query("cursor"), limit=50)
    report = await view.operations.freshness(measured=True, limit=1)
    return {"budgets": budgets, "fresh": {row.name: row for row in report.budgets}, "measured_at": report.measured_at}


@page("/budgets/new", "budget.html", role="admin", methods=("GET", "POST"))
async def add_budget(view: View) -> Mapping[str, Any] | Response:
    """Create a budget."""
    values = {"row": None, "fresh": None, "given": _NEW, "refused": None}
    if view.request.method == "GET":
        return values
    given = _read_given(await read_form(view.request))
    try:
        await _refuse_existing(view, given["name"])
        row = await _set(view, given["name"], given)
    except FloodmarkError as error:
        return show_again(view, "budget.html", {**values, "given": given}, Refused.of(error))
    return go_to(view, view.url("/budgets"), f"Created the budget {row.name}.")


@page("/budgets/{name}", "budget.html", live=("change",), methods=("GET", "POST"))
async def edit_budget(view: View) -> Mapping[str, Any] | Response:
    """Show a budget, and change it."""
    row = await view.operations.budget(view.param("name"))
    report = await view.operations.freshness(budget=row.name, measured=True, limit=1)
    values = {"row": row, "fresh": next(iter(report.budgets), None), "given": _typed(row), "refused": None}
    if view.request.method == "GET":
        return values
    given = {**_read_given(await read_form(view.request)), "name": row.name}
    try:
        await _set(view, row.name, given)
    except FloodmarkError as error:
        return show_again(view, "budget.html", {**values, "given": given}, Refused.of(error))
    return go_to(view, view.url(f"/budgets/{quote(row.name, safe='')}"), f"Changed the budget {row.name}.")


@page("/freshness", "freshness.html", live=("execution",))
async def show_freshness(view: View) -> Mapping[str, Any]:
    """Show how late items are stored, as the leader last measured it."""
    budget = view.query("budget")
    report = await view.operations.freshness(budget=budget, measured=True, cursor=view.query("cursor"), limit=50)
    shown = [row for row in report.budgets if row.sources]
    names = [row.name for row in (await view.operations.freshness(measured=True, limit=1)).budgets if row.sources]
    return {"report": report, "budgets": shown, "names": names, "budget": budget, "page": report}


def _read_given(typed: Mapping[str, list[str]]) -> dict[str, str]:
    return {name: first(typed, name).strip() for name in _FIELDS}


def _typed(row: BudgetRow) -> dict[str, str]:
    """Return the values of a budget as people type them."""
    return {
        "name": row.name,
        "requests": f"{row.requests:.10g}",
        "period": row.period,
        "max_delay": "" if row.max_delay_seconds is None else _format_delay(row.max_delay_seconds),
        "fairness": f"{row.fairness:g}",
    }


async def _set(view: View, name: str, given: Mapping[str, str]) -> BudgetRow:
    return await view.operations.set_budget(
        name,
        _number(given["requests"], "requests"),
        given["period"],  # type: ignore[arg-type] # checked by the operation
        max_delay=_delay(given["max_delay"]),
        fairness=_number(given["fairness"] or f"{DEFAULT_FAIRNESS:g}", "fairness"),
    )


async def _refuse_existing(view: View, name: str) -> None:
    if not name:
        raise InvalidInput("the name is missing", hint="use letters, digits, and any of - _ .")
    try:
        await view.operations.budget(name)
    except NotFound:
        return
    raise Conflict(f"there is already a budget {name[:80]!r}", hint="open it in the list of budgets to change it")


def _number(text: str, name: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidInput(f"{name}: {text[:40]!r} is not a number", hint="use a number such as 30 or 0.5") from None


def _delay(text: str) -> timedelta | None:
    if not text:
        return None
    return timedelta(seconds=float(text)) if _DECIMAL.fullmatch(text) else parse_every(text)


def _format_delay(seconds: float) -> str:
    """Return a time in the form in which it can be typed again."""
    for unit, length in (("h", 3600), ("m", 60)):
        if seconds % length == 0:
            return f"{seconds / length:.10g}{unit}"
    return f"{seconds:.10g}"


PAGES = (list_budgets, add_budget, edit_budget, show_freshness)
