"""The schema of the database: every `tables.py` declares its tables on one `metadata`."""

from importlib import import_module
from pathlib import Path
from typing import Any

from sqlalchemy import ColumnElement, Index, MetaData, text

_PACKAGE = Path(__file__).parents[1]
_WHERE = "where"

_NAMES = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    "pk": "pk_%(table_name)s",
}

metadata = MetaData(naming_convention=_NAMES)
# Tables that only PostgreSQL has. The modules that declare them are not imported on SQLite.
postgres_metadata = MetaData(naming_convention=_NAMES)


def partial_index(name: str, where: str, *columns: ColumnElement[Any] | str, unique: bool = False) -> Index:
    """Return an index of the rows that match `where`."""
    # The same for PostgreSQL is left to `load_metadata`: naming the dialect here would import it.
    return Index(name, *columns, unique=unique, sqlite_where=text(where), info={_WHERE: where})


def load_metadata() -> MetaData:
    """Import every `tables.py` and return the schema of both databases; `postgres_metadata` is then complete, too.

    Only migrations and tests need all tables at once.
    """
    for path in sorted(_PACKAGE.rglob("tables.py")):
        import_module(".".join((_PACKAGE.name, *path.relative_to(_PACKAGE).with_suffix("").parts)))
    for index in (index for table in metadata.tables.values() for index in table.indexes if _WHERE in index.info):
        index.dialect_options["postgresql"]["where"] = text(index.info[_WHERE])
    return metadata
