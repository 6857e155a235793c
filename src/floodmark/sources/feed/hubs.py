"""WebSub hubs (W3C Recommendation): finding the hub of a feed, and verifying what a hub sends. Pure."""

import hmac
import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from msgspec import Struct

from floodmark.outbound.client import HttpAnswer
from floodmark.sources.web.urls import join_address

if TYPE_CHECKING:
    from floodmark.sources.web.feeds import Feed

LONGEST_URL = 2000
# Those of the recommendation, section 7.
_METHODS = frozenset({"sha1", "sha256", "sha384", "sha512"})
_LINK = re.compile(r"<([^<>]*)>([^<]*)")
_REL = re.compile(r";\s*rel\s*=\s*(?:\"([^\"]*)\"|([^\s;,\"]+))", re.IGNORECASE)


class FeedHub(Struct, frozen=True):
    """The hub that pushes a feed, and the URL under which it knows the feed."""

    url: str
    topic: str


def find_hub(answer: HttpAnswer, feed: "Feed") -> FeedHub | None:
    """Return the first hub that a feed names: in the headers, or else in the document."""
    linked = _find_links(answer.headers.getall("Link", ()))
    hub = _absolute(linked.get("hub") or feed.hub, answer.url)
    topic = _absolute(linked.get("self") or feed.self_link or answer.url, answer.url)
    return None if hub is None or topic is None else FeedHub(hub, topic)


def is_signed(signature: str | None, secret: str, body: bytes) -> bool:
    """Return whether `signature`, the header X-Hub-Signature, is that of the body."""
    method, _, digest = (signature or "").strip().partition("=")
    if method.lower() not in _METHODS or not digest.isascii():
        return False
    right = hmac.new(secret.encode(), body, method.lower()).hexdigest()
    return hmac.compare_digest(right, digest.strip().lower())


def _find_links(headers: "tuple[str, ...] | list[str]") -> dict[str, str]:
    """Return the first URL of each relation in Link headers (RFC 8288)."""
    found: dict[str, str] = {}
    for address, params in _LINK.findall(",".join(headers)):
        rel = _REL.search(params)
        for name in (rel[1] or rel[2] or "").lower().split() if rel else ():
            found.setdefault(name, address.strip())
    return found


def _absolute(address: str | None, base: str) -> str | None:
    """Return an http URL without its fragment; None for anything else."""
    if not address:
        return None
    url = join_address(base, address).partition("#")[0]
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    is_plain = url.isprintable() and " " not in url and len(url) <= LONGEST_URL
    return url if is_plain and parts.scheme in {"http", "https"} and parts.hostname else None
