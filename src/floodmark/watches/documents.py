"""An item as watches see it: with the texts and tokens of searches. Each form is made when it is first needed. Pure."""

from collections.abc import Sequence
from functools import cached_property
from itertools import chain
from typing import Any

import msgspec

from floodmark.model.job import LONG_AGO
from floodmark.search.documents import SearchableItem, document_of
from floodmark.search.texts import texts_of
from floodmark.search.tokens import fold, tokenize


class WatchedTexts:
    """Texts to be matched: those of an item, or a few others."""

    def __init__(self, data: Any, texts: Sequence[str]) -> None:
        self.data, self._texts = data, texts

    @cached_property
    def title(self) -> str:
        """The title; empty if there is none."""
        return self._texts[0] if self._texts else ""

    @cached_property
    def body(self) -> str:
        """All other texts, one after the other."""
        return "\n".join(self._texts[1:])

    @cached_property
    def text(self) -> str:
        """What patterns are searched in: the title and the other texts."""
        return f"{self.title}\n{self.body}" if self.title else self.body

    @cached_property
    def folded(self) -> str:
        """Everything that words are searched in, as words are compared."""
        return fold(self.text)

    @cached_property
    def runs(self) -> Sequence[Sequence[str]]:
        """The tokens of each text."""
        return [tokenize(text) for text in self._texts]

    @cached_property
    def known(self) -> frozenset[str]:
        """All tokens."""
        return frozenset(chain.from_iterable(self.runs))


class WatchedItem(WatchedTexts):
    """An item to be matched."""

    def __init__(self, key: str, data: Any) -> None:
        self._key, self._found = key, texts_of(key, data)
        super().__init__(data, (self._found.title, *self._found.texts))

    @cached_property
    def folded(self) -> str:
        """The texts and the fields: `author:ada` is searched in a field."""
        fields = (value for values in self._found.fields.values() for value in values)
        return fold("\n".join((self.text, *fields)))

    @cached_property
    def runs(self) -> Sequence[Sequence[str]]:
        """The tokens that a search finds, with those of fields."""
        return document_of(SearchableItem("", self._key, 1, LONG_AGO, self.data)).runs

    @property
    def url(self) -> str | None:
        """The first URL of the item."""
        return self._found.url


def read_data(text: str) -> Any:
    """Return the data of an item."""
    return msgspec.json.decode(text)
