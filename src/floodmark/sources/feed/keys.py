"""The keys of feed entries. Pure.

The id of an entry is its key. If several entries share an id (one guid or link for all), a digest is added: of link,
title and date, and also of the text where those are the same. The watermark stores this level for each shared id, so
that an entry keeps its key when it is the only one left. The position in the feed does not matter.
"""

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence

from floodmark.sources.web.feeds import FeedEntry

# Shared ids that are stored, the latest ones.
_MAX_IDS = 1000
_BY_ID, _BY_HEAD, _BY_TEXT = 0, 1, 2


class Keys:
    """Assigns keys to the entries of one feed. `levels`: the stored levels of shared ids."""

    def __init__(self, levels: Mapping[str, int] | None = None) -> None:
        self.levels: dict[str, int] = dict(levels or {})
        # Content digests by id in earlier slices of the same document.
        self._seen: dict[str, str] = {}

    def assign_keys(self, entries: Sequence[FeedEntry], *, is_last: bool = True) -> dict[str, FeedEntry]:
        """Return entries by key; of identical entries the first one."""
        groups: dict[str, list[FeedEntry]] = defaultdict(list)
        for entry in entries:
            groups[entry.id].append(entry)
        found: dict[str, FeedEntry] = {}
        for name, group in groups.items():
            level = self._find_level(name, group, is_last=is_last)
            for entry in group:
                found.setdefault(_key(entry, level), entry)
        return found

    def _find_level(self, name: str, group: Sequence[FeedEntry], *, is_last: bool) -> int:
        digest = _digest(name)
        before = level = self.levels.get(digest, _BY_ID)
        while level < _BY_TEXT and _is_mixed(group, level):
            level += 1
        content = _digest(*_content(group[0]))
        if level == _BY_ID and self._seen.get(digest, content) != content:
            level = _BY_HEAD
        if not is_last:
            self._seen[digest] = content
        if level != before:
            self.levels.pop(digest, None)
            self.levels[digest] = level
            while len(self.levels) > _MAX_IDS:
                del self.levels[next(iter(self.levels))]
        return level


def _is_mixed(group: Sequence[FeedEntry], level: int) -> bool:
    """Return whether different entries would have the same key."""
    if len(group) == 1:
        return False
    first: dict[str, tuple[str, ...]] = {}
    return any(first.setdefault(_key(entry, level), _content(entry)) != _content(entry) for entry in group)


def _key(entry: FeedEntry, level: int) -> str:
    if level == _BY_ID:
        return entry.id
    parts = _head(entry) if level == _BY_HEAD else _content(entry)
    return f"{entry.id[:900]}#{_digest(*parts)}"


def _head(entry: FeedEntry) -> tuple[str, ...]:
    moment = entry.published or entry.updated
    return (entry.link or "", entry.title, "" if moment is None else moment.isoformat())


def _content(entry: FeedEntry) -> tuple[str, ...]:
    if entry.summary or entry.content:
        return (*_head(entry), entry.summary, entry.content)
    return (*_head(entry), *(enclosure.url for enclosure in entry.enclosures))


def _digest(*parts: str) -> str:
    return hashlib.blake2b("\n".join(parts).encode(errors="replace"), digest_size=8).hexdigest()
