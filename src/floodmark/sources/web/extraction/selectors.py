"""Selectors of users: their language and their syntax. Pure.

A selector is checked only if the library of its language is installed; a worker needs it in any case.
"""

import importlib.util
import re
from collections.abc import Callable
from enum import StrEnum
from typing import Any

from msgspec import Struct

from floodmark.errors import InvalidInput

LONGEST = 500
_PREFIX = re.compile(r"(css|xpath|jsonpath):", re.IGNORECASE)


class Language(StrEnum):
    """The language of a selector."""

    CSS = "css"
    XPATH = "xpath"
    JSONPATH = "jsonpath"


class Selector(Struct, frozen=True):
    """A selector in its language."""

    language: Language
    text: str


def parse_selector(text: str, name: str, default: Language | None = None) -> Selector:
    """Return a selector that a user typed, or raise `InvalidInput`. `name` is the option that has it.

    `$...` is JSONPath and `/...`, `./...` or `(...` XPath; `css:`, `xpath:` or `jsonpath:` in front decides.
    """
    stripped = text.strip()
    if not stripped or len(stripped) > LONGEST:
        raise InvalidInput(f"{name} {stripped[:40]!r} is empty or longer than {LONGEST} characters", hint=_EXAMPLES)
    if found := _PREFIX.match(stripped):
        selector = Selector(Language(found[1].lower()), stripped[found.end() :].strip())
    else:
        selector = Selector(default or _recognise(stripped), stripped)
    check_selector(selector, name)
    return selector


def check_selector(selector: Selector, name: str) -> None:
    """Raise `InvalidInput` if a selector has a wrong syntax."""
    reason = _CHECKS[selector.language](selector.text)
    if reason is not None:
        raise InvalidInput(
            f"{name} {selector.text[:80]!r} is not valid {_TITLES[selector.language]}: {reason}", hint=_EXAMPLES
        )


def _recognise(text: str) -> Language:
    if text.startswith("$"):
        return Language.JSONPATH
    is_xpath = text.startswith(("/", "./", "(", "descendant::", "child::"))
    return Language.XPATH if is_xpath else Language.CSS


def _check_css(text: str) -> str | None:
    from selectolax.lexbor import LexborHTMLParser, SelectolaxError  # noqa: PLC0415 - only jobs with selectors need it

    try:
        LexborHTMLParser("<p>").css(text)
    except SelectolaxError:
        return "it cannot be parsed"
    return None


def _check_xpath(text: str) -> str | None:
    if importlib.util.find_spec("lxml") is None:
        return None
    from lxml import etree  # noqa: PLC0415 - of an extra

    try:
        etree.XPath(text)
    except etree.XPathSyntaxError as error:
        return str(error)
    return None


def _check_jsonpath(text: str) -> str | None:
    if importlib.util.find_spec("jsonpath") is None:
        return None
    import jsonpath  # noqa: PLC0415 - of an extra

    try:
        jsonpath.compile(text)
    except (jsonpath.JSONPathError, RecursionError) as error:
        return str(error).splitlines()[0][:200] or type(error).__name__
    return None


_CHECKS: dict[Language, Callable[[str], Any]] = {
    Language.CSS: _check_css,
    Language.XPATH: _check_xpath,
    Language.JSONPATH: _check_jsonpath,
}
_TITLES = {Language.CSS: "CSS", Language.XPATH: "XPath", Language.JSONPATH: "JSONPath"}
_EXAMPLES = "as in 'table.prices tr' (CSS), '//table/tr' (XPath) or '$.items[*]' (JSONPath)"
