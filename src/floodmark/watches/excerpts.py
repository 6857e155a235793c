"""The short form of an item in which people are notified of it: a title, a part of its text, an address. Pure."""

import re
from collections.abc import Mapping
from typing import Any

from floodmark.search.query import Node, terms_of

from .compiled import CompiledWatch
from .documents import WatchedItem, WatchedTexts

LONGEST_TITLE, LONGEST_EXCERPT = 200, 280
_LEAD = 60
_SPACE = re.compile(r"\s+")


def url_of(item: WatchedItem) -> str | None:
    """Return the address of an item, if it is known."""
    if item.url is not None:
        return item.url
    fields = item.data if isinstance(item.data, Mapping) else {}
    channel, number = fields.get("channel"), fields.get("id")
    is_post = isinstance(channel, str) and isinstance(number, int) and "channel_id" in fields
    return f"https://t.me/{channel}/{number}" if is_post else None


def excerpt_of(watch: CompiledWatch, document: WatchedTexts) -> str:
    """Return the part of the text in which the watch matches; its beginning if that cannot be found."""
    text = document.body
    place = _place_of_match(watch, document)
    begin = max(0, place - _LEAD)
    if begin:
        # From the beginning of a word.
        space = text.find(" ", begin, place)
        begin = space + 1 if space >= 0 else begin
    shown = shorten(text[begin : begin + 4 * LONGEST_EXCERPT], LONGEST_EXCERPT)
    return f"… {shown}" if begin else shown


def shorten(text: str, longest: int) -> str:
    """Return the text on one line, cut to this length."""
    line = _SPACE.sub(" ", text[: 4 * longest]).strip()
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


def _place_of_match(watch: CompiledWatch, document: WatchedTexts) -> int:
    if len(document.body) <= LONGEST_EXCERPT:
        return 0
    if watch.node is not None:
        return _place_of_word(watch.node, document)
    found: Any = None if watch.pattern is None else watch.pattern.search(document.body)
    return 0 if found is None else int(found.start())


def _place_of_word(node: Node, document: WatchedTexts) -> int:
    """Return about where the first word of the query stands. Exact places would take longer than all the rest."""
    folded, skipped = document.folded, len(document.title) + 1 if document.title else 0
    places = [_find_word(folded, term.tokens[0], skipped) for term in terms_of(node)]
    found = min((place for place in places if place >= 0), default=skipped)
    # Folding may change the length of the text a little.
    return max(0, (found - skipped) * len(document.text) // max(1, len(folded)))


def _find_word(folded: str, token: str, begin: int) -> int:
    place = folded.find(f" {token} ", begin)
    return place + 1 if place >= 0 else folded.find(token, begin)
