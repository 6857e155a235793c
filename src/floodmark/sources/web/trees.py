"""XML of strangers as elements: well-formed or not, without entities of their own, and within bounds. Pure.

A document is read strictly first. Where that fails it is read tag by tag: what is no markup counts as text, what was
left open is closed where its parent ends, and an entry that begins ends the one before it. So a fault costs no more
than the entry it is in. Entities that a document declares itself are left as they are written: one made of many others
is how a small document becomes gigabytes.
"""

import html
import re
from collections.abc import Callable
from typing import Generic, TypeVar
from xml.etree.ElementTree import Element
from xml.parsers import expat

from msgspec import Struct

from .urls import join_address

# Deeper elements, and further ones in one entry, are not made; their text counts as that of the parent.
_DEEPEST, _MOST_ELEMENTS = 100, 50_000
# Tags of a document that is not well-formed: reading those takes about five seconds.
_MOST_TAGS = 1_000_000
# A quoted value may hold a `>`, and is looked at so far.
_LONGEST_TAG = 20_000
_TAG = re.compile(r"<(/?)([A-Za-z_][\w.\-]*(?::[\w.\-]+)?)")
_ATTRIBUTE = re.compile(r"""([^\s=/"'<>]+)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))""")
_DOCTYPE_END = re.compile(r"\]\s*>")
_PART_END = re.compile(r"</(?:[\w.\-]+:)?(?:description|encoded|content|summary|title|item|entry)\b", re.IGNORECASE)
_INVALID = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
# HTML that was not escaped has these, and they never end.
_VOID = frozenset({"br", "hr", "img", "input", "meta", "wbr", "col", "embed", "source", "param"})

