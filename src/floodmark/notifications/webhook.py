"""A webhook of your own: the message as JSON, signed as the webhooks that Floodmark itself takes."""

import time
from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

import msgspec

from floodmark.inbound.webhooks import SCHEME, signature_of
from floodmark.outbound.client import Http

from .port import ChannelName, Message
from .posting import post


class Webhook:
    """Posts JSON. With a secret it is signed; the delivery id is that of the message."""

    name: Final[ChannelName] = "webhook"

    def __init__(self, http: Http, url: str, secret: str | None, *, now: Callable[[], float] = time.time) -> None:
        self._http, self._url, self._secret, self._now = http, url, secret, now
        self.where = urlsplit(url).hostname or ""

    async def send(self, message: Message) -> None:
        """Returns once it was answered with a status of 2xx."""
        body = msgspec.json.encode(message)
        headers = {"Content-Type": "application/json", "X-Floodmark-Delivery": message.id}
        if self._secret is not None:
            from yarl import URL  # noqa: PLC0415 - heavy; it spells the address as it is sent

            # Anew for each try: a signature is good for a few minutes only.
            timestamp = f"{self._now():.3f}"
            signature = signature_of(self._secret, timestamp, body, address=URL(self._url).raw_path_qs)
            headers |= {"X-Floodmark-Timestamp": timestamp, "X-Floodmark-Signature": f"{SCHEME}{signature}"}
        await post(self._http, self._url, body, headers)
