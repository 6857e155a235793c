"""The matches of a selector in a document, each with its fields and its key. Pure, but not bounded in time."""

import hashlib
import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec import Struct, field

from floodmark.sources.web.extract import INLINE

from .plan import ExtractionPlan, SelectedField
from .selectors import Language
from .values import LONGEST_TEXT, convert, convert_all

if TYPE_CHECKING:
    from lxml.etree import _Element
    from selectolax.lexbor import LexborNode

MOST_ROWS, _MOST_CHARACTERS = 5000, 5_000_000
_LONGEST_KEY = 200
_INLINE = frozenset(INLINE.split(","))
_SILENT = frozenset({"script", "style", "template", "noscript"})
_LINKS = ("href", "src", "content", "data-src")


class Row(Struct, frozen=True):
    """One match. `key` identifies it on its page."""

    key: str
    fields: dict[str, Any]


class Rows(Struct, kw_only=True):
    """The matches of a document, and remarks about values that could not be read."""

    rows: list[Row] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)


class SelectedPart(Protocol):
    """One match, as its library represents it."""

    def read(self, wanted: SelectedField) -> list[str]:
        """Return the texts of a field: all of them for `texts`, otherwise at most one."""
        ...

    def read_all(self) -> dict[str, Any]:
        """Return the fields of a match for which none are named."""
        ...


def select_rows(plan: ExtractionPlan, document: str | bytes, url: str) -> Rows:
    """Return the matches of the plan's selector in HTML, or in JSON for JSONPath."""
    assert plan.select is not None
    find = {Language.CSS: _find_css, Language.XPATH: _find_xpath, Language.JSONPATH: _find_json}[plan.select.language]
    found, remarks = Rows(), Counter[str]()
    examples: dict[str, str] = {}
    size = 0
    numbers: Counter[str] = Counter()
    for match in itertools.islice(find(plan.select.text, document), MOST_ROWS + 1):
        if len(found.rows) >= MOST_ROWS or size > _MOST_CHARACTERS:
            found.remarks.append(f"has more matches than are read: the limit is {MOST_ROWS:,}, or 5 MB of values")
            break
        fields = _read_fields(plan.fields, match, url, remarks, examples)
        if all(value is None for value in fields.values()):
            continue
        key = _make_key(plan, fields)
        if key is None:
            remarks[f"has matches without a value of the key ({', '.join(plan.key)}), which are left out"] += 1
            continue
        numbers[key] += 1
        if numbers[key] > 1:
            remarks["has matches with the same key, which are numbered"] += 1
            key = f"{key}~{numbers[key]}"
        found.rows.append(Row(key, fields))
        size += sum(len(value) for value in fields.values() if isinstance(value, str | list))
    found.remarks += [f"{text}{examples.get(text, '')}" for text in remarks]
    return found


def _read_fields(
    wanted: Sequence[SelectedField], match: SelectedPart, url: str, remarks: Counter[str], examples: dict[str, str]
) -> dict[str, Any]:
    if not wanted:
        return match.read_all()
    fields: dict[str, Any] = {}
    for one in wanted:
        texts = match.read(one)
        if one.kind == "texts":
            fields[one.name] = convert_all(texts)
            continue
        value = convert(texts[0], one.kind, url) if texts else None
        if value is None and texts and texts[0].strip():
            remark = f"has values of {one.name} that are not of the type {one.kind}"
            remarks[remark] += 1
            examples.setdefault(remark, f", such as {texts[0].strip()[:40]!r}")
        fields[one.name] = value
    return fields


def _make_key(plan: ExtractionPlan, fields: dict[str, Any]) -> str | None:
    if not plan.key:
        return hashlib.blake2b(msgspec.json.encode(fields, order="sorted"), digest_size=12).hexdigest()
    values = [fields.get(name) for name in plan.key]
    if all(value is None for value in values):
        return None
    # The database refuses NUL, which a JSON text may contain.
    key = " | ".join("" if value is None else str(value) for value in values).replace("\0", "")
    if len(key) <= _LONGEST_KEY:
        return key
    return f"{key[:100]}…{hashlib.blake2b(key.encode(errors='replace'), digest_size=12).hexdigest()}"


# CSS


def _find_css(selector: str, document: str | bytes) -> "Iterator[SelectedPart]":
    from selectolax.lexbor import LexborHTMLParser  # noqa: PLC0415 - each language loads its own library

    return (CssMatch(node) for node in LexborHTMLParser(document).css(selector))


class CssMatch:
    """A match of a CSS selector."""

    def __init__(self, node: "LexborNode") -> None:
        self._node = node

    def read(self, wanted: SelectedField) -> list[str]:
        """Return the texts of a field."""
        if not wanted.selector:
            nodes = [self._node]
        elif wanted.kind == "texts":
            nodes = self._node.css(wanted.selector)
        else:
            node = self._node.css_first(wanted.selector)
            nodes = [] if node is None else [node]
        return [text for node in nodes if (text := _read_node(node, wanted)) is not None]

    def read_all(self) -> dict[str, Any]:
        """Return the text of the match."""
        return {"text": _line(_node_text(self._node))}


