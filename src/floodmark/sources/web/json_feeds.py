"""Parses JSON Feed 1.0 and 1.1 (jsonfeed.org). Pure."""

import json
import re
from typing import Any

import msgspec

from .extract import parse_time
from .feeds import MOST_ENCLOSURES, Enclosure, Feed, FeedEntry, bounded_text, entry_id
from .xml_trees import NotXml

_ITEMS = re.compile(r'"items"\s*:\s*\[')
_BETWEEN = re.compile(r"[\s,]*")


def parse_json_feed(text: str, *, skip: int, most: int) -> Feed:
    """Return the feed in a document, of a truncated one its complete entries; raise `NotXml` if it is none."""
    fault = None
    try:
        read = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        read, fault = {"items": _read_complete_items(text)}, str(error)[:100]
    items = read.get("items") if isinstance(read, dict) else None
    if not isinstance(items, list) or (not items and "jsonfeed" not in str(read.get("version", ""))):
        raise NotXml("is JSON, but not a JSON Feed")
    chosen = items[skip : skip + most]
    entries = [entry for item in chosen if isinstance(item, dict) and (entry := _read_entry(item)) is not None]
    return Feed(
        title=_line(read.get("title")),
        link=_text(read.get("home_page_url")),
        language=_text(read.get("language")),
        entries=tuple(entries),
        total=len(items),
        empty=len(chosen) - len(entries),
        fault=fault,
        hub=_find_hub(read.get("hubs")),
        self_link=_text(read.get("feed_url")),
    )


def _read_complete_items(text: str) -> list[Any]:
    begin = _ITEMS.search(text)
    found: list[Any] = []
    decoder, at = json.JSONDecoder(), begin.end() if begin else len(text)
    while True:
        between = _BETWEEN.match(text, at)
        at = between.end() if between else at
        try:
            item, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            return found
        found.append(item)


def _read_entry(item: dict[str, Any]) -> FeedEntry | None:
    link = _text(item.get("url")) or _text(item.get("external_url"))
    title = _line(item.get("title"))
    summary, is_cut = bounded_text(_text(item.get("summary")) or "")
    content, is_content_cut = bounded_text(_text(item.get("content_html")) or _text(item.get("content_text")) or "")
    name = entry_id(_text(item.get("id")) or link, title, summary, content)
    if name is None:
        return None
    tags = item.get("tags")
    return FeedEntry(
        id=name,
        link=link,
        title=title,
        summary=summary,
        content=content,
        author=_find_author(item),
        published=parse_time(_text(item.get("date_published")) or ""),
        updated=parse_time(_text(item.get("date_modified")) or ""),
        tags=tuple(dict.fromkeys(word[:200] for tag in tags[:50] if (word := _text(tag))))
        if isinstance(tags, list)
        else (),
        enclosures=tuple(_read_enclosures(item)),
        is_cut=is_cut or is_content_cut,
    )


def _find_author(item: dict[str, Any]) -> str | None:
    authors = item.get("authors") or [item.get("author")]
    first = authors[0] if isinstance(authors, list) and authors else None
    return (_line(first.get("name")) or None) if isinstance(first, dict) else None


def _find_hub(hubs: Any) -> str | None:
    found = [hub for hub in hubs if isinstance(hub, dict)] if isinstance(hubs, list) else []
    return next((_text(hub.get("url")) for hub in found if str(hub.get("type")).lower() == "websub"), None)


def _read_enclosures(item: dict[str, Any]) -> list[Enclosure]:
    attached = item.get("attachments")
    found = []
    for one in attached[:MOST_ENCLOSURES] if isinstance(attached, list) else ():
        address = _text(one.get("url")) if isinstance(one, dict) else None
        if address:
            size = one.get("size_in_bytes")
            is_size = isinstance(size, int) and not isinstance(size, bool) and 0 <= size < 10**15
            found.append(
                Enclosure(url=address[:2000], type=_text(one.get("mime_type")), length=size if is_size else None)
            )
    return found


def _text(value: Any) -> str | None:
    """Return a text, also for a number in place of one."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    return str(value).strip() or None


def _line(value: Any) -> str:
    return " ".join((_text(value) or "").split())[:500]
