"""Pages of a list. A cursor holds the key of the last row of a page, so every page costs the same."""

import base64
import binascii
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from floodmark.errors import InvalidInput

T = TypeVar("T")


class Page(msgspec.Struct, Generic[T], frozen=True):
    """Part of a list; `next` is the `cursor` of the next page, None if there is none."""

    items: list[T]
    next: str | None = None


def cursor_of(listing: str, *key: Any) -> str | None:
    """Return the cursor of the page after the row with this key; None without a key."""
    if key[0] is None:
        return None
    return base64.urlsafe_b64encode(msgspec.json.encode([listing, *key])).decode().rstrip("=")


def key_of(listing: str, cursor: str | None, *types: Any) -> tuple[Any, ...] | None:
    """Return the key in a cursor of this listing, None without a cursor. `InvalidInput` for any other cursor."""
    if cursor is None:
        return None
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        named, *key = msgspec.json.decode(base64.b64decode(padded, altchars=b"-_", validate=True), type=list[Any])
        if named != listing:
            raise ValueError(named)
        found: tuple[Any, ...] = msgspec.convert(key, tuple.__class_getitem__(types))
    except (ValueError, binascii.Error, msgspec.MsgspecError, RecursionError):
        raise InvalidInput(
            f"{cursor[:40]!r} is not a cursor of this list", hint="use `next` of the page before, or leave it out"
        ) from None
    return found


def last_key(listing: str, cursor: str | None, kind: type[T]) -> T | None:
    """Return the key in a cursor whose key is one value, None without a cursor."""
    found = key_of(listing, cursor, kind)
    return None if found is None else found[0]


def page_of(rows: Sequence[T], limit: int, listing: str, key: Callable[[T], Sequence[Any]]) -> Page[T]:
    """Return the first `limit` rows as a page. One row more than that means that there is a next page."""
    shown = list(rows[:limit])
    return Page(shown, cursor_of(listing, *key(shown[-1])) if len(rows) > limit else None)


async def take(rows: AsyncIterator[T], count: int) -> list[T]:
    """Return the first `count` rows."""
    found: list[T] = []
    if count > 0:
        async for row in rows:
            found.append(row)
            if len(found) == count:
                break
    return found
