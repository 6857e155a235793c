"""Sinks, and everything else that reads the events: exports, programs and the search index."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from urllib.parse import quote

from starlette.responses import Response

from floodmark.dashboard.actions import first, read_form, show_result
from floodmark.dashboard.forms import Refused, go_to, show_again
from floodmark.dashboard.page import html, page
from floodmark.dashboard.regions import read_rarely
from floodmark.dashboard.view import View
from floodmark.errors import FloodmarkError, InvalidInput
from floodmark.model.moments import begin_of
from floodmark.model.sinks import SinkReplay, SinkTest

_LETTERS, _READERS = 50, 200
# Positions are announced by no live event.
_EVERY = 1.2
_TYPED = ("position", "since")


@page("/sinks", "sinks.html", live=("change",), every=_EVERY)
async def list_sinks(view: View) -> Mapping[str, Any]:
    """List sinks, readers and exports with their positions, and the search index."""
    readers = await view.operations.consumers()
    return {
        "sinks": await view.operations.sinks(),
        "readers": readers[:_READERS],
        "left_out": max(0, len(readers) - _READERS),
        "index": await read_rarely(view, "search index", view.operations.search_index),
    }


@page("/sinks/{name}", "sink.html", live=("change",), every=_EVERY, methods=("GET", "POST"))
async def show_sink(view: View) -> Mapping[str, Any] | Response:
    """Show a sink with its dead letters, and replay it."""
    values = await _values(view)
    if view.request.method == "GET":
        return values
    given = await read_form(view.request)
    typed = {name: first(given, name).strip() for name in _TYPED}
    is_sure = bool(first(given, "sure"))
    try:
        replay = await _replay(view, typed, is_sure=is_sure)
    except FloodmarkError as error:
        return show_again(view, "sink.html", {**values, "typed": typed}, Refused.of(error))
    if is_sure:
        said = f"{replay.events:,} events are sent again, from position {replay.after + 1:,}."
        return go_to(view, view.url(f"/sinks/{quote(replay.sink, safe='')}"), said)
    return html(view, "sink.html", {**values, "typed": typed, "replay": replay})


async def _values(view: View) -> dict[str, Any]:
    sink = await view.operations.sink(view.param("name"))
    return {
        "sink": sink,
        "letters": await view.operations.sink_letters(sink.name, cursor=view.query("cursor"), limit=_LETTERS),
        "typed": dict.fromkeys(_TYPED, ""),
        "replay": None,
        "refused": None,
    }


async def _replay(view: View, typed: Mapping[str, str], *, is_sure: bool) -> SinkReplay:
    """Replay a sink, or return what would be sent again."""
    position = _position(typed["position"]) if typed["position"] else None
    since: datetime | None = begin_of(typed["since"], view.now) if typed["since"] else None
    if (position is None) == (since is None):
        raise InvalidInput("name either a position or a time", hint="fill in one of the two fields")
    return await view.operations.replay_sink(view.param("name"), position=position, since=since, dry_run=not is_sure)


def _position(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise InvalidInput(f"{text[:40]!r} is not a position", hint="use a number such as 4812")
    return int(text)


@show_result.register
def _(result: SinkTest) -> str:
    return f"{result.place} accepted it after {result.seconds:.2f} s"


PAGES = (list_sinks, show_sink)
