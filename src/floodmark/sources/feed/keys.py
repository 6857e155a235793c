"""The keys of entries: what a feed calls them, told apart where it calls several of them the same. Pure.

An id that a feed gives to one entry is the key of that entry. An id that it gives to several (one guid or one link for
all) is followed by a digest of what sets the entry apart: its link, title and date, and its text where those are the
same too. How far that has to go is remembered for each such id in the watermark, so that an entry has the same key when
it is the only one left in the feed; where it stands in the feed plays no part.
"""

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence

from floodmark.sources.web.feeds import FeedEntry

# Ids that are remembered, the latest of them.
_MOST_IDS = 1000
_BY_ID, _BY_HEAD, _BY_TEXT = 0, 1, 2


class Keys:
    """The keys of the entries of one feed. `levels`, from the watermark: how far known ids have to be told apart."""

    def __init__(self, levels: Mapping[str, int] | None = None) -> None:
        self.levels: dict[str, int] = dict(levels or {})
        # What earlier slices of the same document hold under an id.
        self._seen: dict[str, str] = {}

    def tell_apart(self, entries: Sequence[FeedEntry], *, is_last: bool = True) -> dict[str, FeedEntry]:
        """Each entry under its key. Of two that are the same in everything the first counts."""
        groups: dict[str, list[FeedEntry]] = defaultdict(list)
        for entry in entries:
            groups[entry.id].append(entry)
        found: dict[str, FeedEntry] = {}
        for name, group in groups.items():
            level = self._level(name, group, is_last=is_last)
            for entry in group:
                found.setdefault(_key(entry, level), entry)
        return found

    def _level(self, name: str, group: Sequence[FeedEntry], *, is_last: bool) -> int:
        digest = _digest(name)
        before = level = self.levels.get(digest, _BY_ID)
        while level < _BY_TEXT and _is_mixed(group, level):
            level += 1
        said = _digest(*_said(group[0]))
        if level == _BY_ID and self._seen.get(digest, said) != said:
            level = _BY_HEAD
        if not is_last:
            self._seen[digest] = said
        if level != before:
            self.levels.pop(digest, None)
            self.levels[digest] = level
            while len(self.levels) > _MOST_IDS:
                del self.levels[next(iter(self.levels))]
        return level


def _is_mixed(group: Sequence[FeedEntry], level: int) -> bool:
    """Whether entries that say different things would have one key."""
    if len(group) == 1:
        return False
    said: dict[str, tuple[str, ...]] = {}
    return any(said.setdefault(_key(entry, level), _said(entry)) != _said(entry) for entry in group)


def _key(entry: FeedEntry, level: int) -> str:
    if level == _BY_ID:
        return entry.id
    apart = _head(entry) if level == _BY_HEAD else _said(entry)
    return f"{entry.id[:900]}#{_digest(*apart)}"


def _head(entry: FeedEntry) -> tuple[str, ...]:
    moment = entry.published or entry.updated
    return (entry.link or "", entry.title, "" if moment is None else moment.isoformat())


def _said(entry: FeedEntry) -> tuple[str, ...]:
    if entry.summary or entry.content:
        return (*_head(entry), entry.summary, entry.content)
    return (*_head(entry), *(enclosure.url for enclosure in entry.enclosures))


def _digest(*said: str) -> str:
    return hashlib.blake2b("\n".join(said).encode(errors="replace"), digest_size=8).hexdigest()
