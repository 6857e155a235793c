"""The event that `floodmark sinks test` sends."""

from datetime import datetime

import msgspec

from floodmark.model.ids import new_id
from floodmark.store.port import Event

KIND = "test"


def build_test_event(sink: str, now: datetime) -> Event:
    """Return an event of the kind `test`, which belongs to no item."""
    stream, key = f"floodmark:{KIND}", new_id()
    return Event(
        event_id=f"{stream}/{key}/1",
        position=0,
        stream=stream,
        key=key,
        revision=1,
        kind=KIND,
        type=KIND,
        tenant_id=None,
        user_id=None,
        occurred_at=now,
        collected_at=now,
        data=msgspec.json.encode({"text": f"A test of the sink {sink}. Ignore it."}).decode(),
    )
