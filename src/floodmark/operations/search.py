"""Search what was collected, and look after the index."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated

from msgspec import Meta

from floodmark.model.exports import ExportRow
from floodmark.model.page import Page
from floodmark.model.search import IndexStatus, SearchHit, SearchOrder, SearchPage

from .declaration import Each, Query, get, post
from .words import Cursor, Limit, Name, Text

_TAG = "Search"
_MOST_STREAMS = 100

Words = Annotated[
    Text | None,
    Query(
        'Words, "phrases", `-without`, `begin*`, `field:value`, `OR` and parentheses; all items if left out.',
        name="q",
        examples=["fire OR smoke", 'harbour "big fire" -drill'],
    ),
]
Moment = Annotated[datetime, Meta(tz=True)]


def _list(stream: str | Sequence[str]) -> list[str]:
    return [stream] if isinstance(stream, str) else list(stream)


InStreams = Annotated[
    str | Sequence[str] | None,
    Query(
        "Only in these streams; can be repeated. A stream, a job that collects it, or a pattern.",
        type=Annotated[list[Text], Meta(max_length=_MOST_STREAMS)] | None,
        send=_list,
        examples=[["telegram:*"]],
    ),
]
WithTag = Annotated[Name | None, Query("Only what jobs with this tag collect.", examples=["news"])]
OfSource = Annotated[Name | None, Query("Only what this kind of source collects.", examples=["feed"])]
Since = Annotated[Moment | None, Query("Only items since this time.")]
Until = Annotated[Moment | None, Query("Only items before this time.")]


class SearchOperations:
    """Search what was collected."""

    @get("/search", tag=_TAG, is_content=True)
    async def search(
        self,
        query: Words = None,
        *,
        stream: InStreams = None,
        tag: WithTag = None,
        source: OfSource = None,
        since: Since = None,
        until: Until = None,
        order: Annotated[SearchOrder, Query("The newest items first, or those that match best.")] = "newest",
        cursor: Cursor = None,
        limit: Limit = 20,
    ) -> SearchPage:
        """Search collected items. Each is found by the words of its newest revision; `index` says what is missing.

        Without words all items are listed, the newest first. The time of an item is when it happened, or else when it
        was collected. With `order=rank` the 3,000 newest matches are compared, and the best 1,000 are shown.
        """

    each_hit = Each(search)

    @get("/items/latest", tag=_TAG, is_content=True)
    async def latest_items(self, *, cursor: Cursor = None, limit: Limit = 20) -> Page[SearchHit]:
        """List the items that were stored last. They are of all streams; new and changed ones, the last one first.

        The list goes back as far as events are kept. A page may have fewer items than asked for, or none, although
        there is a next one. It does not need the search index.
        """

    each_latest_item = Each(latest_items)

    @get("/export/found", tag="Export", is_content=True)
    async def export_found(
        self,
        query: Words = None,
        *,
        stream: InStreams = None,
        tag: WithTag = None,
        source: OfSource = None,
        since: Since = None,
        until: Until = None,
        cursor: Cursor = None,
        limit: Annotated[int, Query("The maximum number. A page with large items has fewer.", ge=1, le=1000)] = 1000,
    ) -> Page[ExportRow]:
        """Read the items that a search finds. They are the newest revisions, sorted by time, the newest first."""

    @get("/search/index", tag=_TAG, operation_id="show_search_index")
    async def search_index(self) -> IndexStatus:
        """Show how complete the search index is. A running scheduler adds new items within two seconds."""

    @post("/search/index/rebuild", tag=_TAG)
    async def rebuild_search_index(self) -> IndexStatus:
        """Build the search index again. The scheduler does it while everything else goes on."""

    @post("/search/index/update", tag=_TAG)
    async def update_search_index(
        self,
        *,
        patience: Annotated[timedelta, Query("How many seconds to work at most.", type=float, ge=0, le=10)] = timedelta(
            seconds=2
        ),
    ) -> IndexStatus:
        """Update the search index without a scheduler. A running scheduler does this all the time."""
