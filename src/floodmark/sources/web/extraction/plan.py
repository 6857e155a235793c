"""The plan of an extraction: which parts of a document a job takes. Pure; fast to import."""

import importlib.util
import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from floodmark.errors import InvalidInput, Permanent

from .selectors import Language, Selector, parse_selector

KINDS = ("text", "number", "int", "time", "url", "texts", "html")
BUILT_IN, TRAFILATURA = "built-in", "trafilatura"
EXTRACTORS = (BUILT_IN, TRAFILATURA)
NAMES = frozenset({"select", "fields", "key_fields", "ignore", "extractor", "pdf"})
"""The params of a job that make its plan."""

# Names that every item of a match has.
RESERVED = frozenset({"url", "fetched_at", "hash", "difference", "raw"})
_MAX_FIELDS, _MAX_IGNORED = 50, 50
_FIELD = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]{0,39})\s*(?::\s*([a-z]+)\s*)?=(.*)", re.DOTALL)
# `a.title@href`: the attribute of an element that CSS selects. A quoted @ ends with a quote.
_ATTRIBUTE = re.compile(r"(.*)@([A-Za-z_][\w:.-]{0,60})", re.DOTALL)
_FIELD_HINT = "as in --field 'name=td.name' --field 'price:number=td.price' --field 'link:url=a'"
_PACKAGES = {"lxml": "XPath", "jsonpath": "JSONPath", "trafilatura": "the extractor trafilatura", "pypdfium2": "--pdf"}


class SelectedField(Struct, frozen=True, kw_only=True):
    """A named field of each match. Without a selector it is the match itself."""

    name: str
    kind: str = "text"
    selector: str = ""
    attribute: str | None = None


class ExtractionPlan(Struct, frozen=True, kw_only=True):
    """What is taken from documents."""

    select: Selector | None = None
    """Each match is an item; without it, each page is."""
    fields: tuple[SelectedField, ...] = ()
    key: tuple[str, ...] = ()
    """The fields that identify a match on its page."""
    ignore: tuple[str, ...] = ()
    """CSS selectors of parts that do not count."""
    extractor: str = BUILT_IN
    pdf: bool = False

    @property
    def is_default(self) -> bool:
        """Whether the crawl can read its pages by itself."""
        return self == ExtractionPlan()

    @property
    def packages(self) -> dict[str, str]:
        """The packages that it needs, each with its purpose."""
        language = None if self.select is None else self.select.language
        needed = {
            "lxml": language is Language.XPATH,
            "jsonpath": language is Language.JSONPATH,
            "trafilatura": self.extractor == TRAFILATURA,
            "pypdfium2": self.pdf,
        }
        return {name: _PACKAGES[name] for name, is_needed in needed.items() if is_needed}


def find_missing(packages: Mapping[str, str]) -> str | None:
    """Return which packages are not installed in this process, each with its purpose; None if all are."""
    missing = {name: why for name, why in packages.items() if importlib.util.find_spec(name) is None}
    return ", ".join(f"{name} for {why}" for name, why in missing.items()) or None


def require_packages(packages: Mapping[str, str]) -> None:
    """Raise `Permanent`, with an install command, if a package is missing in this process."""
    if (missing := find_missing(packages)) is not None:
        raise Permanent(f"this worker has no {missing}", hint=INSTALL)


INSTALL = "install it on every machine with workers: pip install 'floodmark[web]'"


def parse_plan(params: Mapping[str, Any]) -> ExtractionPlan:
    """Return the plan of a job, or raise `InvalidInput`."""
    select = None if params.get("select") is None else parse_selector(str(params["select"]), "select")
    fields = _parse_fields(params.get("fields"), select)
    extractor = str(params.get("extractor", BUILT_IN))
    if extractor not in EXTRACTORS:
        raise InvalidInput(f"extractor {extractor[:40]!r} is not known", hint=f"use {' or '.join(EXTRACTORS)}")
    if select is not None and extractor != BUILT_IN:
        raise InvalidInput(
            "extractor finds the main text of pages, and select takes other parts", hint="leave one of them out"
        )
    return ExtractionPlan(
        select=select,
        fields=fields,
        key=_parse_key(params.get("key_fields"), fields, select),
        ignore=_parse_ignored(params.get("ignore"), select),
        extractor=extractor,
        pdf=_parse_pdf(params.get("pdf", False), select),
    )


