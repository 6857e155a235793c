"""Rows of the outbox as events."""

from collections.abc import Sequence
from typing import Any

from floodmark.model.posts import post_event

from .database import encode_json
from .port import Event, Unsent
from .rows import read_moment


def event_from_row(row: Sequence[Any]) -> Event:
    """Return an event from the columns that `_fields` unpacks."""
    return Event(**_fields(row))


def unsent_from_row(row: Sequence[Any]) -> Unsent:
    """Return an event to be sent from the same columns, followed by traceparent."""
    return Unsent(**_fields(row[:-1]), traceparent=row[-1])


def _fields(row: Sequence[Any]) -> dict[str, Any]:
    position, stream, key, revision, occurred_at, collected_at, data, deleted, tenant_id, user_id = tuple(row)
    occurred = read_moment(occurred_at)
    text = data if isinstance(data, str) else encode_json(data)
    kind = "item.deleted" if deleted else "item.new" if revision == 1 else "item.changed"
    shared = {
        "event_id": f"{stream}/{key}/{revision}",
        "stream": stream,
        "key": key,
        "revision": revision,
        "tenant_id": tenant_id,
        "user_id": user_id,
        "collected_at": read_moment(collected_at),
    }
    post = post_event(**shared, deleted=bool(deleted), posted_at=occurred, data=text)
    kind_and_data = {"type": kind, "data": text} if post is None else {"type": post.type, "data": post.payload}
    return {**shared, "position": position, "kind": kind, "occurred_at": occurred, **kind_and_data}
