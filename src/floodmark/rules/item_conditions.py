"""Conditions on the fields of items: `views>100`, `channel=harbour`, `text~ferry`. Pure; nothing is evaluated as code.

| operator | is true if |
|---|---|
| `=`, `!=` | the value is equal, is not equal |
| `<`, `<=`, `>`, `>=` | the number, time or text is less or greater |
| `~`, `!~` | the text contains this text in upper or lower case, does not contain it |

Of a list, one entry has to fulfil the condition; for `!=` and `!~` all of them. `null` is a missing value: only
`field=null` and the negative operators are true for it. A value in quotes is always text.
"""

import re
from collections.abc import Callable, Mapping
from datetime import date, datetime
from operator import ge, gt, le, lt
from typing import Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from floodmark.errors import InvalidInput
from floodmark.model.moments import begin_of, end_of

Operator = Literal["=", "!=", "<", "<=", ">", ">=", "~", "!~"]

_FORM = re.compile(r"\s*(?P<field>\w[\w.-]*)\s*(?P<operator>!=|<=|>=|!~|[=<>~])\s*(?P<value>.*?)\s*", re.DOTALL)
_HINT = "write FIELD=VALUE, with one of = != < <= > >= ~ !~ between them: views>100, text~ferry"
_ORDERS: Mapping[str, Callable[[Any, Any], bool]] = {"<": lt, "<=": le, ">": gt, ">=": ge}
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)


class Condition(Struct, frozen=True):
    """A condition on one field.

    `is_text`: the value was in quotes. `number` and `period` are the value as a number and as a time: a day is a
    period, a moment one that ends as it begins.
    """

    field: str
    operator: Operator
    value: str
    is_text: bool = False
    number: int | float | None = None
    period: tuple[datetime, datetime] | None = None

    def is_true_for(self, actual: Any) -> bool:
        """Return whether a value fulfils it."""
        if self.operator in ("!=", "!~"):
            return not replace(self, operator="=" if self.operator == "!=" else "~").is_true_for(actual)
        if isinstance(actual, list | tuple):
            return any(self._is_true_for_one(one) for one in actual)
        return self._is_true_for_one(actual)

    def _is_true_for_one(self, actual: Any) -> bool:
        if actual is None:
            return self.operator == "=" and self.value == "null" and not self.is_text
        if self.operator == "~":
            return self.value.casefold() in _text_of(actual).casefold()
        if isinstance(actual, datetime):
            return self._compare_times(actual)
        if isinstance(actual, bool) or not isinstance(actual, int | float):
            return self._compare(_text_of(actual), self.value)
        return self.number is not None and self._compare(actual, self.number)

    def _compare(self, actual: Any, value: Any) -> bool:
        return bool(actual == value if self.operator == "=" else _ORDERS[self.operator](actual, value))

    def _compare_times(self, actual: datetime) -> bool:
        """Compare with a time, or with a whole day: `=` is true within it, `>` after it."""
        if self.period is None:
            return False
        begin, end = self.period
        if begin == end:
            return self._compare(actual, begin)
        results = {"=": begin <= actual < end, "<": actual < begin, "<=": actual < end, ">": actual >= end}
        return results.get(self.operator, actual >= begin)


def parse_condition(text: str, now: datetime) -> Condition:
    """Return the condition of a text, or raise `InvalidInput`. A duration as its value is that long before `now`."""
    found = _FORM.fullmatch(text)
    if found is None:
        raise InvalidInput(f"{text[:60]!r} is not a condition", hint=_HINT)
    value = found["value"]
    is_text = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
    if not value:
        raise InvalidInput(f"{text[:60]!r} has no value", hint=f"{_HINT}; no text at all is ''")
    value = value[1:-1] if is_text else value
    operator: Any = found["operator"]
    return Condition(found["field"], operator, value, is_text, _read_number(value), _read_period(value, now))


def _read_period(text: str, now: datetime) -> tuple[datetime, datetime] | None:
    try:
        return begin_of(text, now), end_of(text, now)
    except InvalidInput:
        return None


def _read_number(text: str) -> int | float | None:
    """Return the number of a text, if it is one."""
    if not _NUMBER.fullmatch(text):
        return None
    try:
        return int(text)
    except ValueError:
        return float(text)


def read_path(data: Any, path: tuple[str, ...]) -> Any:
    """Return the value at a path of names within objects; of a list of objects the values of all of them."""
    for at, name in enumerate(path):
        if isinstance(data, list):
            return [read_path(one, path[at:]) for one in data]
        if not isinstance(data, dict):
            return None
        data = data.get(name)
    return data


def _text_of(actual: Any) -> str:
    if isinstance(actual, str):
        return actual
    if isinstance(actual, date):
        return actual.isoformat()
    return msgspec.json.encode(actual).decode()
