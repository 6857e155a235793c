"""Files of posts: which are wanted, stored or failed; retry and prune them."""

from collections.abc import Mapping
from typing import Any, get_args

from starlette.responses import Response

from floodmark.dashboard.actions import show_result
from floodmark.dashboard.media_content import send_file
from floodmark.dashboard.page import page
from floodmark.dashboard.rendering import format_count
from floodmark.dashboard.view import View
from floodmark.errors import InvalidInput
from floodmark.model.media import MediaChanged, MediaState

_ROWS = 50
_BADGES = {"wanted": "info", "stored": "ok", "skipped": "off", "failed": "bad", "gone": "warn", "pruned": "off"}
_NAMES = {"wanted": "waiting"}
_AGES = [(str(days * 86_400), f"{days} days") for days in (30, 90, 180, 365)]


@page("/media", "media.html", live=("item",), every=10.0)
async def list_media(view: View) -> Mapping[str, Any]:
    """List files."""
    state, stream = view.query("state"), view.query("stream")
    if state is not None and state not in get_args(MediaState):
        raise InvalidInput(f"{state[:40]!r} is not a state", hint=f"use one of: {', '.join(get_args(MediaState))}")
    chosen: Any = state
    found = await view.operations.media(state=chosen, stream=stream, cursor=view.query("cursor"), limit=_ROWS)
    return {
        "files": found,
        "states": [("", "all"), *((name, _NAMES.get(name, name)) for name in get_args(MediaState))],
        "badges": _BADGES,
        "names": _NAMES,
        "ages": _AGES,
        "has_folder": view.resources.settings.artifacts_dir is not None,
    }


@page("/media/file", "media.html", shared=False)
async def send_media(view: View) -> Response:
    """Send the content of a file."""
    return await send_file(view, view.query("id") or "")


@show_result.register
def _(done: MediaChanged) -> str:
    return format_count(done.files)


PAGES = (list_media, send_media)
