"""Text of a post in the web preview: its plain text, and its entities in the form of Telegram. Pure."""

import re
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from selectolax.lexbor import LexborNode

_PLAIN = {
    "b": "bold",
    "strong": "bold",
    "i": "italic",
    "em": "italic",
    "u": "underline",
    "ins": "underline",
    "s": "strike",
    "del": "strike",
    "strike": "strike",
    "code": "code",
    "tg-spoiler": "spoiler",
}
# How a link begins, and what it is.
_SCHEMES = {
    "?q=%23": "hashtag",
    "?q=#": "hashtag",
    "?q=%24": "cashtag",
    "?q=$": "cashtag",
    "mailto:": "email",
    "tel:": "phone",
}
_LANGUAGE = re.compile(r"language-(\S+)")
# Nothing that Telegram writes is nested deeper.
_DEEPEST = 100


def read_text(node: LexborNode) -> tuple[str, list[dict[str, Any]]]:
    """Return the text below a node and its entities, whose offsets count UTF-16 units."""
    reader = _TextReader()
    reader.read(node, 0)
    text = "".join(reader.parts)
    left = _units(text) - _units(text.lstrip())
    text = text.strip()
    found = [_shift(entity, left, _units(text)) for entity in reader.entities]
    entities = [entity for entity in found if entity["length"] > 0]
    return text, sorted(entities, key=lambda entity: (entity["offset"], -entity["length"]))


def plain_text(node: LexborNode | None) -> str:
    """Return the text below a node in one line; an empty text without a node."""
    return "" if node is None else " ".join(node.text(deep=True).split())


class _TextReader:
    def __init__(self) -> None:
        self.parts: list[str] = []
        self.entities: list[dict[str, Any]] = []
        self._at = 0

    def read(self, node: LexborNode, depth: int) -> None:
        for child in node.iter(include_text=True):
            if child.tag == "-text":
                self._add(child.text(deep=True))
            elif child.tag == "br":
                self._add("\n")
            elif depth < _DEEPEST:
                self._read_element(child, depth)

    def _add(self, text: str) -> None:
        self.parts.append(text)
        self._at += _units(text)

    def _read_element(self, node: LexborNode, depth: int) -> None:
        begin, place, first = self._at, len(self.entities), len(self.parts)
        classes = (node.attributes.get("class") or "").split()
        if node.tag == "i" and "emoji" in classes:
            # An emoji as a picture, with its character inside.
            self._add(node.text(deep=True))
            return
        self.read(node, depth + 1)
        details = _describe(node, classes, "".join(self.parts[first:]))
        if details is None or self._at == begin:
            return
        if details["type"] == "pre":
            # The code inside is part of it.
            self.entities[place:] = [entity for entity in self.entities[place:] if entity["type"] != "code"]
        kind = details.pop("type")
        self.entities.insert(place, {"type": kind, "offset": begin, "length": self._at - begin, **details})


def _describe(node: LexborNode, classes: list[str], text: str) -> dict[str, Any] | None:
    tag, attributes = node.tag or "", node.attributes
    if tag in _PLAIN:
        return {"type": _PLAIN[tag]}
    if tag == "a":
        return _describe_link(attributes.get("href") or "", text)
    if tag == "pre":
        code = node.css_first("code")
        named = _LANGUAGE.search((code.attributes.get("class") or "") if code is not None else "")
        return {"type": "pre", "language": named[1] if named else ""}
    if tag == "blockquote":
        return {"type": "blockquote", **({"collapsed": True} if "expandable" in attributes else {})}
    if tag == "tg-emoji":
        return {"type": "custom_emoji", "document_id": attributes.get("emoji-id") or ""}
    return {"type": "spoiler"} if tag == "span" and "tg-spoiler" in classes else None


def _describe_link(href: str, text: str) -> dict[str, Any] | None:
    for begin, kind in _SCHEMES.items():
        if href.startswith(begin):
            return {"type": kind}
    if href.startswith("tg://user?"):
        user = parse_qs(urlsplit(href).query).get("id", [""])[0]
        return {"type": "mention_name", "user_id": user}
    if not href:
        return None
    if text.startswith("@") and plain_address(href) == f"t.me/{text[1:].lower()}":
        return {"type": "mention"}
    return {"type": "url"} if plain_address(href) == plain_address(text) else {"type": "text_url", "url": href}


def plain_address(url: str) -> str:
    """Return a URL without its scheme and last slash, to compare a link with its text."""
    found = unquote(url.strip())
    host, slash, path = re.sub(r"^https?://", "", found, flags=re.IGNORECASE).partition("/")
    return f"{host.lower()}{slash}{path.lower() if host.lower() == 't.me' else path}".rstrip("/")


def _shift(entity: dict[str, Any], left: int, length: int) -> dict[str, Any]:
    """Return an entity after white space was removed around the text."""
    begin = max(0, entity["offset"] - left)
    end = min(length, entity["offset"] + entity["length"] - left)
    return {**entity, "offset": begin, "length": end - begin}


def _units(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2
