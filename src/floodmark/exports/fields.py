"""Reads the fields of items from their JSON, in the types of their columns.

Most items have the documented types, so they are decoded directly into these types. The values of any other item are
converted one by one; a value that cannot be converted is empty and counted.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from math import isfinite
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from msgspec.structs import astuple

from floodmark.rules.item_conditions import read_path
from floodmark.sources.columns import ColumnKind, ExportColumn

_LEAST, _MOST = -(2**63), 2**63 - 1
_TYPES: Mapping[ColumnKind, Any] = {
    "text": str | None,
    "int": Annotated[int, Meta(ge=_LEAST, le=_MOST)] | None,
    "float": float | None,
    "bool": bool | None,
    "time": Annotated[datetime, Meta(tz=True)] | None,
    "texts": list[str] | None,
    "json": Any,
}
_encoder = msgspec.json.Encoder()


class FieldReader:
    """Reads the values of columns. `unfit` counts values that do not fit their column, by its name."""

    def __init__(self, columns: Sequence[ExportColumn]) -> None:
        self.unfit: dict[str, int] = {}
        self._columns, self._paths = columns, [path_of(column) for column in columns]
        # The names of the fields to decode: those of the columns, and of objects that only contain one.
        tops = [path[0] if len(path) == 1 else None for path in self._paths]
        self._nested: list[tuple[int, int]] = []
        for place, path in enumerate(self._paths):
            if len(path) > 1:
                if path[0] not in tops:
                    tops.append(path[0])
                self._nested.append((place, tops.index(path[0])))
        self._times = [place for place, column in enumerate(columns) if column.kind == "time"]
        self._decoder = _decoder_of(columns, tops)

    def read(self, text: str) -> list[Any]:
        """Return the values of the columns in the JSON of an item."""
        try:
            found = list(astuple(self._decoder.decode(text)))
        except (msgspec.DecodeError, RecursionError):
            return self._convert(decode_data(text))
        for place in self._times:
            if found[place] is not None and found[place].tzinfo is not UTC:
                found[place] = found[place].astimezone(UTC)
        for place, top in self._nested:
            if found[top] is not None:
                found[place] = self._convert_one(place, read_path(found[top], self._paths[place][1:]))
        return found[: len(self._columns)]

    def _convert(self, data: Any) -> list[Any]:
        if not isinstance(data, dict):
            return [None] * len(self._columns)
        return [self._convert_one(place, read_path(data, path)) for place, path in enumerate(self._paths)]

    def _convert_one(self, place: int, value: Any) -> Any:
        if value is None:
            return None
        column = self._columns[place]
        try:
            return _CONVERSIONS[column.kind](value)
        except (ValueError, OverflowError):
            self.unfit[column.name] = self.unfit.get(column.name, 0) + 1
            return None


def decode_data(text: str) -> Any:
    """Return the data of an item. Data that was changed by hand and is not JSON any more is text."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text


def convert_value(column: ExportColumn, value: Any) -> Any:
    """Return a value that is stored beside an item in the type of its column."""
    return None if value is None else _CONVERSIONS[column.kind](value)


def path_of(column: ExportColumn) -> tuple[str, ...]:
    """Return the place of a column in the data of an item."""
    return tuple((column.path or column.name).split("."))


def _decoder_of(columns: Sequence[ExportColumn], tops: Sequence[str | None]) -> "msgspec.json.Decoder[Any]":
    """Return a decoder into a struct with one field for each top-level name, in their order."""
    fields: list[tuple[str, Any, Any]] = []
    names: dict[str, str] = {}
    for place, top in enumerate(tops):
        is_value = place < len(columns) and top is not None
        fields.append((f"f{place}", _TYPES[columns[place].kind] if is_value else Any, None))
        # A nested value has a field that no item has, so that the places of the others fit.
        names[f"f{place}"] = f"floodmark:{place}" if top is None else top
    return msgspec.json.Decoder(msgspec.defstruct("Fields", fields, rename=names))


def _to_text(value: Any) -> str:
    return value if isinstance(value, str) else _encoder.encode(value).decode()


def _to_int(value: Any) -> int:
    if isinstance(value, str) or (isinstance(value, float) and value.is_integer()):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not _LEAST <= value <= _MOST:
        raise ValueError
    return value


def _to_float(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError
    number = float(value)
    if not isfinite(number):
        raise ValueError
    return number


def _to_bool(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError
    return value


def _to_time(value: Any) -> datetime:
    if not isinstance(value, str):
        raise ValueError
    found = datetime.fromisoformat(value)
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


def _to_texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list):
        raise ValueError
    return [_to_text(one) for one in value]


_CONVERSIONS: Mapping[ColumnKind, Callable[[Any], Any]] = {
    "text": _to_text,
    "int": _to_int,
    "float": _to_float,
    "bool": _to_bool,
    "time": _to_time,
    "texts": _to_texts,
    "json": lambda value: value,
}
