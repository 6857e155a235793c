"""Finds the watches that may match a text: one search for the literals of all watches. Pure.

The automaton is built for all watches at once. Watches that were added or changed since then are examined one by one;
there are few of them, because the automaton is built again at most once a second.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from floodmark.process.lazy import LazyModule

from .compiled import CompiledWatch, Watches
from .documents import WatchedTexts
from .places import StreamPlace

if TYPE_CHECKING:
    import ahocorasick_rs
else:
    # Only the leader evaluates watches.
    ahocorasick_rs = LazyModule("ahocorasick_rs")

# Streams whose watches are remembered.
_MOST_PLACES = 5000


class _OfStream:
    """What is known about a stream: which watches look at it, and which of them need no literal."""

    __slots__ = ("accepted", "unfiltered")

    def __init__(self, unfiltered: Sequence[CompiledWatch]) -> None:
        self.accepted: dict[str, bool] = {}
        self.unfiltered = unfiltered


class WatchIndex:
    """The watches of one moment. It is never changed, except for what it remembers."""

    def __init__(self, watches: Watches) -> None:
        self.watches = watches
        self.kinds = frozenset(watch.kind for watch in watches.values())
        by_literal: dict[str, list[CompiledWatch]] = {}
        self._by_name: dict[str, list[CompiledWatch]] = {}
        self._others: list[CompiledWatch] = []
        for watch in watches.values():
            if watch.kind == "items" and watch.literals is not None:
                for literal in watch.literals:
                    by_literal.setdefault(literal, []).append(watch)
            elif watch.filter.needs_name:
                for name in watch.filter.exact:
                    self._by_name.setdefault(name, []).append(watch)
            else:
                self._others.append(watch)
        self._by_literal = list(by_literal.values())
        self._automaton = _build(list(by_literal))
        self._streams: dict[int, _OfStream] = {}

    def candidates(self, document: WatchedTexts, place: StreamPlace) -> list[CompiledWatch]:
        """Return the watches of the kind `items` that may match, each once."""
        stream = self._of_stream(place)
        found = {watch.watch_id: watch for watch in stream.unfiltered if watch.kind == "items"}
        if self._automaton is not None:
            hits = {hit[0] for hit in self._automaton.find_matches_as_indexes(document.folded, overlapping=True)}
            for hit in hits:
                for watch in self._by_literal[hit]:
                    if watch.watch_id not in found and _accepts(stream, watch, place):
                        found[watch.watch_id] = watch
        return list(found.values())

    def of_kind(self, kind: str, place: StreamPlace) -> list[CompiledWatch]:
        """Return the watches of another kind that look at a stream."""
        return [watch for watch in self._of_stream(place).unfiltered if watch.kind == kind]

    def _of_stream(self, place: StreamPlace) -> _OfStream:
        known = self._streams.get(place.number)
        if known is None:
            named = (watch for name in place.names for watch in self._by_name.get(name, ()))
            chosen = {watch.watch_id: watch for watch in (*named, *self._others) if watch.filter.accepts(place)}
            if len(self._streams) >= _MOST_PLACES:
                self._streams.clear()
            known = self._streams[place.number] = _OfStream(list(chosen.values()))
        return known


class WatchSet:
    """An index, and the changes since it was built."""

    def __init__(self, index: WatchIndex, recent: Watches | None = None, gone: Iterable[str] = ()) -> None:
        self.index, self.recent, self.gone = index, dict(recent or {}), frozenset(gone)

    def __len__(self) -> int:
        return sum(1 for _ in self.all())

    def all(self) -> Iterator[CompiledWatch]:
        """Yield every watch."""
        yield from self.recent.values()
        for watch_id, watch in self.index.watches.items():
            if watch_id not in self.gone and watch_id not in self.recent:
                yield watch

    def change(self, changed: Watches, gone: Iterable[str] = ()) -> "WatchSet":
        """Return the set after a change."""
        removed = self.gone.union(gone) - changed.keys()
        recent = {key: watch for key, watch in {**self.recent, **changed}.items() if key not in removed}
        return WatchSet(self.index, recent, removed)

    def rebuild(self) -> "WatchSet":
        """Return the same watches with a new automaton. This takes a while."""
        return WatchSet(WatchIndex({watch.watch_id: watch for watch in self.all()}))

    def candidates(self, document: WatchedTexts, place: StreamPlace) -> list[CompiledWatch]:
        """Return the watches of the kind `items` that may match."""
        found = self._current(self.index.candidates(document, place))
        return found + [
            watch for watch in self.recent.values() if watch.kind == "items" and _may_match(watch, document, place)
        ]

    def of_kind(self, kind: str, place: StreamPlace) -> list[CompiledWatch]:
        """Return the watches of another kind that look at a stream."""
        return self._current(self.index.of_kind(kind, place)) + [
            watch for watch in self.recent.values() if watch.kind == kind and watch.filter.accepts(place)
        ]

    def kinds(self) -> frozenset[str]:
        """Return the kinds of all watches."""
        return self.index.kinds.union(watch.kind for watch in self.recent.values())

    def _current(self, watches: list[CompiledWatch]) -> list[CompiledWatch]:
        if not self.gone and not self.recent:
            return watches
        return [one for one in watches if one.watch_id not in self.gone and one.watch_id not in self.recent]


def _accepts(stream: _OfStream, watch: CompiledWatch, place: StreamPlace) -> bool:
    known = stream.accepted.get(watch.watch_id)
    if known is None:
        known = stream.accepted[watch.watch_id] = watch.filter.accepts(place)
    return known


def _may_match(watch: CompiledWatch, document: WatchedTexts, place: StreamPlace) -> bool:
    if not watch.filter.accepts(place):
        return False
    return watch.literals is None or any(literal in document.folded for literal in watch.literals)


def _build(literals: list[str]) -> "ahocorasick_rs.AhoCorasick | None":
    if not literals:
        return None
    kind = ahocorasick_rs.Implementation.ContiguousNFA
    return ahocorasick_rs.AhoCorasick(literals, implementation=kind, store_patterns=False)