def _read_node(node: "LexborNode", wanted: SelectedField) -> str | None:
    if wanted.attribute is not None:
        return node.attributes.get(wanted.attribute)
    if wanted.kind == "html":
        return node.html
    found = _of_attributes(node.attributes, wanted.kind)
    return _unless_words(_node_text(node), wanted.kind) if found is None else found


def _node_text(node: "LexborNode") -> str:
    parts = []
    for inner in node.traverse(include_text=True):
        if inner.tag == "-text":
            parent = inner.parent
            if parent is None or parent.tag not in _SILENT:
                parts.append(inner.text_content or "")
        elif inner.tag not in _INLINE:
            parts.append(" ")
    return "".join(parts)


# XPath


def _find_xpath(selector: str, document: str | bytes) -> "Iterator[SelectedPart]":
    from lxml import etree, html  # noqa: PLC0415 - each language loads its own library

    text = document if isinstance(document, bytes) else document.encode(errors="replace")
    parser = html.HTMLParser(encoding="utf-8", huge_tree=False)
    tree = html.document_fromstring(text, parser=parser) if text.strip() else etree.Element("html")
    found = tree.xpath(selector)
    return (XpathMatch(one) for one in (found if isinstance(found, list) else [found]))


class XpathMatch:
    """A match of an XPath expression: an element, or the text of a string, number or attribute."""

    def __init__(self, found: "_Element | str | float | bool") -> None:
        self._found = found

    def read(self, wanted: SelectedField) -> list[str]:
        """Return the texts of a field."""
        if not wanted.selector:
            found: Any = [self._found]
        elif isinstance(self._found, str | float | bool):
            return []
        else:
            found = self._found.xpath(wanted.selector)
        listed = found if isinstance(found, list) else [found]
        return [_read_result(one, wanted) for one in (listed if wanted.kind == "texts" else listed[:1])]

    def read_all(self) -> dict[str, Any]:
        """Return the text of the match."""
        return {"text": _line(_read_result(self._found, SelectedField(name="text")))}


def _read_result(found: Any, wanted: SelectedField) -> str:
    if isinstance(found, float):
        return f"{found:.15g}"
    if isinstance(found, str | bool):
        return str(found)
    if wanted.kind == "html":
        from lxml import etree  # noqa: PLC0415 - loaded by now

        return str(etree.tostring(found, encoding="unicode", method="html", with_tail=False))
    text = _of_attributes(dict(found.attrib), wanted.kind)
    return _unless_words(_element_text(found), wanted.kind) if text is None else text


def _element_text(element: "_Element") -> str:
    parts: list[str] = []
    _add_text(element, parts)
    return "".join(parts)


def _add_text(element: "_Element", parts: list[str]) -> None:
    """Collect the text in document order without recursion: pages may be nested deeply."""
    from lxml import etree  # noqa: PLC0415 - loaded by now

    for event, inner in etree.iterwalk(element, events=("start", "end")):
        is_text = isinstance(inner.tag, str) and inner.tag not in _SILENT
        if isinstance(inner.tag, str) and inner.tag not in _INLINE:
            parts.append(" ")
        if event == "start" and is_text:
            parts.append(inner.text or "")
        elif event == "end" and inner is not element:
            parts.append(inner.tail or "")


# JSONPath


def _find_json(selector: str, document: str | bytes) -> "Iterator[SelectedPart]":
    import jsonpath  # noqa: PLC0415 - each language loads its own library

    data = msgspec.json.decode(document)
    return (JsonMatch(match.obj) for match in jsonpath.compile(selector).finditer(data))


class JsonMatch:
    """A match of a JSONPath expression. Paths of fields start at the match."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def read(self, wanted: SelectedField) -> list[str]:
        """Return the texts of a field."""
        import jsonpath  # noqa: PLC0415 - loaded by now

        found = jsonpath.compile(wanted.selector).findall(self._value) if wanted.selector else [self._value]
        if wanted.kind != "texts":
            found = found[:1]
        elif len(found) == 1 and isinstance(found[0], list):
            found = found[0]
        return [_json_text(one) for one in found if one is not None]

    def read_all(self) -> dict[str, Any]:
        """Return the members of an object, otherwise the value itself."""
        if not isinstance(self._value, dict):
            return {"value": self._value}
        return {str(name)[:100]: _cut_value(value) for name, value in itertools.islice(self._value.items(), 100)}


def _json_text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _cut_value(value: Any) -> Any:
    if isinstance(value, str):
        return value[:LONGEST_TEXT]
    is_plain = value is None or isinstance(value, bool | int | float)
    if is_plain or len(text := _json_text(value)) <= LONGEST_TEXT:
        return value
    return text[:LONGEST_TEXT]


# All languages


def _of_attributes(attributes: dict[str, Any], kind: str) -> str | None:
    """Return the attribute that has the value of a link or a time, if there is one."""
    if kind == "url":
        return next((str(attributes[name]) for name in _LINKS if attributes.get(name)), None)
    return str(attributes["datetime"]) if kind == "time" and attributes.get("datetime") else None


def _unless_words(text: str, kind: str) -> str:
    """Return the text of an element; nothing if it should be a link and is not written as one."""
    return text if kind != "url" or text.strip().startswith(("http://", "https://", "/")) else ""


def _line(text: str) -> str | None:
    return " ".join(text[: 2 * LONGEST_TEXT].split())[:LONGEST_TEXT] or None
