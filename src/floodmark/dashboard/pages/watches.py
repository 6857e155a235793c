"""Watches: what people are notified of, with a form that shows what a watch would have matched."""

import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote
from zoneinfo import available_timezones

from starlette.responses import Response

from floodmark.dashboard.actions import first, read_form, show_result
from floodmark.dashboard.forms import go_to
from floodmark.dashboard.page import html, page
from floodmark.dashboard.regions import read_rarely
from floodmark.dashboard.view import View
from floodmark.dashboard.watch_form import WatchForm
from floodmark.errors import FloodmarkError
from floodmark.model.notification_channels import ChannelTest
from floodmark.model.watches import KINDS, WatchFields, WatchKind, WatchRow, WatchTrial
from floodmark.rules.watch_words import KIND_WORDS, describe_places, describe_search

_ROWS, _HISTORY, _TRIED, _MOST_TRIED = 50, 25, 10, 200
# In seconds. One request to try a watch takes up to 1.5 s.
_LONGEST_TRIAL = 2.0
# Matches and messages are announced by no live event.
_EVERY = 1.2
_WORDS = {"describe_search": describe_search, "describe_places": describe_places, "kind_words": KIND_WORDS}
# Fields that a link can fill in.
_LINKED = ("name", "kind", "query", "pattern", "tags", "sources")


@page("/watches", "watches.html", live=("change",), every=_EVERY)
async def list_watches(view: View) -> Mapping[str, Any]:
    """List watches and the channels that they notify."""
    wanted = view.query("kind")
    kind: WatchKind | None = next((one for one in KINDS if one == wanted), None)
    watches = await view.operations.watches(kind=kind, cursor=view.query("cursor"), limit=_ROWS)
    # Finding the installed channels takes longer than everything else here.
    channels = await read_rarely(view, "channels", view.operations.notification_channels)
    return {"watches": watches, "channels": channels, **_WORDS}


@page("/watches/new", "watch_form.html", role="admin", shared=False, methods=("GET", "POST"))
async def add_watch(view: View) -> Mapping[str, Any] | Response:
    """Add a watch; a link can fill in `query` and `stream`, as in "watch for this"."""
    if view.request.method == "GET":
        texts = {name: view.query(name) or "" for name in _LINKED}
        form = WatchForm({**texts, "streams": view.query("stream") or "", "timezone": str(view.zone)}, ())
        return await _form_values(view, form)
    given = await read_form(view.request)
    form = WatchForm.typed(given)
    if _is_trial(view, given):
        return await _show_trial(view, form, given)
    fields = form.read()
    if fields is not None:
        try:
            row = await view.operations.add_watch(fields)
        except FloodmarkError as error:
            form.refusals.add("", error)
        else:
            return go_to(view, _path(view, row), f"Added the watch {row.name}. It looks at items from now on.")
    return html(view, "watch_form.html", await _form_values(view, form), status=422)


@page("/watches/{watch}/edit", "watch_form.html", role="admin", shared=False, methods=("GET", "POST"))
async def edit_watch(view: View) -> Mapping[str, Any] | Response:
    """Change a watch."""
    row = await view.operations.watch(view.param("watch"))
    if view.request.method == "GET":
        return await _form_values(view, WatchForm.of(row), row)
    given = await read_form(view.request)
    form = WatchForm.typed(given)
    if _is_trial(view, given):
        return await _show_trial(view, form, given, row)
    fields = form.read()
    if fields is not None:
        typed = first(given, "version")
        version = int(typed) if typed.isascii() and typed.isdigit() and len(typed) < 10 else row.version
        try:
            changed = await view.operations.replace_watch(row.watch_id, fields, version=version)
        except FloodmarkError as error:
            form.refusals.add("", error)
        else:
            said = "Nothing was changed." if changed.version == row.version else f"Changed the watch {changed.name}."
            return go_to(view, _path(view, changed), said)
    return html(view, "watch_form.html", await _form_values(view, form, row), status=422)


@page("/watches/{watch}", "watch.html", live=("change",), every=_EVERY)
async def show_watch(view: View) -> Mapping[str, Any]:
    """Show a watch: its channels, its matches and its messages."""
    row = await view.operations.watch(view.param("watch"))
    matches = await view.operations.watch_matches(row.watch_id, cursor=view.query("cursor"), limit=_HISTORY)
    sent = await view.operations.watch_notifications(row.watch_id, cursor=view.query("sent"), limit=_HISTORY)
    return {"row": row, "matches": matches, "sent": sent, **_WORDS}


def _is_trial(view: View, given: Mapping[str, list[str]]) -> bool:
    return view.query("part") == "trial" or "try" in given


async def _show_trial(
    view: View, form: WatchForm, given: Mapping[str, list[str]], row: WatchRow | None = None
) -> Response:
    """Return what the watch would have matched: the part that the script shows, or without it the whole page."""
    after = first(given, "try")
    trial = await _try(view, form, int(after) if after.isascii() and after.isdigit() and len(after) < 19 else None)
    if view.query("part") == "trial":
        return html(view, "watch_trial.html", {"trial": trial, "form": form})
    return html(view, "watch_form.html", {**await _form_values(view, form, row), "trial": trial})


async def _try(view: View, form: WatchForm, after: int | None) -> WatchTrial | None:
    """Return what the watch would have matched. It looks on until there is enough to see, or for some seconds."""
    fields = form.read()
    if fields is None:
        return None
    began, trial = time.monotonic(), None
    try:
        while True:
            trial = _join(trial, await view.operations.try_watch(fields, after=after, limit=_MOST_TRIED))
            after = trial.next
            if after is None or len(trial.matches) >= _TRIED or time.monotonic() - began > _LONGEST_TRIAL:
                return trial
    except FloodmarkError as error:
        form.refusals.add("", error)
        return None


def _join(before: WatchTrial | None, trial: WatchTrial) -> WatchTrial:
    """Return two parts of a trial as one."""
    if before is None:
        return trial
    return WatchTrial(
        matches=before.matches + trial.matches,
        suppressed=before.suppressed + trial.suppressed,
        examined=before.examined + trial.examined,
        since=before.since or trial.since,
        next=trial.next,
    )


async def _form_values(view: View, form: WatchForm, row: WatchRow | None = None) -> dict[str, Any]:
    channels = await read_rarely(view, "channels", view.operations.notification_channels)
    known = {channel.name: channel for channel in channels if channel.is_configured}
    return {
        "row": row,
        "form": form,
        "refusals": form.refusals,
        "channels": known,
        # A watch can name channels that this process does not have.
        "others": [name for name in form.notify if name not in known],
        "kinds": [(kind, KIND_WORDS[kind].capitalize()) for kind in KINDS],
        "zones": sorted(available_timezones()),
        "trial": None,
    }


def _path(view: View, row: WatchFields) -> str:
    return view.url(f"/watches/{quote(row.name, safe='')}")


@show_result.register
def _(result: ChannelTest) -> str:
    return f"{result.place} accepted it after {result.seconds:.2f} s"


PAGES = (list_watches, add_watch, edit_watch, show_watch)
