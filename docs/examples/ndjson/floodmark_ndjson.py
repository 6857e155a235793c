"""A sink: posts events as lines of JSON (NDJSON) to an HTTP endpoint.

NDJSON_URL: where the events go; without it the sink is off.
NDJSON_TOKEN: sent as a bearer token, if it is set.
"""

import json
from collections.abc import Sequence
from urllib.parse import urlsplit

from floodmark import Event, InvalidInput, Services, Transient


def open_sink(services: Services) -> "NdjsonSink | None":
    """Return the sink, or None if NDJSON_URL is not set."""
    if "url" not in services.section:
        return None
    if urlsplit(services.section["url"]).scheme not in ("http", "https"):
        raise InvalidInput("NDJSON_URL is not an HTTP address", hint="for example https://collector.example/events")
    return NdjsonSink(services)


class NdjsonSink:
    """Post each group of events in one request."""

    def __init__(self, services: Services) -> None:
        self._http, self._log, section = services.guarded_http, services.log, services.section
        self._url, parts = section["url"], urlsplit(section["url"])
        # The place is stored and shown, so it has no user name, password or query.
        self.place = f"{parts.scheme}://{parts.hostname}:{parts.port or ''}{parts.path}"
        self._headers = {"Content-Type": "application/x-ndjson"}
        if "token" in section:
            self._headers["Authorization"] = f"Bearer {section['token']}"

    async def send(self, events: Sequence[Event]) -> None:
        """Return once the endpoint has accepted the events. After an error Floodmark sends them again."""
        body = b"".join(_line(event) for event in events)
        answer = await self._http.post(self._url, body=body, headers=self._headers)
        if not 200 <= answer.status < 300:
            raise Transient(f"{self.place} answers with status {answer.status}")
        self._log.debug("events delivered", count=len(events))


def _line(event: Event) -> bytes:
    line = {
        # An event can arrive twice, with the same id.
        "id": event.event_id,
        "kind": event.kind,
        "stream": event.stream,
        "key": event.key,
        "revision": event.revision,
        "occurred_at": event.occurred_at and event.occurred_at.isoformat(),
        "collected_at": event.collected_at.isoformat(),
        "data": json.loads(event.data),
    }
    return json.dumps(line).encode() + b"\n"
