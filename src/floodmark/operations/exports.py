"""Stored items in bulk, for exports: streams, items, and changes by position."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

from msgspec import Meta

from floodmark.model.exports import ChangedKey, ChangePage, ExportRow, ExportStream
from floodmark.model.page import Page

from .declaration import Each, Path, Query, get
from .streams import FARTHEST
from .words import Cursor, Text

_TAG = "Export"
# The most rows of a page. It ends earlier after 8 MB.
MOST_ROWS = 1000

Rows = Annotated[int, Query("The maximum number. A page with large items has fewer.", ge=1, le=MOST_ROWS)]
After = Annotated[int, Query("Only changes after this position.", ge=0, le=FARTHEST)]
Moment = Annotated[datetime, Meta(tz=True)]


class ExportOperations:
    """Read stored items in bulk. A page may be empty although there is a next one."""

    @get("/export/streams", tag=_TAG, answers={404: "A name is that of no stream or job."})
    async def export_streams(
        self,
        *,
        names: Annotated[
            Sequence[Text],
            Query(
                "Streams, jobs, or patterns of streams with `*` and `?`; all streams if left out.",
                name="name",
                type=list[Text],
                send=list,
                examples=[["telegram:*"]],
            ),
        ] = (),
        cursor: Cursor = None,
        limit: Rows = 200,
    ) -> Page[ExportStream]:
        """List streams to export. These are the streams with items that the names select, with their sources."""

    each_export_stream = Each(export_streams)

    @get("/export/items/{stream}", tag=_TAG, is_content=True)
    async def export_items(
        self,
        stream: Annotated[Text, Path("A stream that contains items. Write a `/` in its name as `%2F`.")],
        *,
        since: Annotated[Moment | None, Query("Only items since this time.")] = None,
        before: Annotated[Moment | None, Query("Only items before this time.")] = None,
        revisions: Annotated[bool, Query("Include earlier revisions.")] = False,
        cursor: Cursor = None,
        limit: Rows = MOST_ROWS,
    ) -> Page[ExportRow]:
        """Read the items of a stream. They are sorted by key, deleted ones included.

        With `since` or `before` and without `revisions` they are sorted by time. The time of an item is when it
        happened, or when it was collected if that is not known.
        """

    @get("/export/changes", tag=_TAG, is_content=True)
    async def export_changes(self, *, after: After, limit: Rows = MOST_ROWS) -> ChangePage:
        """Read changes in order. There is one for each event: the revision that it is about.

        Continue after the `position` of the last one; the page is empty when there are no more.
        """

    @get("/export/keys", tag=_TAG)
    async def export_keys(self, *, after: After, cursor: Cursor = None, limit: Rows = MOST_ROWS) -> Page[ChangedKey]:
        """List the keys of changes. First those that have no position yet, then those after the position.

        A change that was committed before the first request is in the list.
        """

    each_export_key = Each(export_keys)
