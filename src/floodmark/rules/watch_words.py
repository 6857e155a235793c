"""A watch in words. Pure."""

from collections.abc import Mapping

from floodmark.model.watches import WatchFields, WatchKind

KIND_WORDS: Mapping[WatchKind, str] = {
    "items": "items",
    "page_changed": "pages that change",
    "cookie_before_consent": "cookies set before consent",
    "cookies_changed": "cookies that change",
    "source_gone": "sources that are gone",
    "source_late": "sources that are late",
}


def describe_search(fields: WatchFields) -> str:
    """Return what a watch looks for, in a few words."""
    parts = [fields.query, None if fields.pattern is None else f"/{fields.pattern}/", *fields.where]
    wanted = " and ".join(part for part in parts if part)
    if fields.kind == "items":
        return wanted or "every item"
    return f"{KIND_WORDS[fields.kind]}: {wanted}" if wanted else KIND_WORDS[fields.kind]


def describe_places(fields: WatchFields) -> str:
    """Return where a watch looks; empty if it looks at all streams."""
    named = [*fields.streams, *(f"source {one}" for one in fields.sources), *(f"tag {one}" for one in fields.tags)]
    return ", ".join(named)
