"""The short form of an item in which people are notified of it: a title, a part of its text, an address. Pure."""

import re
from collections.abc import Mapping
from typing import Any

from floodmark.search.query import terms_of
from floodmark.search.tokens import spans

from .compiled import CompiledWatch
from .documents import WatchedItem

LONGEST_TITLE, LONGEST_EXCERPT = 200, 280
_LEAD = 60
# Only the beginning of a long text is searched for the place of a word.
_SEARCHED = 20_000
_SPACE = re.compile(r"\s+")


def url_of(item: WatchedItem) -> str | None:
    """Return the address of an item, if it is known."""
    if item.url is not None:
        return item.url
    fields = item.data if isinstance(item.data, Mapping) else {}
    channel, number = fields.get("channel"), fields.get("id")
    is_post = isinstance(channel, str) and isinstance(number, int) and "channel_id" in fields
    return f"https://t.me/{channel}/{number}" if is_post else None


def excerpt_of(watch: CompiledWatch, text: str) -> str:
    """Return the part of a text in which the watch matches; its beginning if that cannot be found."""
    place = _place_of_match(watch, text)
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


def _place_of_match(watch: CompiledWatch, text: str) -> int:
    if len(text) <= LONGEST_EXCERPT:
        return 0
    if watch.node is not None:
        wanted = {term.tokens[0] for term in terms_of(watch.node)}
        beginnings = tuple(term.tokens[0] for term in terms_of(watch.node) if term.is_prefix and len(term.tokens) == 1)
        for span in spans(text[:_SEARCHED]):
            if span.token in wanted or span.token.startswith(beginnings):
                return span.start
    if watch.pattern is not None:
        found: Any = watch.pattern.search(text)
        return int(found.start()) if found is not None else 0
    return 0
