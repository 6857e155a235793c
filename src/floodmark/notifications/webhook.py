"""Webhooks: sends messages as JSON, signed like the webhooks that Floodmark accepts."""

import time
from collections.abc import Callable

import msgspec

from floodmark.extensions.services import Services
from floodmark.security.webhook_signatures import signed_headers

from .port import Notification
from .poster import Poster


def open_webhook(services: Services) -> "WebhookChannel | None":
    """Make the channel if NOTIFY_WEBHOOK_URL is set."""
    url, secret = services.settings.notify_webhook_url, services.settings.notify_webhook_secret
    if url is None:
        return None
    return WebhookChannel(Poster(services, url.get_secret_value()), secret.get_secret_value() if secret else None)


class WebhookChannel:
    """Posts JSON, signed if there is a secret. The delivery id is the id of the message."""

    def __init__(self, poster: Poster, secret: str | None, *, now: Callable[[], float] = time.time) -> None:
        self._poster, self._secret, self._now = poster, secret, now
        self.where, self.close = poster.host, poster.close

    async def send(self, message: Notification) -> None:
        """Send it; return when the receiver has answered with a status of 2xx."""
        body = msgspec.json.encode(message)
        headers = {"Content-Type": "application/json", "X-Floodmark-Delivery": message.id, "X-Floodmark-Hops": "1"}
        if self._secret is not None:
            from yarl import URL  # noqa: PLC0415 - heavy; encodes the URL as the client sends it

            # Signed again for each attempt: a signature is valid for a few minutes only.
            headers |= signed_headers(self._secret, self._now(), body, address=URL(self._poster.url).raw_path_qs)
        await self._poster.post(body, headers)
