"""One POST whose address is a secret: whatever goes wrong is told without it."""

import re
from collections.abc import Mapping
from datetime import timedelta
from http import HTTPStatus
from urllib.parse import parse_qsl, urlsplit

from floodmark.errors import SourceError
from floodmark.extensions.services import Services
from floodmark.model.hosts import allowed_hosts, resolved_hosts
from floodmark.outbound.client import Http, HttpAnswer, ResponseLimits
from floodmark.outbound.guard import Guard
from floodmark.security.masking import MASK, mask_text

from .port import NotSent

_PATIENCE = timedelta(seconds=15)
LIMITS = ResponseLimits(body_bytes=64 * 1024, unpacked_bytes=64 * 1024, total=_PATIENCE, head=_PATIENCE)
_LONGEST_REST = timedelta(hours=1)
_SHOWN = 120
# Shorter pieces of an address are words such as `api`, and would blot out half of what is said.
_WORTH_HIDING = 8


class Poster:
    """Posts to one address. Its host may be private: the operator named it."""

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
        """Send it; `NotSent` unless it is answered with a status of 2xx."""
        try:
            answer = await self._http.post(self.url, body=body, headers=headers, limits=LIMITS)
        except SourceError as error:
            raise NotSent(_without(self.url, str(error)), hint=_without(self.url, error.hint)) from None
        if not 200 <= answer.status < 300:
            said = _without(self.url, " ".join(answer.body[:_SHOWN].decode("utf-8", "replace").split()))
            what = f"{self.host} answered {answer.status}{f': {said}' if said else ''}"
            hint, is_gone = "compare the address with what the other side shows", answer.status == HTTPStatus.GONE
            raise NotSent(what, hint=hint, after=_rest(answer), is_gone=is_gone)

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()


def _rest(answer: HttpAnswer) -> timedelta | None:
    """What `Retry-After` asks for, if it is a number of seconds."""
    said = answer.headers.get("Retry-After", "").strip()
    if not re.fullmatch(r"\d{1,6}", said):
        return None
    return min(timedelta(seconds=int(said)), _LONGEST_REST)


def _without(url: str, text: str) -> str:
    """Without the address, and without its parts that are secret: all but the host."""
    parts = urlsplit(url)
    pieces = [*parts.path.split("/"), *(value for _, value in parse_qsl(parts.query))]
    secrets = [url, parts.path.rstrip("/"), parts.query, *(piece for piece in pieces if len(piece) >= _WORTH_HIDING)]
    for secret in filter(None, secrets):
        text = text.replace(secret, MASK)
    return mask_text("".join(letter if letter.isprintable() else " " for letter in text))
