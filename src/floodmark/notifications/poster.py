"""Sends POST requests to a URL that is a secret: errors do not contain it."""

import re
from collections.abc import Mapping
from datetime import timedelta
from http import HTTPStatus
from urllib.parse import urlsplit

from floodmark.errors import SourceError
from floodmark.extensions.services import Services
from floodmark.model.hosts import allowed_hosts, resolved_hosts
from floodmark.outbound.client import Http, HttpAnswer, ResponseLimits
from floodmark.outbound.guard import Guard
from floodmark.security.masking import mask_url

from .port import NotSent

_TIMEOUT = timedelta(seconds=15)
LIMITS = ResponseLimits(body_bytes=64 * 1024, unpacked_bytes=64 * 1024, total=_TIMEOUT, head=_TIMEOUT)
_LONGEST_PAUSE = timedelta(hours=1)
_SHOWN = 120


class Poster:
    """Posts to one URL. Its host may be private, because the operator has configured it."""

    def __init__(self, services: Services, url: str) -> None:
        self.url, self.host = url, urlsplit(url).hostname or ""
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
            hint, is_gone = "compare the URL with the one that the receiver shows", answer.status == HTTPStatus.GONE
            raise NotSent(what, hint=hint, after=_retry_after(answer), is_gone=is_gone)

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()


def _retry_after(answer: HttpAnswer) -> timedelta | None:
    text = answer.headers.get("Retry-After", "").strip()
    if not re.fullmatch(r"\d{1,6}", text):
        return None
    return min(timedelta(seconds=int(text)), _LONGEST_PAUSE)
