"""Turns a row of a file into the columns of a job.

A row has columns of a job (`interval_seconds`), or options of `floodmark add` under their names (`every`, `retries`),
or params of the source (`history`, `params.history`). Values of CSV are texts, those of JSON and TOML have types.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from difflib import get_close_matches
from functools import cache
from typing import Any

from floodmark.errors import InvalidInput
from floodmark.model.durations import parse_every
from floodmark.model.job import Priority, When
from floodmark.model.job_fields import FIELDS, SETTABLE, JobField
from floodmark.sources.form import ParamOption
from floodmark.triggers.parsing import priority_of, when_of

_WORDS = ("every", "cron", "hourly", "daily", "weekly", "monthly", "once", "adaptive")
_FLAGS = ("once", "adaptive", "disabled")
_ZONE, _DISABLED = "tz", "disabled"
_PARAM = re.compile(r"params?\.(.+)")
_SEPARATORS = re.compile(r"[;,]")
_TRUTH = {"true": True, "yes": True, "1": True, "on": True, "false": False, "no": False, "0": False, "off": False}


@cache
def option_names() -> Mapping[str, JobField]:
    """Return the fields that have an option of `floodmark add`, by its name: `retries`, `timeout`."""
    return {
        field.declared.option.name.lstrip("-").replace("-", "_"): field
        for field in SETTABLE
        if field.declared.option is not None
    }


class RowColumns:
    """Reads the rows of one source. `params` are its options of `floodmark add`."""

    def __init__(self, params: Iterable[ParamOption] = ()) -> None:
        self._params = {option.param: option for option in params}
        own = {field.name for field in SETTABLE} | option_names().keys() | {*_WORDS, _ZONE, _DISABLED}
        self.names = frozenset(own | self._params.keys())

    def require_known(self, names: Iterable[str]) -> None:
        """Refuse a column that means nothing."""
        for name in names:
            if name not in self.names and not _PARAM.fullmatch(name):
                close = get_close_matches(name, self.names, n=3)
                known = f"did you mean {', '.join(close)}?" if close else f"there are: {', '.join(sorted(self.names))}"
                raise InvalidInput(f"there is no column {name[:60]!r}", hint=known)

    def read(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the columns of a job that a row describes."""
        self.require_known(values)
        columns, params = dict[str, Any](), dict[str, Any]()
        for name, value in values.items():
            if name in _WORDS or name in (_ZONE, _DISABLED):
                continue
            if found := _PARAM.fullmatch(name):
                params[found[1]] = _read_json(value) if isinstance(value, str) else value
            elif name in FIELDS:
                columns[name] = _read_column(name, FIELDS[name], value)
            elif name in option_names():
                field = option_names()[name]
                columns[field.name] = _read_option(name, field, value)
            else:
                params[name] = _read_param(self._params[name], value)
        if params:
            columns["params"] = {**columns.get("params", {}), **params}
        if _read_flag(values, _DISABLED):
            columns["schedule_enabled"] = False
        return columns | _read_schedule(values, columns)


def _read_schedule(values: Mapping[str, Any], columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of the schedule, if a row has words for one: `every`, `daily`."""
    words = {name: values[name] for name in _WORDS if values.get(name) not in (None, "")}
    zone = values.get(_ZONE) or columns.get("timezone")
    read = {name: _read_flag(words, name) if name in _FLAGS else str(value) for name, value in words.items()}
    given: dict[str, Any] = {name: value for name, value in read.items() if value is not False}
    if not given:
        return {} if zone is None else {"timezone": zone}
    columns_too = [name for name in When.__struct_fields__ if name in columns and name != "timezone"]
    if columns_too:
        raise InvalidInput(f"{next(iter(given))} and {columns_too[0]} contradict each other", hint="use only one")
    when = when_of(**given, timezone=zone or "UTC")
    return {name: value for name in When.__struct_fields__ if (value := getattr(when, name)) is not None}


def _read_column(name: str, field: JobField, value: Any) -> Any:
    """Return the value of a column; a text is read as the type of the column."""
    if not isinstance(value, str) or field.kind is str or (field.is_enum and field.kind is not Priority):
        return value
    return _read_text(name, field.kind if field.kind is not timedelta else float, value)


def _read_option(name: str, field: JobField, value: Any) -> Any:
    """Return the value of a field as its option has it: a duration is a text such as 10m."""
    if field.kind is timedelta and isinstance(value, str | int | float):
        try:
            return parse_every(str(value)).total_seconds()
        except InvalidInput as error:
            raise InvalidInput(f"{name}: {error}", hint=error.hint) from None
    return _read_column(name, field, value)


def _read_param(option: ParamOption, value: Any) -> Any:
    if not isinstance(value, str) or option.kind is str:
        return value
    return _read_text(option.param, tuple if option.kind == list[str] else option.kind, value)


def _read_flag(values: Mapping[str, Any], name: str) -> bool:
    value = values.get(name, False)
    return bool(_read_text(name, bool, value)) if isinstance(value, str) else bool(value)


def _read_truth(text: str) -> bool:
    return _TRUTH[text.lower()]


def _read_words(text: str) -> list[str]:
    return [word for part in _SEPARATORS.split(text) if (word := part.strip())]


def _read_object(text: str) -> dict[str, Any]:
    value = json.loads(text)
    if not isinstance(value, dict):
        raise TypeError(text)
    return value


# How a text is read, and the words for what it should be.
_READERS: Mapping[Any, tuple[Callable[[str], Any], str]] = {
    bool: (_read_truth, "true or false"),
    int: (int, "a whole number"),
    float: (float, "a number"),
    tuple: (_read_words, "words"),
    Mapping: (_read_object, "a JSON object"),
    Priority: (lambda text: int(priority_of(text)), "high, normal or low"),
}


def _read_text(name: str, kind: Any, text: str) -> Any:
    read, form = _READERS[kind]
    try:
        return read(text.strip())
    except (ValueError, KeyError, TypeError, RecursionError):
        raise InvalidInput(f"{name} is {text[:60]!r}", hint=f"write {form}") from None


def _read_json(text: str) -> Any:
    """Return the value of a param: of JSON, or the text itself."""
    try:
        return json.loads(text, parse_constant=str)
    except (ValueError, RecursionError):
        return text
