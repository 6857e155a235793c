"""What an item is, and its content in a form for people. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct

from floodmark.model.posts import chat_of, message_id_of
from floodmark.model.streams import ItemHistory, StoredItem
from floodmark.rules.streams import split_stream

ItemKind = Literal["post", "report", "page", "entry", "other"]

_REPORT = "floodmark.cookies/"
_TITLES = ("title", "headline", "subject", "name")
# The main text of an item, by the first of these fields that it has.
_TEXTS = ("text", "content", "body", "summary", "description", "message", "caption")
# What the page of an item shows elsewhere, or what says nothing to people.
_HIDDEN = frozenset({"hash", "difference", "schema", "manifest", "phases", "links", "more_links", "entities", "kind"})
_MOST_FIELDS, _LONGEST_TEXT = 60, 20_000


class ItemField(Struct, frozen=True):
    """A field of an item: its name and its value as text."""

    name: str
    text: str
    is_link: bool = False


class LenientFields(dict[str, Any]):
    """The fields of an item for a template: one that is missing is None."""

    def __missing__(self, name: str) -> None:
        return None


def lenient(value: Any) -> Any:
    """Return an object and those in it with None for missing fields; anything else as it is."""
    if isinstance(value, Mapping):
        return LenientFields({str(name): lenient(inner) for name, inner in value.items()})
    return value


def rows_of(value: Any, most: int = 200) -> list[Any]:
    """Return the first elements of a list; none of what is no list."""
    return [lenient(one) for one in value[:most]] if isinstance(value, list) else []


def kind_of(item: StoredItem) -> ItemKind:
    """Return what an item is, by its stream and its fields."""
    data = item.data
    if not isinstance(data, Mapping):
        return "other"
    chat = chat_of(item.stream)
    if chat is not None and message_id_of(chat, item.key) is not None and isinstance(data.get("text"), str):
        return "post"
    if str(data.get("schema", "")).startswith(_REPORT) and isinstance(data.get("phases"), list):
        return "report"
    if "published" in data and "fetched_at" in data and "hash" not in data:
        return "entry"
    if isinstance(data.get("url"), str) and isinstance(data.get("text"), str):
        return "page"
    return "other"


def title_of(item: StoredItem) -> str:
    """Return the title of an item, or what else names it."""
    data = item.data if isinstance(item.data, Mapping) else {}
    title = next((data[name] for name in _TITLES if _is_text(data.get(name))), None)
    if title is not None:
        return str(title).strip()[:300]
    kind = kind_of(item)
    if kind == "post":
        channel = data.get("channel")
        where = f"@{channel}" if _is_text(channel) else split_stream(item.stream)[1]
        return f"Post {item.key.rpartition(':')[2]} of {where}"[:300]
    if kind == "report":
        return f"Cookies of {data.get('domain', split_stream(item.stream)[1])}"[:300]
    return item.key[:300]


def describe_untitled(stream: str, key: str) -> str:
    """Return what stands in a list for an item that has neither a title nor a text."""
    chat = chat_of(stream)
    number = None if chat is None else message_id_of(chat, key)
    return f"Post {number} without text" if number is not None else key


def text_of(data: Any) -> str:
    """Return the main text of an item, to be compared with other revisions; without one, all its fields."""
    if isinstance(data, Mapping):
        found = next((data[name] for name in _TEXTS if _is_text(data.get(name))), None)
        title = next((data[name] for name in _TITLES if _is_text(data.get(name))), None)
        if found is not None:
            return f"{title}\n{found}" if title is not None else str(found)
    return data if isinstance(data, str) else pretty_json(data)


def main_text(data: Any) -> str:
    """Return the text that is shown as the content of an item, cut after some thousand characters."""
    found = next((data[name] for name in _TEXTS if _is_text(data.get(name))), "") if isinstance(data, Mapping) else ""
    return found if len(found) <= _LONGEST_TEXT else f"{found[: _LONGEST_TEXT - 1]}…"


def pretty_json(value: Any) -> str:
    """Return a value as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(value, enc_hook=str), indent=2).decode()


def url_of(item: StoredItem) -> str | None:
    """Return the address of an item at its source, if it is known."""
    data = item.data if isinstance(item.data, Mapping) else {}
    kind = kind_of(item)
    if kind == "post" and _is_text(data.get("channel")):
        return f"https://t.me/{str(data['channel'])[:64]}/{item.key.rpartition(':')[2]}"
    names = ("final", "start") if kind == "report" else ("link", "url")
    found = [data[name] for name in names if _is_text(data.get(name))] + [item.key]
    return next((one[:2000] for one in found if one.startswith(("http://", "https://"))), None)


def fields_of(data: Any, shown: Sequence[str] = ()) -> list[ItemField]:
    """Return the fields of an item that are not shown otherwise, as a table."""
    if not isinstance(data, Mapping):
        return [ItemField("value", _plain(data))]
    names = [
        name for name in data if name not in _HIDDEN and name not in shown and data[name] not in (None, "", [], {})
    ]
    return [ItemField(str(name)[:80], _plain(data[name]), _is_address(data[name])) for name in names[:_MOST_FIELDS]]


def earlier_of(history: ItemHistory, revision: int) -> StoredItem | None:
    """Return the last revision before another one."""
    return next((one for one in history.earlier if one.revision < revision), None)


def revisions_of(history: ItemHistory) -> Iterator[StoredItem]:
    """Yield all revisions, the newest first."""
    yield history.newest
    yield from history.earlier


def _plain(value: Any) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value, enc_hook=str).decode()
    return text if len(text) <= 2000 else f"{text[:1999]}…"


def _is_address(value: Any) -> bool:
    return isinstance(value, str) and value.startswith(("http://", "https://")) and " " not in value[:2000]


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())
