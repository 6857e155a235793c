"""Decide whether a post of the preview and one that an account has read are the same, so that a job can be switched
between them without false revisions. Pure.

Only what both show counts: text, formatting, the kind of media. An album is compared as a whole, because the preview
does not say to which message its text belongs.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from floodmark.model.batch import Item

from .posts import group_by_album, kind_of, merge_changes
from .texts import plain_address

# The preview shows these for certain.
_SHOWN = frozenset({"bold", "italic", "underline", "strike", "code", "pre", "spoiler", "blockquote", "text_url"})


def drop_known(items: Sequence[Item], stored: Mapping[str, dict[str, Any]]) -> list[Item]:
    """Return the items of a preview that are new or changed, given the stored data of their keys.

    A changed item contains what is stored and the preview hides.
    """
    changed: dict[str, Item] = {}
    for group in group_by_album(items):
        known = [stored[item.key] for item in group if item.key in stored]
        # Messages of an album may have been posted later than the others.
        changed |= {item.key: item for item in group if item.key not in stored}
        if len(known) == len(group) and not look_same(known, [item.data for item in group]):
            changed |= {item.key: merge_changes(stored[item.key], item) for item in group}
    return [changed[item.key] for item in items if item.key in changed]


def drop_previewed(items: Sequence[Item], stored: Mapping[str, dict[str, Any]]) -> list[Item]:
    """Return the items of an account without those that are stored from the preview and have not changed."""
    dropped: set[str] = set()
    for group in group_by_album([item for item in items if not item.deleted]):
        both = [item for item in group if item.key in stored]
        known = [stored[item.key] for item in both]
        if any(data.get("preview") for data in known) and look_same(known, [item.data for item in both]):
            dropped.update(item.key for item in both)
    return [item for item in items if item.key not in dropped]


def look_same(some: Sequence[dict[str, Any]], others: Sequence[dict[str, Any]]) -> bool:
    """Return whether two readings of a message, or of an album, show the same."""
    by_id = {data["id"]: data for data in others}
    if not all(_is_same_kind(data, by_id.get(data["id"])) for data in some):
        return False
    ours, theirs = _texts(some), _texts(others)
    if ours == theirs:
        return True
    # An album with several texts: the preview shows none of them.
    return any(len(texts) > 1 and not other for texts, other in ((ours, theirs), (theirs, ours)))


def _is_same_kind(data: dict[str, Any], other: dict[str, Any] | None) -> bool:
    if other is None or data.get("kind") != other.get("kind"):
        return False
    kinds = {kind_of(data.get("media")), kind_of(other.get("media"))}
    return len(kinds) == 1 or "any" in kinds


def _texts(group: Sequence[dict[str, Any]]) -> set[tuple[Any, ...]]:
    return {(data["text"].strip(), _formatting(data)) for data in group if data.get("text")}


def _formatting(data: dict[str, Any]) -> frozenset[tuple[Any, ...]]:
    entities = data.get("entities") or ()
    return frozenset(
        (entity["type"], entity["offset"], entity["length"], plain_address(entity.get("url") or ""))
        for entity in entities
        if entity["type"] in _SHOWN
    )
