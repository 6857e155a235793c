"""Parses untrusted XML, well-formed or not, within limits. Pure.

A document is parsed strictly first. If that fails it is parsed tag by tag: invalid markup counts as text, an element
that was left open ends with its parent, and a new entry ends the one before it. So an error costs at most the entry it
is in. Entities that a document declares are not expanded: nested ones could turn a small document into gigabytes.
"""

import html
import re
from collections.abc import Callable
from typing import Generic, TypeVar
from xml.etree.ElementTree import Element
from xml.parsers import expat

from msgspec import Struct

from .urls import join_address

# Deeper elements, and further ones in one entry, are dropped; their text is added to the parent.
_MAX_DEPTH, _MAX_ELEMENTS = 100, 50_000
# Tags read from a document that is not well-formed; takes about five seconds.
_MAX_TAGS = 1_000_000
# A quoted value may contain a `>`; its end is searched this far.
_LONGEST_TAG = 20_000
_TAG = re.compile(r"<(/?)([A-Za-z_][\w.\-]*(?::[\w.\-]+)?)")
_ATTRIBUTE = re.compile(r"""([^\s=/"'<>]+)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))""")
_DOCTYPE_END = re.compile(r"\]\s*>")
_PART_END = re.compile(r"</(?:[\w.\-]+:)?(?:description|encoded|content|summary|title|item|entry)\b", re.IGNORECASE)
_INVALID = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
# Unescaped HTML has these elements without end tags.
_VOID = frozenset({"br", "hr", "img", "input", "meta", "wbr", "col", "embed", "source", "param"})

# The prefix of each namespace in this module; "" for feeds and sitemaps themselves.
_PREFIXES = {
    "http://purl.org/rss/1.0": "",
    "http://my.netscape.com/rdf/simple/0.9": "",
    "http://channel.netscape.com/rdf/simple/0.9": "",
    "http://backend.userland.com/rss2": "",
    "http://blogs.law.harvard.edu/tech/rss": "",
    "http://www.w3.org/2005/atom": "",
    "http://purl.org/atom/ns": "",
    "http://www.sitemaps.org/schemas/sitemap/0.9": "",
    "http://www.google.com/schemas/sitemap/0.84": "",
    "http://www.w3.org/1999/02/22-rdf-syntax-ns": "rdf",
    "http://purl.org/dc/elements/1.1": "dc",
    "http://purl.org/dc/elements/1.0": "dc",
    "http://purl.org/dc/terms": "dcterms",
    "http://purl.org/rss/1.0/modules/content": "content",
    "http://search.yahoo.com/mrss": "media",
    "http://www.rssboard.org/media-rss": "media",
    "http://www.itunes.com/dtds/podcast-1.0.dtd": "itunes",
    "http://www.w3.org/1999/xhtml": "xhtml",
    "http://www.w3.org/xml/1998/namespace": "xml",
}
_COMMON_PREFIXES = {"atom": "", "rss": "", "a10": "", "sm": ""}

T = TypeVar("T")


class NotXml(ValueError):
    """The document is not a feed or sitemap; the message says why."""


class Tree(Struct, Generic[T]):
    """A parsed document: its root without the entries, and the values made of the entries."""

    root: Element
    entries: list[T]
    total: int
    """All entries of the document, including those left out."""
    fault: str | None = None
    """Why the document is not well-formed; None if it is."""


def read_tree(
    text: str, names: frozenset[str], make: Callable[[Element, str | None], T], *, skip: int = 0, most: int = 10**9
) -> Tree[T]:
    """Parse a document; raise `NotXml` if it has no element. `make` gets each entry with its base URL, if it has one.

    `names` are the entries' element names, in lower case. Other namespaces have prefixes, as in `dc:date`. Of the
    entries, the first `skip` are left out and then `most` are read.
    """
    text = text.lstrip("\ufeff\0 \t\r\n")
    try:
        return _parse_strictly(text, _Builder(names, make, skip, most))
    except (expat.ExpatError, NotXml, UnicodeError) as error:
        tree = _parse_loosely(text, _Builder(names, make, skip, most), names)
        tree.fault = "; ".join(filter(None, (str(error)[:100], tree.fault)))
        return tree


def element_text(element: Element | None) -> str:
    """Return all text in an element."""
    return "" if element is None else "".join(element.itertext()).strip()


def open_strict_parser() -> expat.XMLParserType:
    """Return a parser that raises `NotXml` for a document that declares an entity."""
    # Without namespaces: the builder resolves prefixes, also those that are not declared.
    parser = expat.ParserCreate()
    parser.buffer_text, parser.buffer_size = True, 65_536
    parser.EntityDeclHandler = _refuse_entity
    return parser


