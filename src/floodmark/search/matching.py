"""Decides whether a query matches an item, without an index. Pure."""

from collections.abc import Iterator, Sequence
from itertools import chain

from .query import AllOf, AnyOf, Node, Not, Term

Run = Sequence[str]
"""The tokens of one text. A phrase never reaches from one text into the next."""


def matches(node: Node, runs: Sequence[Run]) -> bool:
    """Return whether the query matches an item with these tokens, those of its fields included."""
    return _Matcher(runs).matches(node)


def places_of(term: Term, run: Run) -> Iterator[range]:
    """Yield the places in a run at which a term stands."""
    *first, last = term.indexed_tokens
    for end, token in enumerate(run):
        if (token.startswith(last) if term.is_prefix else token == last) and end >= len(first):
            start = end - len(first)
            if list(run[start:end]) == first:
                yield range(start, end + 1)


class _Matcher:
    def __init__(self, runs: Sequence[Run]) -> None:
        self._runs, self._known = runs, frozenset(chain.from_iterable(runs))

    def matches(self, node: Node) -> bool:
        if isinstance(node, Term):
            return self._has(node)
        if isinstance(node, Not):
            return not self.matches(node.node)
        if isinstance(node, AllOf):
            return all(self.matches(one) for one in node.nodes)
        assert isinstance(node, AnyOf)
        return any(self.matches(one) for one in node.nodes)

    def _has(self, term: Term) -> bool:
        *first, last = term.indexed_tokens
        # Most terms of most queries end here, without a look at the order of the tokens.
        if not self._known.issuperset(first):
            return False
        if term.is_prefix:
            if not any(token.startswith(last) for token in self._known):
                return False
        elif last not in self._known:
            return False
        return not first or any(next(places_of(term, run), None) is not None for run in self._runs)
