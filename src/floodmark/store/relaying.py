"""From an outbox row to the event a reader sees."""

from collections.abc import Sequence
from typing import Any

from .database import encode_json
from .port import Event
from .rows import moment


def event_from_row(row: Sequence[Any]) -> Event:
    """Columns: position, stream, key, revision, occurred_at, collected_at, data, deleted."""
    position, stream, key, revision, occurred_at, collected_at, data, deleted = tuple(row)
    collected = moment(collected_at)
    assert collected is not None
    return Event(
        event_id=f"{stream}/{key}/{revision}",
        position=position,
        stream=stream,
        key=key,
        revision=revision,
        kind="item.deleted" if deleted else "item.new" if revision == 1 else "item.changed",
        occurred_at=moment(occurred_at),
        collected_at=collected,
        data=data if isinstance(data, str) else encode_json(data),
    )
