"""Conditions on the fields of an item: `views >= 1000`, `author = Ada`, `media.kind`. Pure."""

import operator
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from floodmark.errors import InvalidInput

MOST_CONDITIONS = 20
LONGEST_CONDITION = 500

_HINT = "write it like 'views >= 1000', 'author = Ada', 'media.kind != photo', 'url ~ example.org', 'media' or '!media'"
_COMPARISON = re.compile(r"(?P<field>[\w.-]+)\s*(?P<sign><=|>=|!=|=|<|>|~)\s*(?P<value>[^\s=].*)")
_PRESENCE = re.compile(r"(?P<absent>!?)\s*(?P<field>[\w.-]+)")
_ORDER = {"=": operator.eq, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


class FieldCondition(Struct, frozen=True):
    """A condition on a field. `sign` is `exists` or `missing` if there is no value."""

    field: tuple[str, ...]
    sign: str
    value: Any = None

    def holds(self, data: Any) -> bool:
        """Return whether the item meets it. Of a list, one entry is enough; `!=` needs all entries."""
        found = _values(data, self.field)
        if self.sign in ("exists", "missing"):
            return bool(found) == (self.sign == "exists")
        if self.sign == "!=":
            return not any(_compare("=", one, self.value) for one in found)
        return any(_compare(self.sign, one, self.value) for one in found)


def parse_condition(text: str) -> FieldCondition:
    """Return the condition of a text. A value is a number, `true`, `false` or text; quotes make a number text."""
    line = text.strip()
    if len(line) > LONGEST_CONDITION:
        raise InvalidInput(f"a condition has more than {LONGEST_CONDITION} characters", hint=_HINT)
    if found := _COMPARISON.fullmatch(line):
        sign, value = found["sign"], _parse_value(found["value"])
        if sign in ("<", "<=", ">", ">=") and isinstance(value, bool):
            raise InvalidInput(f"{line[:60]!r} compares the order of {found['value']}", hint=_HINT)
        if sign == "~" and not isinstance(value, str):
            value = found["value"]
        return FieldCondition(_split(found["field"], line), sign, value)
    if found := _PRESENCE.fullmatch(line):
        return FieldCondition(_split(found["field"], line), "missing" if found["absent"] else "exists")
    raise InvalidInput(f"{line[:60]!r} is not a condition on a field", hint=_HINT)


def parse_conditions(texts: Sequence[str]) -> tuple[FieldCondition, ...]:
    """Return the conditions of texts; an item has to meet all of them."""
    if len(texts) > MOST_CONDITIONS:
        raise InvalidInput(f"there are more than {MOST_CONDITIONS} conditions", hint="leave some out")
    return tuple(map(parse_condition, texts))


def _split(field: str, line: str) -> tuple[str, ...]:
    names = tuple(field.split("."))
    if not all(names):
        raise InvalidInput(f"{line[:60]!r} names no field", hint=_HINT)
    return names


def _parse_value(text: str) -> Any:
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return text
    return value if isinstance(value, bool | int | float) else text


def _values(data: Any, field: Sequence[str]) -> list[Any]:
    """Return the values of a field, with the entries of lists instead of lists. Null counts as missing."""
    found = [data]
    for name in field:
        found = [one.get(name) for one in _flatten(found) if isinstance(one, Mapping)]
    return [one for one in _flatten(found) if one is not None]


def _flatten(values: Sequence[Any]) -> list[Any]:
    return [entry for one in values for entry in (one if isinstance(one, list | tuple) else (one,))]


def _compare(sign: str, found: Any, value: Any) -> bool:
    if sign == "~":
        return isinstance(found, str) and value.casefold() in found.casefold()
    if isinstance(found, bool) or isinstance(value, bool):
        return sign == "=" and found is value
    if isinstance(found, str) != isinstance(value, str):
        # 7 = '7', but the order of a text and a number means nothing.
        return sign == "=" and str(found) == str(value)
    return not isinstance(found, Mapping) and bool(_ORDER[sign](found, value))