# What the names of elements are called here, by their namespaces. "" are those of feeds and sitemaps themselves.
_SPACES = {
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
_USUAL = {"atom": "", "rss": "", "a10": "", "sm": ""}

T = TypeVar("T")


class NotXml(ValueError):
    """It is not what we would read, and why."""


class Tree(Struct, Generic[T]):
    """A document: its root without the entries, and what was made of those."""

    root: Element
    entries: list[T]
    total: int
    """How many entries there are, whether something was made of them or not."""
    fault: str | None = None
    """Why it is not well-formed, if it is not."""


def read_tree(
    text: str, names: frozenset[str], make: Callable[[Element, str | None], T], *, skip: int = 0, most: int = 10**9
) -> Tree[T]:
    """Read a document, or raise `NotXml`. `make` gets each element of these names, and its base address if it has one.

    Names are in small letters, and as in `dc:date` for other vocabularies. `skip` and `most` choose among the entries.
    """
    text = text.lstrip("\ufeff\0 \t\r\n")
    try:
        return _strictly(text, _Builder(names, make, skip, most))
    except (expat.ExpatError, NotXml, UnicodeError) as error:
        tree = _loosely(text, _Builder(names, make, skip, most), names)
        tree.fault = "; ".join(filter(None, (str(error)[:100], tree.fault)))
        return tree


def text_of(element: Element | None) -> str:
    """All the text in an element, in order."""
    return "" if element is None else "".join(element.itertext()).strip()


def _strictly(text: str, builder: "_Builder[T]") -> Tree[T]:
    # Without its namespaces: what prefixes mean is looked up by the builder, which knows those that are not declared.
    parser = expat.ParserCreate()
    parser.buffer_text, parser.buffer_size = True, 65_536
    parser.StartElementHandler = builder.start
    parser.EndElementHandler = builder.end
    parser.CharacterDataHandler = builder.data
    parser.EntityDeclHandler = _refuse
    # Where a document names a DTD, which is not fetched, entities that it may declare are passed over.
    parser.SkippedEntityHandler = lambda name, is_parameter: None if is_parameter else builder.entity(name)
    parser.Parse(text, True)
    return builder.close()


def _refuse(name: str, *_: object) -> None:
    raise NotXml(f"declares the entity {name[:40]!r}")


def _loosely(text: str, builder: "_Builder[T]", names: frozenset[str]) -> Tree[T]:
    reader = _LooseReader(builder, names)
    reader.read(_INVALID.sub("", text))
    tree = builder.close()
    tree.fault = f"what follows {_MOST_TAGS:,} tags is not read" if reader.is_cut else None
    return tree


class _LooseReader:
    """Finds tags in what is not well-formed. Linear in the length of the text."""

    def __init__(self, builder: "_Builder[T]", names: frozenset[str]) -> None:
        self._builder, self._names = builder, names
        self._open: list[str] = []
        # What was looked for in vain is not there further on either.
        self._absent: set[str] = set()
        self.is_cut = False

    def read(self, text: str) -> None:
        at = tags = 0
        while (start := text.find("<", at)) >= 0 and tags < _MOST_TAGS:
            self._data(text[at:start])
            at = self._markup(text, start)
            tags += 1
        if tags < _MOST_TAGS:
            self._data(text[at:])
        self.is_cut = tags >= _MOST_TAGS
        while self._open:
            self._close_last()

    def _markup(self, text: str, start: int) -> int:
        """Take what begins at `start`; where it ends."""
        if text.startswith("<![CDATA[", start):
            end = self._find(text, "]]>", start)
            if end >= 0:
                self._builder.data(text[start + 9 : end])
                return end + 3
            cut = _PART_END.search(text, start)
            end = len(text) if cut is None else cut.start()
            self._builder.data(text[start + 9 : end])
            return end
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
            # It was cut: what follows is markup of its own.
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
            # Entries do not hold others: the one before was not closed.
            self._close_entry()
        if len(self._open) >= _DEEPEST - 1:
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
        """Close the element of this name that began last, with all that is open in it; none: the tag means nothing."""
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
    """Makes elements from tags. An entry is handed over when it ends, and let go."""

    def __init__(self, names: frozenset[str], make: Callable[[Element, str | None], T], skip: int, most: int) -> None:
        self._names, self._make, self._skip, self._most = names, make, skip, most
        self._root: Element | None = None
        self._stack: list[Element] = []
        # For each open element: what prefixes mean there, and its base address.
        self._scopes: list[tuple[dict[str, str], str | None]] = []
        self._entry_depth = 0
        self._pending: list[str] = []
        self._ignored = self._count = 0
        self._called: dict[tuple[str, str | None], str] = {}
        self.entries: list[T] = []
        self.total = 0

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if self._ignored or len(self._stack) >= _DEEPEST or self._count >= _MOST_ELEMENTS:
            self._ignored += 1
            return
        self._flush()
        self._count += 1
        spaces, base = self._scopes[-1] if self._scopes else ({}, None)
        said: dict[str, str] = {}
        if attributes:
            spaces, base, said = self._attributes(attributes, spaces, base)
        element = Element(self._call(name, spaces, spaces.get("")), said)
        if self._root is None:
            self._root = element
        elif not self._entry_depth and element.tag in self._names:
            self._entry_depth, self._count = len(self._stack) + 1, 0
        elif self._stack:
            self._stack[-1].append(element)
        self._stack.append(element)
        self._scopes.append((spaces, base))

    def _attributes(
        self, attributes: dict[str, str], spaces: dict[str, str], base: str | None
    ) -> tuple[dict[str, str], str | None, dict[str, str]]:
        """What prefixes mean from here on, the base address, and the attributes by their names."""
        declared = {key[6:]: value for key, value in attributes.items() if key == "xmlns" or key.startswith("xmlns:")}
        if declared:
            spaces = {**spaces, **declared}
        said = {self._call(key, spaces, ""): value for key, value in attributes.items() if not key.startswith("xmlns")}
        if said.get("xml:base"):
            base = join_address(base, said["xml:base"].strip())
        return spaces, base, said

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
        """One of HTML as its letter, any other as it is written."""
        self._pending.append(html.unescape(f"&{name};"))

    def close(self) -> Tree[T]:
        if self._root is None:
            raise NotXml("holds no element")
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

    def _call(self, name: str, spaces: dict[str, str], default: str | None) -> str:
        prefix, colon, local = name.rpartition(":")
        space = spaces.get(prefix) if colon else default
        known = self._called.get((name, space))
        if known is None:
            known = self._called[name, space] = _called(prefix.lower(), local.lower(), space)
            if len(self._called) > 10_000:
                self._called.clear()
        return known


def _called(prefix: str, local: str, space: str | None) -> str:
    vocabulary = _SPACES.get(space.strip().rstrip("/#").lower()) if space else None
    if vocabulary is None:
        vocabulary = _USUAL.get(prefix, prefix)
    return f"{vocabulary}:{local}" if vocabulary else local
