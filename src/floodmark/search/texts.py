"""The texts and fields of an item that can be searched. Pure.

Texts are all strings in the data of an item, in an order that does not depend on the database: the title, then `text`,
`summary`, `description`, `content`, `body`, `message` and `caption`, then the others by name, also those of nested
objects and lists. Among the first texts, one that is part of another is left out, and so are:

    ids, hashes, types and times                                 they are no text
    `links`, `difference`, `manifest`, `raw_message`,
    `reactions`, `user_agent`                                    they repeat other data, or change without notice
    `channel`, `feed`, `language`                                they are the same for all items of a stream

A field is a string, or a list of strings, directly in the data; the long texts above are no fields. `link` is also
called `url`, `tags` is `tag`, `authors` is `author`. An item whose key is a URL has a field `url`.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

MOST_FIELDS, _LONGEST_FIELD, _LONGEST_NAME = 20, 1000, 32
# More text than the index takes of one item.
MOST_CHARACTERS = 200_000
# The first texts are compared with each other: a summary is often the beginning of the content.
_COMPARED = 4
# As deep as a stored value may be.
_DEEPEST = 64

_TITLES = ("title", "headline", "subject", "name")
_LONG = ("text", "summary", "description", "content", "body", "message", "caption")
_NO_TEXT = frozenset(
    {
        "links",
        "difference",
        "manifest",
        "raw_message",
        "reactions",
        "user_agent",
        "hash",
        "id",
        "type",
        "kind",
        "mime",
        "schema",
        "date",
    }
)
_NO_TEXT_ENDS = ("_id", "_ids", "_at", "_date", "_hash", "sha256", "_type", "emoji_id")
_ONLY_FIELDS = frozenset({"channel", "feed", "language"})
_OTHER_NAMES = {"link": "url", "tags": "tag", "keywords": "tag", "authors": "author"}
# Fields that every item may have, whether or not one has it yet.
KNOWN_FIELDS = ("author", "channel", "feed", "is", "language", "tag", "title", "url")
_FIELD_NAME = re.compile(r"[a-z][a-z0-9_.-]*")
_TIME = re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d[\d:.,]*(?:Z|[+-]\d\d:?\d\d)?)?")
_URL = re.compile(r"https?://", re.IGNORECASE)


class ItemTexts(NamedTuple):
    """The title of an item, its other texts in order, and its fields by name."""

    title: str
    texts: tuple[str, ...]
    fields: Mapping[str, tuple[str, ...]]

    @property
    def url(self) -> str | None:
        """The first URL of the item."""
        return next((value for value in self.fields.get("url", ()) if _URL.match(value)), None)


def texts_of(key: str, data: Any) -> ItemTexts:
    """Return the texts and fields of an item with this key and data."""
    if not isinstance(data, dict):
        return ItemTexts("", tuple(_strings(data)), _fields_of(key, {}))
    name, title = next(((name, data[name]) for name in _TITLES if _is_text(data.get(name))), (None, ""))
    names = (*_LONG, *sorted(data.keys() - {name, *_LONG, *_ONLY_FIELDS}))
    texts = [text for some in names if some in data and _may_be_text(some) for text in _strings(data[some])]
    return ItemTexts(title[:MOST_CHARACTERS], tuple(_distinct(texts)), _fields_of(key, data))


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip()) and _TIME.fullmatch(value) is None


def _may_be_text(name: str) -> bool:
    return name not in _NO_TEXT and not name.endswith(_NO_TEXT_ENDS)


def _strings(value: Any, depth: int = 0) -> Iterator[str]:
    if isinstance(value, str):
        if _is_text(value):
            yield value
    elif depth == _DEEPEST:
        return
    elif isinstance(value, list):
        for one in value:
            yield from _strings(one, depth + 1)
    elif isinstance(value, dict):
        for name in sorted(value):
            if _may_be_text(name):
                yield from _strings(value[name], depth + 1)


def _distinct(texts: list[str]) -> Iterator[str]:
    """Yield the texts up to the most that is searched, without those that are part of another one."""
    compared = [text[:MOST_CHARACTERS] for text in texts[:_COMPARED]]
    seen, left = set[str](), MOST_CHARACTERS
    for place, text in enumerate(texts):
        if left <= 0:
            return
        is_part = place < _COMPARED and any(len(text) < len(other) and text in other for other in compared)
        if text in seen or is_part:
            continue
        seen.add(text)
        # One character more than allowed shows that something was cut.
        yield text[: left + 1]
        left -= len(text)


def _fields_of(key: str, data: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for name in sorted(data):
        values = tuple(_values(data[name])) if name not in _LONG and _may_be_text(name) else ()
        known_as = _OTHER_NAMES.get(name, name.lower())
        if values and _is_field(known_as):
            found[known_as] = (*found.get(known_as, ()), *values)
    if "url" not in found and _URL.match(key):
        found["url"] = (key[:_LONGEST_FIELD],)
    return dict(sorted(found.items())[:MOST_FIELDS])


def _is_field(name: str) -> bool:
    # `is` is ours: see `documents`.
    return name != "is" and len(name) <= _LONGEST_NAME and _FIELD_NAME.fullmatch(name) is not None


def _values(value: Any) -> Iterator[str]:
    for one in value[:MOST_FIELDS] if isinstance(value, list) else [value]:
        if _is_text(one):
            yield one[:_LONGEST_FIELD]
