"""XML of strangers: read without entities of their own, and within bounds. Pure."""

import html
import re
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

_MOST_ELEMENTS, _DEEPEST = 500_000, 100
# Those of HTML, which many feeds use as if XML knew them.
_ENTITY = re.compile(rb"&(?!(?:amp|lt|gt|quot|apos);)([A-Za-z][A-Za-z0-9]{1,30});")
_CONTROL = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")


class NotXml(ValueError):
    """It is not XML that we would read, and why."""


def parse(content: bytes) -> Element:
    """The document, its names without namespaces, or `NotXml`."""
    try:
        return _parse(content)
    except NotXml:
        mended = _ENTITY.sub(_letter, _CONTROL.sub(b"", content.lstrip()))
        if mended == content:
            raise
    return _parse(mended)


def text_of(element: Element | None) -> str:
    """All the text in an element, in order."""
    return "" if element is None else "".join(element.itertext()).strip()


def _letter(match: "re.Match[bytes]") -> bytes:
    found = html.unescape(match[0].decode("ascii"))
    return (
        b"".join(b"&#%d;" % ord(letter) for letter in found) if not found.startswith("&") else b"&amp;" + match[0][1:]
    )


def _parse(content: bytes) -> Element:
    reading = _Reading()
    parser = expat.ParserCreate(namespace_separator="}")
    parser.buffer_text = True
    parser.StartElementHandler = reading.start
    parser.EndElementHandler = reading.end
    parser.CharacterDataHandler = reading.data
    parser.EntityDeclHandler = reading.entity
    try:
        parser.Parse(content, True)
        return reading.close()
    except (expat.ExpatError, LookupError, AssertionError) as error:
        raise NotXml(f"not well-formed: {error}") from error


class _Reading:
    def __init__(self) -> None:
        self._builder, self._depth, self._count = TreeBuilder(), 0, 0

    def start(self, name: str, attributes: dict[str, str]) -> None:
        self._depth, self._count = self._depth + 1, self._count + 1
        if self._depth > _DEEPEST or self._count > _MOST_ELEMENTS:
            raise NotXml("too deep or too long")
        self._builder.start(_local(name), {_local(key): value for key, value in attributes.items()})

    def end(self, name: str) -> None:
        self._depth -= 1
        self._builder.end(_local(name))

    def data(self, text: str) -> None:
        self._builder.data(text)

    def entity(self, name: str, *_: object) -> None:
        # One entity made of many others is how a small document becomes gigabytes.
        raise NotXml(f"declares the entity {name[:40]!r}")

    def close(self) -> Element:
        return self._builder.close()


def _local(name: str) -> str:
    return name.rpartition("}")[2]
