"""Columns of exports: how a source describes the fields of its items as a table.

A source names its columns in the group of entry points `floodmark.columns`, under its own name. Items of a source
without columns are exported with the columns of all items and their data as JSON.
"""

from typing import Literal

from msgspec import Struct

# The group of entry points. Each has the name of a source and names its columns: a tuple of `ExportColumn`.
COLUMNS = "floodmark.columns"

ColumnKind = Literal["text", "int", "float", "bool", "time", "texts", "json"]
"""The type of a column: `texts` is a list of texts, `json` any value."""


class ExportColumn(Struct, frozen=True):
    """A column of an export. `path` is the place of its value in the data of an item, such as `media.type`.

    By default the path is the name. A name must differ from those of the columns of all items. Columns may be added at
    the end; a name keeps its meaning and its type.
    """

    name: str
    kind: ColumnKind
    help: str
    path: str = ""
    beside: bool = False
    """Whether its value is stored beside the items. Such columns are the last ones."""
