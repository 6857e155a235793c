"""Items as rows: JSON, a content hash, one row per key."""

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import astuple

from floodmark.errors import InvalidInput
from floodmark.model.batch import Item, SitePage, Watermark
from floodmark.model.clean_text import clean
from floodmark.model.strict_json import TooDeep, require_shallow

# An item is a post, a page or a report. A larger one is a mistake, and an error is more useful than storing it.
MAX_ITEM_BYTES = 16 * 1024 * 1024

_encoder = msgspec.json.Encoder()
# Takes twice as long, but does not depend on the order of fields.
_ordered = msgspec.json.Encoder(order="deterministic")


class Packed(NamedTuple):
    """An item as a row. `data` is JSON in UTF-8: as text it would have to be encoded again."""

    key: str
    occurred_at: Any
    data: bytes
    content_hash: str
    deleted: bool


def pack(items: Sequence[Item]) -> list[Packed]:
    """Return the rows of items, in their order. Of several items with one key the last one counts."""
    # By the stored key: two keys that differ only in characters that cannot be stored are one.
    return [_pack(key, item) for key, item in {clean(item.key): item for item in items}.items()]


def pack_watermark(watermark: Watermark | None) -> str | None:
    """Return a watermark as JSON text."""
    if watermark is None:
        return None
    try:
        require_shallow(watermark)
    except TooDeep as error:
        hint = "Choose a watermark that is a number, a text or a small object"
        raise InvalidInput(f"the watermark is {error}", hint=hint) from None
    return _encoder.encode(clean(watermark)).decode()


def pack_pages(pages: Sequence[SitePage]) -> list[tuple[Any, ...]]:
    """Return the rows of pages, for each URL that of the latest crawl."""
    rows: dict[str, SitePage] = {}
    for page in pages:
        known = rows.get(page.url)
        if known is None or page.crawl > known.crawl:
            rows[page.url] = page
    return [tuple(clean(value) for value in astuple(page)) for page in rows.values()]


def _as_utc(moment: datetime | None) -> datetime | None:
    # A time without a zone is UTC, whatever the zone of this machine.
    return moment.replace(tzinfo=UTC) if moment is not None and moment.tzinfo is None else moment


def _pack(key: str, item: Item) -> Packed:
    if item.fingerprint is None:
        data = fingerprint = _encode_data(item.data, _ordered)
    else:
        data, fingerprint = _encode_data(item.data, _encoder), _encode(item.fingerprint, _ordered)
    digest = hashlib.blake2b(fingerprint, digest_size=16).hexdigest()
    # A deletion is a change even if the data is the same.
    content_hash = f"gone:{digest}" if item.deleted else digest
    return Packed(key, _as_utc(item.occurred_at), data, content_hash, item.deleted)


def _encode_data(data: Any, encoder: msgspec.json.Encoder) -> bytes:
    encoded = _encode(data, encoder)
    # PostgreSQL stores no NUL in text. Most texts have no escape at all, which the first test finds quickly.
    if b"\\" in encoded and b"\\u0000" in encoded:
        encoded = _encode_clean(data, encoder)
    if len(encoded) > MAX_ITEM_BYTES:
        raise InvalidInput(
            f"an item of {len(encoded):,} bytes is larger than the {MAX_ITEM_BYTES:,} allowed",
            hint="Yield smaller items, or keep large files elsewhere and yield where they are",
        )
    return encoded


def _encode(data: Any, encoder: msgspec.json.Encoder) -> bytes:
    try:
        return encoder.encode(data)
    except UnicodeEncodeError:
        # Lone surrogates cannot be written as UTF-8.
        return _encode_clean(data, encoder)
    except RecursionError:
        raise _too_deep() from None


def _encode_clean(data: Any, encoder: msgspec.json.Encoder) -> bytes:
    try:
        return encoder.encode(clean(msgspec.to_builtins(data)))
    except RecursionError:
        raise _too_deep() from None


def _too_deep() -> InvalidInput:
    return InvalidInput("an item is nested too deeply to be stored", hint="Yield a flatter item")
