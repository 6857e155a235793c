"""Search results, and the state of the search index."""

from datetime import datetime
from typing import Annotated, Literal

from msgspec import Meta, Struct

from .page import Page

SearchOrder = Literal["newest", "rank"]
IndexCondition = Literal["ready", "behind", "building", "missing", "off"]


class SnippetPart(Struct, frozen=True):
    """A part of a text. The texts of all parts together are plain text: escape them as usual."""

    text: str
    is_match: Annotated[bool, Meta(description="Whether the query matches here.")] = False


class IndexStatus(Struct, frozen=True, kw_only=True):
    """How far the search index is built."""

    condition: Annotated[
        IndexCondition,
        Meta(
            description="`ready`: complete; `behind`: newer items are missing; `building`: older items are missing;"
            " `missing`: there is none yet; `off`: SEARCH_ENABLED is false."
        ),
    ]
    items: Annotated[int, Meta(description="Items in the index.")]
    most_items: Annotated[int, Meta(description="An upper bound of the items there are.")]
    pending: Annotated[int, Meta(description="New, changed and deleted items to be indexed; ends at 200,000.")]
    lag_seconds: Annotated[float, Meta(description="The age of the oldest of them; 0 if there are none.")]
    is_followed: Annotated[bool, Meta(description="Whether a scheduler is running, which keeps it up to date.")]
    updated_at: Annotated[datetime | None, Meta(description="When the index last changed.")] = None


class SearchHit(Struct, frozen=True, kw_only=True):
    """An item that matches a search."""

    stream: str
    key: str
    revision: int
    occurred_at: datetime | None
    collected_at: datetime
    deleted: Annotated[bool, Meta(description="Deleted at its source; its stored content stays.")]
    url: Annotated[str | None, Meta(description="The URL of the item, if it has one.")]
    channel: Annotated[str | None, Meta(description="The name of its channel or feed, if the item says it.")] = None
    title: Annotated[tuple[SnippetPart, ...], Meta(description="The title, with matches; empty if it has none.")]
    snippet: Annotated[tuple[SnippetPart, ...], Meta(description="A part of its text, with matches.")]


class SearchPage(Page[SearchHit], frozen=True, kw_only=True):
    """Items that match, and how complete the index is."""

    index: IndexStatus
