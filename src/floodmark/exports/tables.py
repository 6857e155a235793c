"""Tables of exports: the columns of all items, then those of their source."""

from collections.abc import Callable, Sequence
from typing import Any

from floodmark.errors import InvalidInput
from floodmark.model.exports import ExportRow
from floodmark.process.entry_points import find_extensions, load_extension
from floodmark.rules.item_conditions import Condition, read_path
from floodmark.sources.columns import COLUMNS, ColumnKind, ExportColumn

from .fields import FieldReader, convert_value, decode_data, path_of

# The columns of all items. Their values are not part of the data.
SHARED = (
    ExportColumn("source", "text", "The source of the item, such as `telegram`."),
    ExportColumn("stream", "text", "The stream of the item."),
    ExportColumn("key", "text", "Its key. Stream and key identify an item."),
    ExportColumn("revision", "int", "1 for a new item, then counted up. The greatest one is the newest."),
    ExportColumn("deleted", "bool", "Whether it was deleted at its source."),
    ExportColumn("occurred_at", "time", "When it happened, if that is known."),
    ExportColumn("collected_at", "time", "When this revision was stored."),
    ExportColumn("tenant_id", "text", "The tenant that owns it."),
    ExportColumn("user_id", "text", "The user that owns it."),
)
DATA = ExportColumn("data", "json", "The whole item.")

Values = list[Any]
ReadField = Callable[[Values, ExportRow], Any]


class ExportTable:
    """The columns of the items of one source."""

    def __init__(self, source: str, own: Sequence[ExportColumn] | None, *, with_data: bool = False) -> None:
        self.source, self.is_generic = source, own is None
        self.columns = (*SHARED, *(own or ()), *([DATA] if with_data or own is None else []))
        self.names = [column.name for column in self.columns]
        self._fields = None if own is None else FieldReader([one for one in own if not one.beside])
        self._beside = [one for one in own or () if one.beside]
        self._has_data = self.columns[-1] is DATA

    @property
    def unfit(self) -> dict[str, int]:
        """Return how many values did not fit the type of their column, by its name."""
        return {} if self._fields is None else self._fields.unfit

    def values_of(self, row: ExportRow) -> Values:
        """Return the values of a row, in the order of the columns."""
        values: Values = [
            self.source,
            row.stream,
            row.key,
            row.revision,
            row.deleted,
            row.occurred_at,
            row.collected_at,
            row.tenant_id,
            row.user_id,
        ]
        if self._fields is not None:
            values += self._fields.read(row.data)
        if self._beside:
            found = row.beside or {}
            values += [convert_value(column, found.get(column.name)) for column in self._beside]
        if self._has_data:
            values.append(decode_data(row.data))
        return values

    def reader_of(self, condition: Condition) -> ReadField | None:
        """Return what reads the field of a condition; None if this table does not have the field."""
        field = condition.field
        if field in self.names:
            place = self.names.index(field)
            _check_value(condition, self.columns[place].kind)
            return lambda values, _: values[place]
        first, _, rest = field.partition(".")
        if first == "data" and rest:
            path = tuple(rest.split("."))
        elif self.is_generic or first in self.names:
            path = tuple(field.split("."))
        else:
            return None
        return lambda _, row: read_path(decode_data(row.data), path)


def load_table(source: str, *, with_data: bool = False) -> ExportTable:
    """Return the table of a source; with the shared columns and the data alone if it has no columns."""
    if source not in find_extensions(COLUMNS):
        return ExportTable(source, None)
    own: Sequence[ExportColumn] = load_extension(COLUMNS, source)
    names, paths = [column.name for column in (*SHARED, DATA, *own)], [path_of(column) for column in own]
    twice = {name for name in names if names.count(name) > 1} | {".".join(one) for one in paths if paths.count(one) > 1}
    if twice:
        raise InvalidInput(
            f"the columns of {source} have a name or a path twice: {', '.join(sorted(twice))}",
            hint="change it in the package of the source",
        )
    if [one.beside for one in own] != sorted(one.beside for one in own):
        raise InvalidInput(
            f"a column of {source} that is stored beside items is not one of its last columns",
            hint="change it in the package of the source",
        )
    return ExportTable(source, own, with_data=with_data)


def known_sources() -> list[str]:
    """Return the sources that have columns of their own."""
    return sorted(find_extensions(COLUMNS))


def _check_value(condition: Condition, kind: ColumnKind) -> None:
    """Refuse a value that can never be compared with the type of its column."""
    name, value = condition.field, condition.value
    if condition.operator in ("~", "!~") or value == "null":
        return
    if kind in ("int", "float") and condition.number is None:
        raise InvalidInput(f"{name} is a number, and {value[:40]!r} is not", hint=f"for example {name}>100")
    if kind == "time" and condition.period is None:
        raise InvalidInput(f"{name} is a time, and {value[:40]!r} is not", hint=f"for example {name}>=2026-11-01")
    if kind == "bool" and value not in ("true", "false"):
        raise InvalidInput(f"{name} is true or false, not {value[:40]!r}", hint=f"for example {name}=true")
