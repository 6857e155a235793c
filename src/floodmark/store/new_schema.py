"""The schema of a new database, in one go: to repeat all migrations takes half a second of a core.

`migrations/new/<database>.sql` has the statements that make what the migrations make, for one revision. They are
written by `python tests/new_schemas.py`, and compared with the migrations by a test.
"""

from pathlib import Path

from sqlalchemy import Connection

FOLDER = Path(__file__).parent / "migrations" / "new"
_REVISION, _NEXT = "-- revision ", "\n-- next\n"


def read_new_schema(dialect: str, revision: str) -> list[str] | None:
    """Return the statements that make the schema of this revision, None if those of another one are stored."""
    path = FOLDER / f"{dialect}.sql"
    found, _, statements = path.read_text(encoding="utf-8").partition("\n") if path.exists() else ("", "", "")
    return statements.strip().split(_NEXT) if found == _REVISION + revision else None


def write_new_schema(revision: str, statements: list[str]) -> str:
    """Return the text of the file."""
    return f"{_REVISION}{revision}\n{_NEXT.join(statement.strip() for statement in statements)}\n"


def create_new_schema(connection: Connection, statements: list[str], revision: str) -> None:
    """Make the schema in an empty database, and say which revision it is."""
    for statement in (
        *statements,
        "CREATE TABLE IF NOT EXISTS alembic_version (version_num VARCHAR(32) NOT NULL,"
        " CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num))",
        f"INSERT INTO alembic_version (version_num) VALUES ('{revision}')",
    ):
        # Not `text()`: colons in a trigger would be parameters.
        connection.exec_driver_sql(statement)