def _parse_strictly(text: str, builder: "_Builder[T]") -> Tree[T]:
    parser = open_strict_parser()
    parser.StartElementHandler = builder.start
    parser.EndElementHandler = builder.end
    parser.CharacterDataHandler = builder.data
    # Entities of an external DTD, which is not fetched.
    parser.SkippedEntityHandler = lambda name, is_parameter: None if is_parameter else builder.entity(name)
    parser.Parse(text, True)
    return builder.close()


def _refuse_entity(name: str, *_: object) -> None:
    raise NotXml(f"declares the entity {name[:40]!r}")


def _parse_loosely(text: str, builder: "_Builder[T]", names: frozenset[str]) -> Tree[T]:
    reader = _LooseReader(builder, names)
    reader.read(_INVALID.sub("", text))
    tree = builder.close()
    tree.fault = f"only the first {_MAX_TAGS:,} tags are read" if reader.is_cut else None
    return tree


class _LooseReader:
    """Finds tags in a document that is not well-formed, in linear time."""

    def __init__(self, builder: "_Builder[T]", names: frozenset[str]) -> None:
        self._builder, self._names = builder, names
        self._open: list[str] = []
        # Strings that do not occur in the rest of the text.
        self._absent: set[str] = set()
        self.is_cut = False

    def read(self, text: str) -> None:
        at = tags = 0
        while (start := text.find("<", at)) >= 0 and tags < _MAX_TAGS:
            self._data(text[at:start])
            at = self._markup(text, start)
            tags += 1
        if tags < _MAX_TAGS:
            self._data(text[at:])
        self.is_cut = tags >= _MAX_TAGS
        while self._open:
            self._close_last()

    def _markup(self, text: str, start: int) -> int:
        """Read the markup at `start` and return where it ends."""
        if text.startswith("<![CDATA[", start):
            end, closing = self._find(text, "]]>", start), 3
            if end < 0:
                cut = _PART_END.search(text, start)
                end, closing = len(text) if cut is None else cut.start(), 0
            self._builder.data(text[start + 9 : end])
            return end + closing
        if text.startswith("<!--", start):
            end = self._find(text, "-->", start)
            return start + 4 if end < 0 else end + 3
        if text.startswith(("<?", "<!"), start):
            return self._declaration(text, start)
        tag = _TAG.match(text, start)
        if tag is None:
            self._builder.data("<")
            return start + 1
        return self._tag(text, tag)

    def _declaration(self, text: str, start: int) -> int:
        end = self._find(text, ">", start)
        inner = text.find("[", start, end) if end >= 0 else -1
        if inner >= 0 and text.startswith("<!", start):
            closing = _DOCTYPE_END.search(text, inner, inner + 100_000)
            end = closing.end() - 1 if closing else end
        return start + 2 if end < 0 else end + 1

    def _tag(self, text: str, tag: "re.Match[str]") -> int:
        end = self._find(text, ">", tag.end())
        inside = text[tag.end() : end] if end >= 0 else text[tag.end() : tag.end() + _LONGEST_TAG]
        if inside.count('"') % 2 and end >= 0:
            quote = text.find('"', end, end + _LONGEST_TAG)
            further = text.find(">", quote, quote + _LONGEST_TAG) if quote >= 0 else -1
            end = further if further >= 0 else end
            inside = text[tag.end() : end]
        if end < 0 or ("<" in inside and '"' not in inside):
            # The tag is cut: other markup follows.
            nearest = text.find("<", tag.end())
            end = (len(text) if nearest < 0 else nearest) - 1
            inside = text[tag.end() : end + 1]
        if tag[1]:
            self._close(tag[2])
        else:
            found = _ATTRIBUTE.findall(inside[:_LONGEST_TAG])
            attributes = {name: html.unescape(a or b or c) for name, a, b, c in found}
            self._start(tag[2], attributes, is_empty=inside.endswith("/"))
        return end + 1

    def _start(self, name: str, attributes: dict[str, str], *, is_empty: bool) -> None:
        local = name.rpartition(":")[2].lower()
        if local in self._names:
            # Entries are not nested: the one before was not closed.
            self._close_entry()
        if len(self._open) >= _MAX_DEPTH - 1:
            return
        self._builder.start(name, attributes)
        self._open.append(name)
        if is_empty or local in _VOID:
            self._close_last()

    def _close_entry(self) -> None:
        inside = [at for at, name in enumerate(self._open) if name.rpartition(":")[2].lower() in self._names]
        while inside and len(self._open) > inside[0]:
            self._close_last()

    def _close(self, name: str) -> None:
        """Close the innermost open element of this name and all within it; ignore the tag if there is none."""
        lowered = name.lower()
        if any(one.lower() == lowered for one in self._open):
            while self._open[-1].lower() != lowered:
                self._close_last()
            self._close_last()

    def _close_last(self) -> None:
        self._builder.end(self._open.pop())

    def _data(self, text: str) -> None:
        if text:
            self._builder.data(html.unescape(text) if "&" in text else text)

    def _find(self, text: str, what: str, start: int) -> int:
        if what in self._absent:
            return -1
        found = text.find(what, start)
        if found < 0:
            self._absent.add(what)
        return found


