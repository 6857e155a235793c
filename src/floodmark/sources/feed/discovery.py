"""Finds the feed that a page names (`<link rel="alternate">`). Pure."""

import re

from floodmark.outbound.client import HttpAnswer
from floodmark.sources.web.charsets import decode_text
from floodmark.sources.web.extract import parse_document
from floodmark.sources.web.nesting import TooNested
from floodmark.sources.web.urls import normalize_url

_HTML = re.compile(rb"\s*(?:<!--.{0,500}?-->\s*)?<(?:!doctype\s+html|html|head|body)\b", re.IGNORECASE | re.DOTALL)
# Feeds of comments are named beside the feed of the articles.
_COMMENTS = re.compile(r"comment|kommentar", re.IGNORECASE)


def is_page(answer: HttpAnswer) -> bool:
    """Return whether a response is a page and not a feed. Some feeds are sent as `text/html`."""
    return _HTML.match(answer.body[:2000].removeprefix(b"\xef\xbb\xbf")) is not None


def find_feeds(answer: HttpAnswer) -> list[str]:
    """Return the URLs of the feeds that a page names, in its order; feeds of comments last."""
    try:
        document = parse_document(decode_text(answer.body, answer.charset))
    except TooNested:
        return []
    base = normalize_url(document.base, answer.url) if document.base else None
    found = [address for href in document.feeds if (address := normalize_url(href, base or answer.url))]
    return sorted(dict.fromkeys(found), key=lambda address: _COMMENTS.search(address) is not None)
