"""Items of the matches on pages. Table: `page_matches`, which the sink writes with the batches of a crawl."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import select

from floodmark.model.batch import Item, PageMatches
from floodmark.store.database import Database

from .extract import parse_time
from .extraction.rows import Row
from .tables import page_matches

_CELL = page_matches.c
# The field whose time is that of the item.
_MOMENT = "published"


class KnownMatches:
    """Reads the keys of the matches that pages had before."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def find(self, stream: str, urls: Sequence[str]) -> dict[str, list[str]]:
        """Return the keys of the known matches of these pages."""
        query = select(_CELL.url, _CELL["keys"]).where(_CELL.stream == stream, _CELL.url.in_(urls))
        async with self._database.reading() as connection:
            return {row[0]: row[1] for row in await connection.execute(query)}


def item_key(url: str, key: str) -> str:
    """Return the key of the item of a match."""
    return f"{url}#{key}"


def find_stale(known: Mapping[str, Sequence[str]], pages: Mapping[str, Sequence[Row]]) -> list[str]:
    """Return the keys of items whose match is no longer on its page."""
    return [
        item_key(url, key)
        for url, rows in pages.items()
        for present in [{row.key for row in rows}]
        for key in known.get(url, ())
        if key not in present
    ]


def make_items(url: str, rows: Sequence[Row], now: datetime, raw: str | None = None) -> list[Item]:
    """Return the items of the matches on a page. `raw` is the hash of its content, if that is stored."""
    more = {"fetched_at": now.isoformat(), **({} if raw is None else {"raw": raw})}
    return [
        Item(
            item_key(url, row.key),
            {"url": url, **row.fields, **more},
            _moment(row.fields),
            row.fields,
        )
        for row in rows
    ]


def make_tombstones(keys: Sequence[str], before: Mapping[str, Any]) -> list[Item]:
    """Return the tombstones of items; what is stored of them stays."""
    return [Item(key, before[key], None, "gone", deleted=True) for key in keys if key in before]


def page_keys(pages: Mapping[str, Sequence[Row]]) -> list[PageMatches]:
    """Return the keys of the matches of pages, to be stored."""
    return [PageMatches(url, [row.key for row in rows]) for url, rows in pages.items()]


def _moment(fields: Mapping[str, Any]) -> datetime | None:
    value = fields.get(_MOMENT)
    return parse_time(value) if isinstance(value, str) else None
