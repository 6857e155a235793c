"""JSON Feed 1.0 and 1.1 (jsonfeed.org). Pure."""

import json
import re
from typing import Any

import msgspec

from .extract import moment_of
from .feeds import MOST_ENCLOSURES, Enclosure, Feed, FeedEntry, id_of, words_of
from .trees import NotXml

_ITEMS = re.compile(r'"items"\s*:\s*\[')
_BETWEEN = re.compile(r"[\s,]*")


def parse_json_feed(text: str, *, skip: int, most: int) -> Feed:
    """The feed in this document, or `NotXml`. Of one that is cut short, the entries that are whole."""
    fault = None
    try:
        read = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        read, fault = {"items": _whole_items(text)}, str(error)[:100]
    items = read.get("items") if isinstance(read, dict) else None
    if not isinstance(items, list) or (not items and "jsonfeed" not in str(read.get("version", ""))):
        raise NotXml("is JSON, but no JSON Feed")
    chosen = items[skip : skip + most]
    entries = [entry for item in chosen if isinstance(item, dict) and (entry := _entry(item)) is not None]
    return Feed(
        title=_line(read.get("title")),
        link=_word(read.get("home_page_url")),
        language=_word(read.get("language")),
        entries=tuple(entries),
        total=len(items),
        empty=len(chosen) - len(entries),
        fault=fault,
    )


def _whole_items(text: str) -> list[Any]:
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


def _entry(item: dict[str, Any]) -> FeedEntry | None:
    link = _word(item.get("url")) or _word(item.get("external_url"))
    title = _line(item.get("title"))
    summary, is_cut = words_of(_word(item.get("summary")) or "")
    content, is_content_cut = words_of(_word(item.get("content_html")) or _word(item.get("content_text")) or "")
    name = id_of(_word(item.get("id")) or link, title, summary, content)
    if name is None:
        return None
    tags = item.get("tags")
    return FeedEntry(
        id=name,
        link=link,
        title=title,
        summary=summary,
        content=content,
        author=_author(item),
        published=moment_of(_word(item.get("date_published")) or ""),
        updated=moment_of(_word(item.get("date_modified")) or ""),
        tags=tuple(dict.fromkeys(word[:200] for tag in tags[:50] if (word := _word(tag))))
        if isinstance(tags, list)
        else (),
        enclosures=tuple(_enclosures(item)),
        is_cut=is_cut or is_content_cut,
    )


def _author(item: dict[str, Any]) -> str | None:
    authors = item.get("authors") or [item.get("author")]
    first = authors[0] if isinstance(authors, list) and authors else None
    return (_line(first.get("name")) or None) if isinstance(first, dict) else None


def _enclosures(item: dict[str, Any]) -> list[Enclosure]:
    attached = item.get("attachments")
    found = []
    for one in attached[:MOST_ENCLOSURES] if isinstance(attached, list) else ():
        address = _word(one.get("url")) if isinstance(one, dict) else None
        if address:
            size = one.get("size_in_bytes")
            is_size = isinstance(size, int) and not isinstance(size, bool) and 0 <= size < 10**15
            found.append(
                Enclosure(url=address[:2000], type=_word(one.get("mime_type")), length=size if is_size else None)
            )
    return found


def _word(value: Any) -> str | None:
    """A text, or a number that stands where a text should."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    return str(value).strip() or None


def _line(value: Any) -> str:
    return " ".join((_word(value) or "").split())[:500]
