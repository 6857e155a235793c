"""One request to API_URL, with limits on time, speed, size on the wire, decompressed size and redirects.

The server is not trusted. A redirect must stay on the server that the operator has configured.
"""

from base64 import b64encode
from datetime import timedelta
from typing import TYPE_CHECKING

from msgspec import Struct

from floodmark.errors import SourceError, Unavailable
from floodmark.outbound.client import REDIRECTED, Http, HttpAnswer, ResponseLimits, TooLarge
from floodmark.outbound.guard import AddressRefused
from floodmark.security.masking import mask_text

from .format import HINT, BadAnswer

if TYPE_CHECKING:
    # Heavy, and most processes do not sync.
    from yarl import URL

MOST_BYTES = 8 * 1024 * 1024
# After REQUEST_TIMEOUT a response may continue while it keeps this speed: the largest takes half a minute.
SLOWEST_BYTES_PER_SECOND = 512 * 1024
_REDIRECTS = 3
_LONGEST_ETAG = 512
_SHOWN = 200


class Fetched(Struct, frozen=True, kw_only=True):
    """A response. `body` is None if it is unchanged since the given ETag."""

    body: bytes | None
    etag: str | None


class Fetcher:
    """Reads one address."""

    def __init__(self, http: Http, url: str, *, timeout: timedelta) -> None:
        self._http, self._url = http, url
        self._limits = ResponseLimits(
            redirects=_REDIRECTS,
            body_bytes=MOST_BYTES,
            unpacked_bytes=MOST_BYTES,
            total=2 * timeout + timedelta(seconds=MOST_BYTES / SLOWEST_BYTES_PER_SECOND),
            head=timeout,
            grace=timeout,
            slowest=SLOWEST_BYTES_PER_SECOND,
        )

    async def fetch(self, etag: str | None = None) -> Fetched:
        """Send the request and read the response; `Unavailable` names the problem."""
        url, headers = self._prepare()
        if etag is not None:
            headers["If-None-Match"] = etag
        try:
            answer = await self._http.get(url, headers=headers, limits=self._limits, follow=self._check_redirect)
        except TooLarge as error:
            raise self._bad(str(error)) from error
        except AddressRefused as error:
            raise self._away(str(error), hint=error.hint) from error
        except SourceError as error:
            raise self._away(str(error)) from error
        return self._read(answer, etag)

    def _prepare(self) -> "tuple[URL, dict[str, str]]":
        """Return the URL without its credentials, and the headers, which contain them instead."""
        from yarl import URL  # noqa: PLC0415 - heavy

        headers = {"Accept": "application/json"}
        try:
            url = URL(self._url)
        except ValueError as error:
            raise self._away(_mask(str(error))) from None
        if url.user is None and url.password is None:
            return url, headers
        credentials = f"{url.user or ''}:{url.password or ''}".encode()
        headers["Authorization"] = f"Basic {b64encode(credentials).decode()}"
        return url.with_user(None), headers

    def _check_redirect(self, address: "URL", to: "URL") -> None:
        is_safer = (address.scheme, to.scheme) == ("http", "https") and address.host == to.host
        if to.origin() != address.origin() and not is_safer:
            raise self._away(f"it redirects to another server, {_mask(str(to.origin()))}")

    def _read(self, answer: HttpAnswer, etag: str | None) -> Fetched:
        if answer.status == 304 and etag is not None:
            return Fetched(body=None, etag=etag)
        if answer.status in REDIRECTED:
            raise self._away("it redirects without a target")
        if answer.status != 200:
            raise self._away(f"it answers with status {answer.status}")
        kind = answer.media_type
        if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
            raise self._bad(f"its content type is {_mask(kind)!r}, not application/json")
        return Fetched(body=answer.body, etag=_etag(answer))

    def _away(self, why: str, *, hint: str = "check that API, or correct API_URL") -> Unavailable:
        return Unavailable(
            f"the schedules of {_mask(self._url)} cannot be read: {why}", hint=f"nothing was changed; {hint}"
        )

    def _bad(self, why: str) -> BadAnswer:
        return BadAnswer(f"the response of {_mask(self._url)} is refused: {why}", hint=HINT)


def _etag(answer: HttpAnswer) -> str | None:
    found = answer.headers.get("ETag", "").strip()
    is_good = found.endswith('"') and found.isprintable() and found.isascii() and len(found) <= _LONGEST_ETAG
    return found if is_good else None


def _mask(text: str) -> str:
    masked = mask_text(text)[:_SHOWN]
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in masked)
