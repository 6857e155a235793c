"""Sends POST requests to a URL that is a secret: errors do not contain it."""

import re
from collections.abc import Mapping
from datetime import timedelta
from http import HTTPStatus
from typing import Annotated
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta, Struct

from floodmark.errors import SourceError
from floodmark.extensions.services import Services
from floodmark.model.hosts import allowed_hosts, resolved_hosts
from floodmark.outbound.client import Http, ResponseLimits
from floodmark.outbound.guard import Guard
from floodmark.security.masking import mask_url

from .port import NotSent

_TIMEOUT = timedelta(seconds=15)
LIMITS = ResponseLimits(body_bytes=64 * 1024, unpacked_bytes=64 * 1024, total=_TIMEOUT, head=_TIMEOUT)
_LONGEST_PAUSE = timedelta(hours=1)
_MOST_SECONDS = 1e9
_SECONDS = re.compile(r"\d{1,9}(?:\.\d{1,9})?", re.ASCII)
_SHOWN = 120
# The receiver understood the request and does not like what it says.
_REFUSED = (HTTPStatus.BAD_REQUEST, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.UNPROCESSABLE_ENTITY)


_Pause = Annotated[float, Meta(ge=0)]


class Poster:
    """Posts to one URL. Its host may be private, because the operator has configured it."""

    def __init__(
        self, services: Services, url: str, *, hint: str = "compare the URL with the one that the receiver shows"
    ) -> None:
        self.url, self.host, self._hint = url, urlsplit(url).hostname or "", hint
        settings = services.settings
        self._http = Http(
            Guard(allowed_hosts(f"{settings.http_allow_hosts or ''},{self.host}")),
            user_agent=settings.http_user_agent or "floodmark",
            resolve=resolved_hosts(settings.http_resolve),
            events=services.events,
        )

    async def post(self, body: bytes, headers: Mapping[str, str]) -> None:
        """Send a body; `NotSent` unless the status is 2xx."""
        try:
            answer = await self._http.post(self.url, body=body, headers=headers, limits=LIMITS)
        except SourceError as error:
            raise NotSent(mask_url(self.url, str(error)), hint=mask_url(self.url, error.hint)) from None
        if not 200 <= answer.status < 300:
            text = mask_url(self.url, " ".join(answer.body[:_SHOWN].decode("utf-8", "replace").split()))
            what = f"{self.host} answered {answer.status}{f': {text}' if text else ''}"
            raise NotSent(
                what,
                hint=self._hint,
                after=retry_after(answer.headers.get("Retry-After", ""), answer.body),
                is_gone=answer.status == HTTPStatus.GONE,
                is_refused=answer.status in _REFUSED,
            )

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()


def retry_after(header: str, body: bytes) -> timedelta | None:
    """Return the pause that a response asks for: in its header, or in the JSON of Discord and Telegram."""
    if _SECONDS.fullmatch(header.strip()):
        return min(timedelta(seconds=float(header)), _LONGEST_PAUSE)
    try:
        asked = msgspec.json.decode(body, type=_AskedPause)
    except msgspec.MsgspecError:
        return None
    seconds = asked.retry_after if asked.parameters is None else asked.parameters.retry_after
    return None if seconds is None else min(timedelta(seconds=min(seconds, _MOST_SECONDS)), _LONGEST_PAUSE)


class _TelegramPause(Struct):
    retry_after: _Pause | None = None


class _AskedPause(Struct):
    retry_after: _Pause | None = None
    parameters: _TelegramPause | None = None
