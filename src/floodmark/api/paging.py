"""Pages by cursor: `{"items": [...], "next": cursor or null}`.

A cursor is the key of the last row of a page, so the next page costs the same wherever it is, and rows that come or
go meanwhile move nothing. What is in it is no business of a client.
"""

import base64
import binascii
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Generic, TypeVar

import msgspec
from fastapi import Query
from pydantic import BaseModel, Field

from floodmark.errors import InvalidInput

MOST = 200

T = TypeVar("T")

Cursor = Annotated[
    str | None,
    Query(description="`next` of the page before; without it, the first page.", max_length=4000),
]
Limit = Annotated[int, Query(ge=1, le=MOST, description="How many at most.")]


class Page(BaseModel, Generic[T]):
    """Part of a list."""

    items: list[T]
    next: str | None = Field(description="The `cursor` of the next page; null when there is none.")


def cursor_of(listing: str, *key: Any) -> str:
    """The cursor behind a row of a listing."""
    return base64.urlsafe_b64encode(msgspec.json.encode([listing, *key])).decode().rstrip("=")


def key_of(listing: str, cursor: str | None, *types: Any) -> tuple[Any, ...] | None:
    """The key in a cursor of this listing, None without a cursor; refuses any other."""
    if cursor is None:
        return None
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        told, *key = msgspec.json.decode(base64.b64decode(padded, altchars=b"-_", validate=True), type=list[Any])
        if told != listing:
            raise ValueError(told)
        found: tuple[Any, ...] = msgspec.convert(key, tuple.__class_getitem__(types))
    except (ValueError, binascii.Error, msgspec.MsgspecError, RecursionError):
        raise InvalidInput(
            f"{cursor[:40]!r} is not a cursor of this list", hint="use `next` of the page before, or leave it out"
        ) from None
    return found


def page(
    rows: Sequence[T], limit: int, listing: str, key: Callable[[T], Sequence[Any]], shape: Callable[[T], Any]
) -> dict[str, Any]:
    """The first `limit` of the rows as a page. One row more than that says that there is a next one."""
    shown = rows[:limit]
    after = cursor_of(listing, *key(shown[-1])) if len(rows) > limit else None
    return {"items": [shape(row) for row in shown], "next": after}
