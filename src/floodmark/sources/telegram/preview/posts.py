"""Make items of the posts of a preview: the same keys and fields as those of posts that an account reads. Pure."""

from collections.abc import Sequence
from typing import Any

from floodmark.model.batch import Item

from .pages import ShownPost


def items_of(post: ShownPost, channel_id: int, name: str) -> list[Item]:
    """Return the items of a post, one for each message of an album.

    The fingerprint has the form of posts that an account reads, so that a plain text has the same one. `sameness` tells
    whether posts with media have changed: the preview does not show the ids of files.
    """
    return [_item_of(post, number, channel_id, name) for number in post.ids]


def _item_of(post: ShownPost, number: int, channel_id: int, name: str) -> Item:
    is_first = number == post.ids[0]
    # The preview shows the text of an album once and does not say to which message it belongs; mostly the first.
    text, entities = (post.text, post.entities) if is_first else ("", [])
    data: dict[str, Any] = {
        "id": number,
        "channel_id": channel_id,
        "channel": name,
        "date": post.date,
        "text": text,
        "kind": "service" if post.is_service else "message",
    }
    fingerprint: list[Any] = [text]
    if entities:
        data["entities"] = entities
        fingerprint.append(entities)
    media = post.media.get(number)
    if media is not None:
        data["media"] = media
        if media["type"] != "webpage":
            fingerprint.append(media["type"])
    if len(post.ids) > 1:
        # The real one is not shown. Numbers of messages are much smaller.
        data["grouped_id"] = str(post.ids[0])
    data |= post.details
    if post.is_service:
        fingerprint.append(post.details["action"])
    data["preview"] = True
    return Item(f"{channel_id}:{number}", data, post.date, fingerprint)


def merge_changes(stored: dict[str, Any], seen: Item) -> Item:
    """Return the item of a stored post that the preview shows changed: hidden fields stay as stored."""
    shown: dict[str, Any] = seen.data
    merged = {name: value for name, value in stored.items() if name not in ("entities", "edit_date")} | shown
    before, now = stored.get("media"), shown.get("media")
    if before is not None and (now is None or _has_details(before, now)):
        merged["media"] = before
    if "grouped_id" in stored:
        merged["grouped_id"] = stored["grouped_id"]
    # The time is as it was stored: the preview shows none of edits.
    merged["date"] = seen.occurred_at
    return Item(seen.key, merged, seen.occurred_at, seen.fingerprint)


def _has_details(before: dict[str, Any], now: dict[str, Any]) -> bool:
    """Return whether stored media is what the preview shows, with the id that it hides."""
    return "id" in before and kind_of(before) == kind_of(now)


_SHOWN_AS = {"animation": "video", "audio": "document", "webpage": None, "unsupported": "any"}
_KNOWN = frozenset({"photo", "video", "round_video", "voice", "document", "sticker", "poll", "geo", "contact"})


def kind_of(media: dict[str, Any] | None) -> str | None:
    """Return the kind of media as far as the preview shows it: None for no file, `any` if it cannot tell."""
    if media is None:
        return None
    kind: str = media.get("type", "unsupported")
    if kind in _SHOWN_AS:
        return _SHOWN_AS[kind]
    return kind if kind in _KNOWN else "any"


def group_by_album(items: Sequence[Item]) -> list[list[Item]]:
    """Return items in groups: those of an album together."""
    groups: dict[str, list[Item]] = {}
    for item in items:
        groups.setdefault(item.data.get("grouped_id") or item.key, []).append(item)
    return list(groups.values())
