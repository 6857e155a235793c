"""One item: its content as people know it, its revisions, and what has changed between them."""

import asyncio
from collections.abc import Mapping
from typing import Any

from floodmark.dashboard.differences import compare_texts
from floodmark.dashboard.engagement_chart import draw_engagement
from floodmark.dashboard.item_content import (
    fields_of,
    kind_of,
    lenient,
    main_text,
    pretty_json,
    rows_of,
    text_of,
    title_of,
    url_of,
)
from floodmark.dashboard.media_content import group_files, media_ids_of
from floodmark.dashboard.page import page
from floodmark.dashboard.post_text import describe_media, mark_post
from floodmark.dashboard.report_content import report_of
from floodmark.dashboard.view import View
from floodmark.errors import InvalidInput, NotFound
from floodmark.model.posts import chat_of
from floodmark.model.streams import ItemHistory, StoredItem
from floodmark.rules.streams import split_stream

_REVISIONS = 30
_LOOKS = ("content", "changes", "side", "json")
# Fields that the page of each kind shows by itself.
_SHOWN = {
    "post": ("id", "channel_id", "channel", "date", "text", "media", "views", "forwards", "replies", "reactions",
             "edit_date", "reply_to", "forwarded_from", "author", "pinned", "grouped_id", "hidden_edit_date"),
    "page": ("url", "title", "text", "fetched_at"),
    "entry": ("id", "link", "title", "summary", "content", "author", "tags", "enclosures", "feed", "published",
              "updated", "fetched_at"),
    "report": ("domain", "result", "findings", "start", "final", "notes", "browser", "seconds", "summary"),
    "other": (),
}  # fmt: skip


@page("/item/{stream}/{key}", "item.html", live=("item",))
async def show_item(view: View) -> Mapping[str, Any]:
    """Show one revision of an item, or what has changed in it."""
    stream, key, look = view.param("stream"), view.param("key"), view.query("look") or "content"
    if look not in _LOOKS:
        raise InvalidInput(f"look is {look[:40]!r}", hint=f"use one of {', '.join(_LOOKS)}")
    history = await view.operations.item(stream, key, limit=_REVISIONS)
    item, earlier = await _choose(view, history)
    kind = kind_of(item)
    values: dict[str, Any] = {
        "history": history,
        "item": item,
        "earlier": earlier,
        "kind": kind,
        "look": look,
        "title": title_of(item),
        "url": url_of(item),
        "channel": split_stream(item.stream),
        "chat": chat_of(item.stream),
        "is_newest": item.revision == history.newest.revision,
        "difference": None,
        "files": [],
        "engagement": None,
    }
    if look in ("changes", "side") and earlier is not None:
        # On a thread: the comparison of long texts takes a while.
        values["difference"] = await asyncio.to_thread(compare_texts, text_of(earlier.data), text_of(item.data))
    elif look == "json":
        values["json"] = pretty_json(item.data)
    beside = await _beside(view, item) if kind == "post" and look == "content" else {}
    return {**values, **_content(item, kind), **beside}


async def _beside(view: View, item: StoredItem) -> dict[str, Any]:
    """Return what is stored beside a post: its files, and how often it was seen over time."""
    ids = media_ids_of(item.data)
    files = group_files((await view.operations.media(ids=ids, limit=len(ids))).items) if ids else []
    [engagement] = (await view.operations.engagement(item.stream, key=item.key)).items
    is_over_time = len(engagement.samples) > 1
    drawn = draw_engagement(engagement) if is_over_time else None
    return {"files": files, "engagement": engagement if is_over_time else None, "engagement_chart": drawn}


async def _choose(view: View, history: ItemHistory) -> tuple[StoredItem, StoredItem | None]:
    """Return the revision of the address, or the newest one, and the one before it."""
    newest, wanted = history.newest, view.query("revision")
    if wanted is None or wanted == str(newest.revision):
        return newest, history.earlier[0] if history.earlier else None
    number = int(wanted) if wanted.isascii() and wanted.isdecimal() and len(wanted) < 10 else 0
    found: tuple[StoredItem, ...] = ()
    if 0 < number < newest.revision:
        found = (await view.operations.item(newest.stream, newest.key, before=number + 1, limit=2)).earlier
    if not found or found[0].revision != number:
        raise NotFound(f"this item has no revision {wanted[:20]!r}", hint=f"it has 1 to {newest.revision}")
    return found[0], found[1] if len(found) > 1 else None


def _content(item: StoredItem, kind: str) -> dict[str, Any]:
    data = item.data
    values = {"data": lenient(data), "fields": fields_of(data, _SHOWN[kind]), "text": main_text(data)}
    if kind == "post":
        return {
            **values,
            "marked": mark_post(data.get("text"), data.get("entities")),
            "medium": describe_media(data.get("media")),
            "reactions": [one for one in rows_of(data.get("reactions"), 20) if isinstance(one, Mapping)],
        }
    if kind == "report":
        return {**values, "report": report_of(data)}
    if kind in ("page", "entry"):
        return {**values, **{name: rows_of(data.get(name)) for name in ("links", "tags", "enclosures")}}
    return values


PAGES = (show_item,)
