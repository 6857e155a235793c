"""Backup and restore of the database."""

from pathlib import Path
from typing import Annotated

import typer

from floodmark.errors import InvalidInput

from .root import AsJson, CliContext, Yes


def backup(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write.")],
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Copy the SQLite database to a file while Floodmark runs. The secret key is not included.

    On PostgreSQL use pg_dump.
    """
    from .database_copies import run_backup  # noqa: PLC0415 - loads the database library

    cli = CliContext.of(context)
    cli.require_local("backup")
    run_backup(cli, file, yes=yes, as_json=as_json)


def restore(
    context: typer.Context,
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="A file made by `floodmark backup`.", show_default=False)
    ] = None,
    mark: Annotated[
        bool,
        typer.Option("--mark", help="Only prepare a database that was restored by other means, such as pg_restore."),
    ] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Replace the SQLite database with a backup. All processes must be stopped; the earlier database is kept.

    Items that were collected after the backup are collected again.
    """
    from .database_copies import run_mark, run_restore  # noqa: PLC0415 - loads the database library

    cli = CliContext.of(context)
    cli.require_local("restore")
    if mark and file is not None:
        raise InvalidInput("--mark restores no file", hint="leave out the file, or --mark")
    if mark:
        return run_mark(cli, yes=yes, as_json=as_json)
    if file is None:
        raise InvalidInput(
            "no backup is named", hint="floodmark restore FILE; after pg_restore: floodmark restore --mark"
        )
    return run_restore(cli, file, yes=yes, as_json=as_json)