class _Builder(Generic[T]):
    """Builds elements from tags. An entry is passed to `make` when it ends and is not kept."""

    def __init__(self, names: frozenset[str], make: Callable[[Element, str | None], T], skip: int, most: int) -> None:
        self._names, self._make, self._skip, self._most = names, make, skip, most
        self._root: Element | None = None
        self._stack: list[Element] = []
        # For each open element: its namespaces by prefix, and its base URL.
        self._scopes: list[tuple[dict[str, str], str | None]] = []
        self._entry_depth = 0
        self._pending: list[str] = []
        self._ignored = self._count = 0
        self._names_cache: dict[tuple[str, str | None], str] = {}
        self.entries: list[T] = []
        self.total = 0

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if self._ignored or len(self._stack) >= _MAX_DEPTH or self._count >= _MAX_ELEMENTS:
            self._ignored += 1
            return
        self._flush()
        self._count += 1
        spaces, base = self._scopes[-1] if self._scopes else ({}, None)
        read: dict[str, str] = {}
        if attributes:
            spaces, base, read = self._read_attributes(attributes, spaces, base)
        element = Element(self._resolve(name, spaces, spaces.get("")), read)
        if self._root is None:
            self._root = element
        elif not self._entry_depth and element.tag in self._names:
            self._entry_depth, self._count = len(self._stack) + 1, 0
        elif self._stack:
            self._stack[-1].append(element)
        self._stack.append(element)
        self._scopes.append((spaces, base))

    def _read_attributes(
        self, attributes: dict[str, str], spaces: dict[str, str], base: str | None
    ) -> tuple[dict[str, str], str | None, dict[str, str]]:
        """Return the namespaces by prefix, the base URL and the attributes by resolved name."""
        declared = {key[6:]: value for key, value in attributes.items() if key == "xmlns" or key.startswith("xmlns:")}
        if declared:
            spaces = {**spaces, **declared}
        read = {
            self._resolve(key, spaces, ""): value for key, value in attributes.items() if not key.startswith("xmlns")
        }
        if read.get("xml:base"):
            base = join_address(base, read["xml:base"].strip())
        return spaces, base, read

    def end(self, name: str) -> None:
        if self._ignored:
            self._ignored -= 1
            return
        self._flush()
        element, (_, base) = self._stack.pop(), self._scopes.pop()
        if self._entry_depth == len(self._stack) + 1:
            self._entry_depth = self._count = 0
            self.total += 1
            if self._skip < self.total <= self._skip + self._most:
                self.entries.append(self._make(element, base))

    def data(self, text: str) -> None:
        self._pending.append(text)

    def entity(self, name: str) -> None:
        """Add an entity: one of HTML as its character, any other as written."""
        self._pending.append(html.unescape(f"&{name};"))

    def close(self) -> Tree[T]:
        if self._root is None:
            raise NotXml("has no element")
        return Tree(root=self._root, entries=self.entries, total=self.total)

    def _flush(self) -> None:
        if not self._pending:
            return
        text = "".join(self._pending)
        self._pending.clear()
        if not self._stack:
            return
        element = self._stack[-1]
        if len(element):
            element[-1].tail = (element[-1].tail or "") + text
        else:
            element.text = (element.text or "") + text

    def _resolve(self, name: str, spaces: dict[str, str], default: str | None) -> str:
        prefix, colon, local = name.rpartition(":")
        space = spaces.get(prefix) if colon else default
        known = self._names_cache.get((name, space))
        if known is None:
            known = self._names_cache[name, space] = _resolve_name(prefix.lower(), local.lower(), space)
            if len(self._names_cache) > 10_000:
                self._names_cache.clear()
        return known


def _resolve_name(prefix: str, local: str, space: str | None) -> str:
    vocabulary = _PREFIXES.get(space.strip().rstrip("/#").lower()) if space else None
    if vocabulary is None:
        vocabulary = _COMMON_PREFIXES.get(prefix, prefix)
    return f"{vocabulary}:{local}" if vocabulary else local
