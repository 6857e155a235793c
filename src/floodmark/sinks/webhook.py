"""Webhooks: posts events as JSON, signed like the webhooks that Floodmark accepts.

{"sink": "archive", "events": [{"event_id": ..., "position": ..., "stream": ..., "data": ...}, ...]}

X-Floodmark-Delivery    a hash of the body: the same when the same events are sent again
X-Floodmark-Hops        1, or more if Floodmark's own events have led to these events: see `hops`
X-Floodmark-Timestamp, X-Floodmark-Signature    with SINK_<NAME>_SECRET
"""

import hashlib
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from floodmark.errors import Permanent, SlowDown, SourceError, Transient
from floodmark.extensions.services import Services
from floodmark.model.hosts import allowed_hosts, resolved_hosts
from floodmark.outbound.client import Http, HttpAnswer, ResponseLimits
from floodmark.outbound.guard import Guard
from floodmark.outbound.polite import retry_after
from floodmark.security.masking import mask_url
from floodmark.security.webhook_signatures import signed_headers
from floodmark.store.port import Event
from floodmark.version import __version__

from .event_json import event_json
from .hops import EventHops
from .options import SinkOptions
from .port import EventsRefused, SinkTraits

if TYPE_CHECKING:
    from yarl import URL

# Together less than the 1 MiB that a Floodmark accepts (API_BODY_MAX).
_BATCH, _MAX_BYTES = 100, 1_000_000
_MOST_AT_ONCE, _MOST_BYTES, _MOST_SECONDS = 500, 100_000_000, 300
_ANSWER_BYTES = 64 * 1024
_SHOWN = 120
# These statuses are not about the events: a wrong URL or secret, or a receiver that is busy. All other 4xx are.
_OF_RECEIVER = frozenset({401, 403, 404, 405, 407, 408, 410, 421, 425, 429})
_PASSING = frozenset({408, 425, 429})


class WebhookSettings(Struct, frozen=True, kw_only=True):
    """The options of one webhook."""

    name: str
    url: str
    secret: str | None = None
    token: str | None = None
    batch: int = _BATCH
    max_bytes: int = _MAX_BYTES
    timeout: timedelta = timedelta(seconds=30)


def open_webhook(services: Services) -> "WebhookSink | None":
    """Make a sink that SINKS names."""
    if services.instance is None:
        return None
    options = SinkOptions(services.instance, services.section)
    settings = WebhookSettings(
        name=services.instance,
        url=options.require("url", "https://collector.example/events"),
        secret=options.text("secret"),
        token=options.text("token"),
        batch=options.count("batch", _BATCH, _MOST_AT_ONCE),
        max_bytes=options.count("max_bytes", _MAX_BYTES, _MOST_BYTES),
        timeout=timedelta(seconds=options.count("timeout", 30, _MOST_SECONDS)),
    )
    options.finish()
    parts = urlsplit(settings.url)
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        raise options.wrong("url", "a URL as in https://collector.example/events, without a user name")
    return WebhookSink(services, settings)


class WebhookSink:
    """Posts events to one URL. Its host may be private, because the operator has configured it."""

    traits = SinkTraits(restarts_elsewhere=False)

    def __init__(self, services: Services, settings: WebhookSettings) -> None:
        self._services, self._settings = services, settings
        parts = urlsplit(settings.url)
        # Without the path: that of many webhooks is a secret.
        self.place, self._host = f"{parts.scheme}://{parts.netloc}", parts.hostname or ""
        self._http: Http | None = None
        self._hops = EventHops(services.database)
        self._limits = ResponseLimits(
            body_bytes=_ANSWER_BYTES, unpacked_bytes=_ANSWER_BYTES, total=settings.timeout, head=settings.timeout
        )

    async def __aenter__(self) -> Self:
        settings = self._services.settings
        self._http = Http(
            Guard(allowed_hosts(f"{settings.http_allow_hosts or ''},{self._host}")),
            user_agent=settings.http_user_agent or f"floodmark/{__version__}",
            limits=self._limits,
            resolve=resolved_hosts(settings.http_resolve),
            events=self._services.events,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._http is not None:
            await self._http.close()
            self._http = None

    async def send(self, events: Sequence[Event]) -> int:
        """Post the first events, as many as fit; return their number once the receiver has answered with 2xx."""
        encoded = self._encode(events)
        hops = await self._hops.find(events[: len(encoded)])
        await self._post(encoded, hops=1 + max(hops.values(), default=0))
        return len(encoded)

    async def send_test(self, event: Event) -> None:
        """Post a test event."""
        await self._post([event_json(event)])

    def _encode(self, events: Sequence[Event]) -> list[bytes]:
        encoded, size = list[bytes](), 0
        for event in events[: self._settings.batch]:
            text = event_json(event)
            size += len(text) + 1
            if encoded and size > self._settings.max_bytes:
                break
            encoded.append(text)
        return encoded

    async def _post(self, encoded: Sequence[bytes], *, hops: int = 1) -> None:
        assert self._http is not None
        body = b'{"sink":' + msgspec.json.encode(self._settings.name) + b',"events":[' + b",".join(encoded) + b"]}"
        try:
            url = self._http.check(self._settings.url)
            answer = await self._http.post(url, body=body, headers=self._headers(url, body, hops))
        except SourceError as error:
            kind = Transient if isinstance(error, Transient) else Permanent
            raise kind(self._mask(str(error)), hint=self._mask(error.hint)) from None
        if not 200 <= answer.status < 300:
            raise self._explain(answer, len(encoded), self._services.clock.now())

    def _headers(self, url: "URL", body: bytes, hops: int) -> dict[str, str]:
        delivery = hashlib.blake2b(body, digest_size=16).hexdigest()
        headers = {
            "Content-Type": "application/json",
            "X-Floodmark-Delivery": delivery,
            "X-Floodmark-Hops": str(hops),
        }
        if self._settings.token is not None:
            headers["Authorization"] = f"Bearer {self._settings.token}"
        if self._settings.secret is not None:
            # Signed again for each attempt: a signature is valid for a few minutes only.
            now = self._services.clock.now().timestamp()
            headers |= signed_headers(self._settings.secret, now, body, address=url.raw_path_qs)
        return headers

    def _explain(self, answer: HttpAnswer, among: int, now: datetime) -> SourceError:
        status = answer.status
        text = " ".join(answer.body[:_SHOWN].decode("utf-8", "replace").split())
        what = self._mask(f"{self.place} answers with status {status}{text and ': '}{text}")
        if 400 <= status < 500 and status not in _OF_RECEIVER:
            return EventsRefused(what, among=among)
        wait = retry_after(answer, now)
        if wait is not None and (status >= 500 or status in _PASSING):
            return SlowDown(wait, reason=what)
        if status >= 500 or status in _PASSING:
            return Transient(what)
        hint = "the receiver must answer itself: redirects are not followed" if status < 400 else "check URL and secret"
        return Permanent(what, hint=hint)

    def _mask(self, text: str) -> str:
        for secret in (self._settings.secret, self._settings.token):
            text = text if secret is None else text.replace(secret, "***")
        return mask_url(self._settings.url, text)
