"""What the index stores of an item: tokens with their places, within the bounds of both databases. Pure.

PostgreSQL counts places up to 16,383, keeps 256 places of a token, and takes 1 MB of tokens. Everything beyond is left
out on both databases, so that they find the same, and the item is marked with `is:cut`.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from hashlib import blake2b
from typing import Any, NamedTuple

from .query import field_token
from .texts import MOST_CHARACTERS, texts_of
from .tokens import tokenize

# A place without a token: no phrase reaches over it. No token of a text begins with a colon.
GAP = ":"
MOST_TOKENS, _MOST_IN_TITLE, _MOST_IN_FIELD, _MOST_REPEATED, _MOST_BYTES = 16_000, 200, 32, 250, 500_000
DELETED, CUT = field_token("is", "deleted"), field_token("is", "cut")


class SearchableItem(NamedTuple):
    """A revision of an item, as it is stored."""

    stream: str
    key: str
    revision: int
    at: datetime
    """When it happened, or else when it was collected."""
    data: Any
    deleted: bool = False


class SearchDocument(NamedTuple):
    """The tokens of a revision of an item. Each list has one token, or a gap, for each place."""

    stream: str
    key: str
    revision: int
    at: datetime
    title: Sequence[str]
    body: Sequence[str]
    marks: Sequence[str]
    """Tokens of fields, and of properties such as `is:deleted`."""
    fields: Sequence[str]
    """The names of its fields."""

    @property
    def runs(self) -> tuple[Sequence[str], ...]:
        """All tokens, for `matches`."""
        return self.title, self.body, self.marks

    @property
    def digest(self) -> int:
        """A number that is the same for the same tokens."""
        return digest_of(*(" ".join(run) for run in self.runs))


def document_of(item: SearchableItem) -> SearchDocument:
    """Return what is indexed of an item."""
    found = texts_of(item.key, item.data)
    marks = [token for name, values in found.fields.items() for token in _field_tokens(name, values)]
    title = tokenize(found.title)
    body = _join(tokenize(text) for text in found.texts)
    most = MOST_TOKENS - len(marks) - min(len(title), _MOST_IN_TITLE)
    is_cut = len(title) > _MOST_IN_TITLE or len(body) > most or sum(map(len, found.texts)) > MOST_CHARACTERS
    title, body = title[:_MOST_IN_TITLE], body[:most]
    if len(title) + len(body) > _MOST_REPEATED:
        limited = _limit(body, Counter(title))
        is_cut, body = is_cut or limited != body, limited
    flags = [*([DELETED] if item.deleted else []), *([CUT] if is_cut else [])]
    return SearchDocument(
        item.stream, item.key, item.revision, item.at, title, body, [*_limit(marks), *flags], tuple(found.fields)
    )


def digest_of(*texts: str) -> int:
    """Return a 64-bit number for these texts."""
    return int.from_bytes(blake2b("\0".join(texts).encode(), digest_size=8).digest(), "big", signed=True)


def _field_tokens(name: str, values: Iterable[str]) -> list[str]:
    runs = ([field_token(name, token) for token in tokenize(value)[:_MOST_IN_FIELD]] for value in values)
    return _join(runs)


def _join(runs: Iterable[list[str]]) -> list[str]:
    joined: list[str] = []
    for run in runs:
        if joined and run:
            joined.append(GAP)
        joined += run
    return joined


def _limit(tokens: list[str], counts: Counter[str] | None = None) -> list[str]:
    """Return the tokens without repetitions beyond the most, which become gaps, and without those beyond the bytes."""
    counts, size, limited = Counter() if counts is None else counts, 0, list[str]()
    for token in tokens:
        counts[token] += 1
        if counts[token] == 1:
            size += len(token.encode())
            if size > _MOST_BYTES:
                break
        limited.append(token if counts[token] <= _MOST_REPEATED else GAP)
    return limited
