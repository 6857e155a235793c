"""An event as JSON, as webhooks and Kafka carry it."""

from typing import Any

import msgspec

from floodmark.model.shapes import event_shape
from floodmark.store.port import Event

_encoder = msgspec.json.Encoder()


def event_json(event: Event) -> bytes:
    """Return an event as one JSON object. `data` is JSON too; `traceparent` is there if the event was traced."""
    shape: dict[str, Any] = {**event_shape(event)}
    if shape.get("traceparent") is None:
        shape.pop("traceparent", None)
    return _encoder.encode(shape)
