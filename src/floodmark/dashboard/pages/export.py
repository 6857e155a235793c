"""Downloads of the items that a page shows."""

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from starlette.responses import Response

from floodmark.dashboard.downloads import download, request_of
from floodmark.dashboard.page import page
from floodmark.dashboard.selection import Selection
from floodmark.dashboard.view import View
from floodmark.rules.stream_patterns import is_pattern


@page("/export", "export.html")
async def choose_format(view: View) -> Mapping[str, Any]:
    """Show what would be exported, and the formats."""
    selection = Selection.of(view)
    selection.period(view.now)
    is_one = selection.source is not None or (selection.stream is not None and not is_pattern(selection.stream))
    return {
        "selection": selection,
        "is_one_table": is_one,
        "has_parquet": find_spec("pyarrow") is not None,
        "command": command_of(selection),
    }


@page("/export/file", "export.html", shared=False)
async def send_file(view: View) -> Response:
    """Send the items as a file."""
    file_format = view.query("format") or ""
    request = request_of(Selection.of(view), file_format, view.now, revisions=view.query("revisions") is not None)
    return await download(view, request, f"floodmark-{view.now:%Y-%m-%d-%H%M}.{file_format}")


def command_of(selection: Selection) -> str:
    """Return the command that exports the same."""
    parts = ["floodmark export items"]
    if selection.stream is not None:
        parts.append(_quoted(selection.stream))
    options = {
        "--query": selection.q,
        "--tag": selection.tag,
        "--source": selection.source,
        "--since": selection.first or selection.since,
        "--until": selection.last,
    }
    parts += [f"{name} {_quoted(value)}" for name, value in options.items() if value is not None]
    return " ".join([*parts, "--deleted --out items.jsonl"])


def _quoted(text: str) -> str:
    shown = text[:200].replace("'", "'\\''")
    return f"'{shown}'"


PAGES = (choose_format, send_file)
