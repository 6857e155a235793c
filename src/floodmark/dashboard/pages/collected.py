"""What was collected: the newest items of all streams or of one, searches and filters."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from starlette.responses import Response

from floodmark.dashboard.forms import Refused, show_again
from floodmark.dashboard.page import page
from floodmark.dashboard.selection import PERIODS, Selection
from floodmark.dashboard.view import View
from floodmark.errors import FloodmarkError, InvalidInput, NotFound, Unavailable
from floodmark.model.job import Job
from floodmark.model.page import Page
from floodmark.model.search import IndexStatus, SearchHit
from floodmark.operations.jobs import JobFilter
from floodmark.rules.stream_patterns import is_pattern
from floodmark.rules.streams import split_stream
from floodmark.search.finder import hit_of
from floodmark.sources.form import find_forms

_ROWS, _JOBS = 30, 5
# An index that is less behind is not worth a word.
_LEAST_LAG = 2.0
_COMPLETE = ("ready", "behind")


class Listing(Struct, frozen=True):
    """A page of items, and how complete the search index is, if it was asked."""

    page: Page[SearchHit] = Page([])
    index: IndexStatus | None = None


@page("/collected", "collected.html", live=("item",))
async def list_collected(view: View) -> Mapping[str, Any] | Response:
    """List the items that were stored last, or those that a search finds."""
    selection = Selection.of(view)
    values = _common(selection)
    try:
        return {**values, "listing": await find_items(view, selection), "refused": None}
    except (InvalidInput, NotFound, Unavailable) as error:
        return show_again(view, "collected.html", {**values, "listing": Listing()}, Refused.of(error))


@page("/collected/{stream}", "stream.html", live=("item",))
async def show_stream(view: View) -> Mapping[str, Any] | Response:
    """Show the items of one stream, with its calendar and its jobs."""
    name = view.param("stream")
    if is_pattern(name):
        raise NotFound(f"there is no stream {name[:60]!r}", hint="open Collected, and use the pattern as a filter")
    selection = Selection.of(view, name)
    values = {**_common(selection), "stream": name, "days": await view.operations.days(name)}
    try:
        listing, refused = await _stream_items(view, selection), None
    except (InvalidInput, Unavailable) as error:
        listing, refused = Listing(), Refused.of(error)
    values |= {"listing": listing, "jobs": await _jobs_of(view, name, listing.page)}
    return {**values, "refused": None} if refused is None else show_again(view, "stream.html", values, refused)


def _common(selection: Selection) -> dict[str, Any]:
    return {
        "selection": selection,
        "periods": PERIODS,
        "sources": sorted({*find_forms(), *([selection.source] if selection.source else [])}),
        "index_warning": index_warning,
        "split_stream": split_stream,
    }


async def find_items(view: View, selection: Selection) -> Listing:
    """Return items: by words and filters, or without any those that were stored last."""
    cursor = view.query("cursor")
    if selection.is_everything:
        return Listing(await view.operations.latest_items(cursor=cursor, limit=_ROWS))
    found = await view.operations.search(
        **selection.filters(view.now), order=selection.wanted_order, cursor=cursor, limit=_ROWS
    )
    return Listing(found, found.index)


async def _stream_items(view: View, selection: Selection) -> Listing:
    """Return the items of one stream; without a complete index they are read from the store."""
    status = await view.operations.search_index()
    is_plain = selection.q is None and selection.last is None
    if status.condition in _COMPLETE or not is_plain:
        return await find_items(view, selection)
    assert selection.stream is not None
    since, _ = selection.period(view.now)
    rows = await view.operations.newest_items(selection.stream, since=since, cursor=view.query("cursor"), limit=_ROWS)
    return Listing(Page([hit_of(row) for row in rows.items], rows.next))


async def _jobs_of(view: View, stream: str, shown: Page[SearchHit]) -> list[Job]:
    """Return jobs that collect a stream: by its name, and the one that has collected the first item."""
    source, target = split_stream(stream)
    jobs: list[Job] = []
    if source and target and len(source) <= 200 and len(target) <= 2000:
        jobs = (await view.operations.jobs(JobFilter(source=source, target=target), limit=_JOBS)).items
    if not jobs and shown.items:
        jobs = await _collector_of(view, shown.items[0])
    return jobs


async def _collector_of(view: View, hit: SearchHit) -> list[Job]:
    try:
        item = (await view.operations.item(hit.stream, hit.key, limit=0)).newest
        if item.execution_id is None:
            return []
        return [await view.operations.job((await view.operations.execution(item.execution_id)).job_id)]
    except FloodmarkError:
        # The execution or the job was deleted meanwhile.
        return []


def index_warning(index: IndexStatus | None) -> str | None:
    """Return what a search may have missed; None if nothing."""
    if index is None or index.condition == "ready" or index.most_items == 0:
        return None
    if index.condition == "building":
        return f"The search index is being built: {index.items:,} of up to {index.most_items:,} items can be found."
    if index.condition == "missing":
        return "There is no search index yet, so nothing is found. A running scheduler builds it."
    if index.lag_seconds < _LEAST_LAG:
        return None
    helped = "" if index.is_followed else " No scheduler is running, which would add them."
    return f"{index.pending:,} newer items cannot be found yet; the index is {index.lag_seconds:.0f} s behind.{helped}"


PAGES = (list_collected, show_stream)