def _parse_fields(value: Any, select: Selector | None) -> tuple[SelectedField, ...]:
    listed = _read_list(value, "fields", _MAX_FIELDS, _FIELD_HINT)
    if not listed:
        return ()
    if select is None:
        raise InvalidInput("fields need a selector of the matches", hint="add --select, as in --select 'table tr'")
    fields = tuple(_parse_field(text, select.language) for text in listed)
    names = [field.name for field in fields]
    for name in names:
        if name in RESERVED or names.count(name) > 1:
            raise InvalidInput(
                f"a field cannot be called {name!r}: every item has that field already"
                if name in RESERVED
                else f"two fields are called {name!r}",
                hint="choose another name",
            )
    return fields


def _parse_field(text: str, language: Language) -> SelectedField:
    found = _FIELD.fullmatch(text)
    if found is None:
        raise InvalidInput(f"field {text[:80]!r} is not NAME[:TYPE]=SELECTOR", hint=_FIELD_HINT)
    name, kind, written = found[1], found[2] or "text", found[3].strip()
    if kind not in KINDS:
        raise InvalidInput(f"field {name!r} has the unknown type {kind!r}", hint=f"the types are {', '.join(KINDS)}")
    attribute = None
    if language is Language.CSS and (parts := _ATTRIBUTE.fullmatch(written)):
        written, attribute = parts[1].strip(), parts[2].lower()
    if language is Language.JSONPATH and written not in {"", "."} and not written.startswith(("$", "jsonpath:")):
        written = f"$.{written}"
    if written in {"", "."}:
        return SelectedField(name=name, kind=kind, attribute=attribute)
    selector = parse_selector(written, f"field {name!r}:", language)
    if selector.language is not language:
        raise InvalidInput(
            f"field {name!r} is in another language than the selector of the matches", hint=f"use {language.value}"
        )
    return SelectedField(name=name, kind=kind, selector=selector.text, attribute=attribute)


def _parse_key(value: Any, fields: tuple[SelectedField, ...], select: Selector | None) -> tuple[str, ...]:
    listed = (
        value.split(",") if isinstance(value, str) else _read_list(value, "key_fields", _MAX_FIELDS, "as in --key sku")
    )
    key = tuple(name.strip() for name in listed if name.strip())
    if key and select is None:
        raise InvalidInput("a key identifies matches of a selector", hint="add --select, as in --select 'table tr'")
    known = [field.name for field in fields]
    for name in key:
        if known and name not in known:
            raise InvalidInput(f"the key names {name[:40]!r}, which is not a field", hint=f"fields: {', '.join(known)}")
    return key or tuple(known[:1])


def _parse_ignored(value: Any, select: Selector | None) -> tuple[str, ...]:
    listed = _read_list(value, "ignore", _MAX_IGNORED, "as in --ignore '.clock' --ignore '#visitors'")
    if listed and select is not None and select.language is Language.JSONPATH:
        raise InvalidInput("ignore is for HTML, and select is JSONPath", hint="leave --ignore out")
    selectors = [parse_selector(text, "ignore", Language.CSS) for text in listed]
    if other := next((found for found in selectors if found.language is not Language.CSS), None):
        raise InvalidInput(f"ignore {other.text[:40]!r} is not CSS", hint="use a CSS selector, as in --ignore '.clock'")
    return tuple(found.text for found in selectors)


def _parse_pdf(value: Any, select: Selector | None) -> bool:
    text = str(value).lower()
    if text not in {"true", "false"}:
        raise InvalidInput(f"pdf {text[:40]!r} is neither true nor false", hint="as in pdf=true")
    if text == "true" and select is not None:
        raise InvalidInput("a PDF document has no matches of a selector", hint="leave out --pdf or --select")
    return text == "true"


def _read_list(value: Any, name: str, most: int, hint: str) -> list[str]:
    listed = [value] if isinstance(value, str) else value
    if listed is None:
        return []
    if not isinstance(listed, list | tuple) or not all(isinstance(one, str) for one in listed) or len(listed) > most:
        raise InvalidInput(f"{name} is not a list of at most {most} texts", hint=hint)
    return list(listed)
