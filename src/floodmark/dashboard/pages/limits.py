"""Rate limits and circuit breakers."""

from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from floodmark.dashboard.actions import first, read_form
from floodmark.dashboard.forms import Refused, go_to, show_again
from floodmark.dashboard.page import page
from floodmark.dashboard.view import View
from floodmark.errors import FloodmarkError, InvalidInput
from floodmark.model.durations import parse_every

_FIELDS = ("key", "time", "reason")
_MONTH = 30 * 86_400


@page("/limits", "limits.html", live=("limit", "breaker", "change"), methods=("GET", "POST"))
async def show_limits(view: View) -> Mapping[str, Any] | Response:
    """Show limits and breakers, and set a limit."""
    if view.request.method == "GET":
        return await _values(view, {})
    typed = await read_form(view.request)
    given = {name: first(typed, name).strip() for name in _FIELDS}
    try:
        limit = await view.operations.set_limit(given["key"], _seconds(given["time"]), _required(given, "reason"))
    except FloodmarkError as error:
        return show_again(view, "limits.html", await _values(view, given), Refused.of(error))
    return go_to(view, view.url("/limits"), f"Everything under {limit.key} waits.")


async def _values(view: View, given: Mapping[str, str]) -> dict[str, Any]:
    return {
        "limits": await view.operations.limits(with_past=bool(view.query("past")), limit=500),
        "breakers": await view.operations.breakers(limit=500),
        "given": {**dict.fromkeys(_FIELDS, ""), **given},
        "refused": None,
    }


def _seconds(text: str) -> float:
    seconds = parse_every(text).total_seconds()
    if seconds > _MONTH:
        raise InvalidInput(f"{text[:40]!r} is not a time to wait", hint="use 30s, 10m or 2h, at most 30 days")
    return seconds


def _required(given: Mapping[str, str], name: str) -> str:
    if not given["key"]:
        raise InvalidInput("the key is missing", hint="use the limit_key of jobs, such as telegram:account:main")
    if not given[name]:
        raise InvalidInput(f"the {name} is missing", hint="it is shown in answers to why a job waits")
    return given[name]


PAGES = (show_limits,)
