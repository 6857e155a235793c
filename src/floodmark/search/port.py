"""The search index: finds items by their words.

It holds the newest revision of every item. One process at a time fills it and follows the events (`indexer.py`); any
process may search. Everything in it can be made again from the items.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple, Protocol

from msgspec import Struct

from floodmark.errors import Unavailable

from .documents import SearchDocument
from .query import Node
from .state import IndexState

# A ranked search compares this many of the newest matches, and shows at most the best of them.
MOST_RANKED, MOST_SHOWN_RANKED = 3000, 1000
# With more streams than this, each hit is checked for its stream.
MOST_STREAM_TOKENS = 256
# Without words, the newest documents are first compared here: many streams have an item among them, and their names
# would take longer to send than all the rest.
GLANCED_AT = 2000


class IndexDamaged(Unavailable):
    """The index cannot be read, and must be built again."""


class SearchFilter(Struct, frozen=True, kw_only=True):
    """Limits a search to streams (None: all) and to a time: from `since` until before `until`, to the second."""

    streams: frozenset[str] | None = None
    since: datetime | None = None
    until: datetime | None = None


EVERYTHING = SearchFilter()


class IndexHit(NamedTuple):
    """A document that matches. Greater ids are newer."""

    id: int
    stream: str
    key: str
    revision: int


class SearchIndex(Protocol):
    """An index on one of the databases."""

    async def read_state(self) -> IndexState | None:
        """Return how far it is built, None if there is none."""
        ...

    async def begin(self, version: str, position: int) -> IndexState:
        """Make it empty, to be filled with all items and then with the events after `position`."""
        ...

    async def add(self, documents: Sequence[SearchDocument], before: IndexState, after: IndexState) -> bool:
        """Add or replace documents and move the state from `before` to `after`, in one transaction.

        A document is left out if the index has a later revision, or the same one. Return False and change nothing if
        the state is not `before`: another process is building the index.
        """
        ...

    async def find(
        self, query: Node | None, within: SearchFilter = EVERYTHING, *, before: int | None = None, limit: int = 50
    ) -> list[IndexHit]:
        """Return the newest matches, newest first; with `before`, only those with a lesser id. None matches all."""
        ...

    async def rank(self, query: Node, within: SearchFilter = EVERYTHING, *, limit: int = 50) -> list[IndexHit]:
        """Return the best of the `MOST_RANKED` newest matches, best first."""
        ...

    async def list_streams(self, pattern: str = "*") -> list[str]:
        """Return the streams that it knows, in no order; with `*` for any text, about those that match."""
        ...

    async def list_fields(self) -> list[str]:
        """Return the names of fields that its documents have."""
        ...
