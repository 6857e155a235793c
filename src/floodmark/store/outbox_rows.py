"""From an outbox row to the event a reader sees."""

from collections.abc import Sequence
from typing import Any

from floodmark.model.posts import post_event

from .database import encode_json
from .port import Event, Unsent
from .rows import moment


def event_from_row(row: Sequence[Any]) -> Event:
    """Columns: position, stream, key, revision, occurred_at, collected_at, data, deleted, tenant_id, user_id."""
    return Event(**_fields(row))


def unsent_from_row(row: Sequence[Any]) -> Unsent:
    """The same columns, and behind them traceparent."""
    return Unsent(**_fields(row[:-1]), traceparent=row[-1])


def _fields(row: Sequence[Any]) -> dict[str, Any]:
    position, stream, key, revision, occurred_at, collected_at, data, deleted, tenant_id, user_id = tuple(row)
    collected, occurred = moment(collected_at), moment(occurred_at)
    assert collected is not None
    event_id = f"{stream}/{key}/{revision}"
    kind = "item.deleted" if deleted else "item.new" if revision == 1 else "item.changed"
    text = data if isinstance(data, str) else encode_json(data)
    told = post_event(
        event_id=event_id,
        stream=stream,
        key=key,
        revision=revision,
        deleted=bool(deleted),
        tenant_id=tenant_id,
        user_id=user_id,
        posted_at=occurred,
        collected_at=collected,
        data=text,
    )
    return {
        "event_id": event_id,
        "position": position,
        "stream": stream,
        "key": key,
        "revision": revision,
        "kind": kind,
        "type": kind if told is None else told.type,
        "tenant_id": tenant_id,
        "user_id": user_id,
        "occurred_at": occurred,
        "collected_at": collected,
        "data": text if told is None else told.payload,
    }
