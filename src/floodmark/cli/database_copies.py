"""The work of `backup` and `restore`."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn
from sqlalchemy import make_url

from floodmark.errors import Conflict, InvalidInput
from floodmark.model.audit import Actor
from floodmark.operations.backups import Restore, back_up
from floodmark.operations.restored_database import mark_restored
from floodmark.store.sqlite.copying import Progress as CopyProgress

from .confirmation import confirm
from .output import console, plain, print_json
from .root import CliContext
from .session import open_here, user_name
from .times import relative


def run_backup(cli: CliContext, file: Path, *, yes: bool, as_json: bool) -> None:
    """Write a backup, and say what is not in it."""
    settings = cli.settings()
    path = _sqlite_path(settings.database_url, "back it up with: pg_dump --format custom")
    if file.is_file() and not confirm(cli, f"replace the file {file}", yes=yes):
        return None
    with _progress(cli) as progress:
        made = back_up(path, file, progress)
    if as_json:
        return print_json(made)
    size = f"{made.bytes / 1e6:,.1f} MB"
    cli.out.print(f"[green]Done[/]: {plain(made.path)}, {size}, schema {plain(made.schema)}", soft_wrap=True)
    key = settings.floodmark_home / "secret.key"
    if settings.floodmark_secret_key is None and key.exists():
        cli.note(f"[dim]The secret key is not in it. Keep a copy elsewhere: {plain(key)}[/]")
    return None


def run_restore(cli: CliContext, file: Path, *, yes: bool, as_json: bool) -> None:
    """Replace the database with a backup."""
    path = _sqlite_path(cli.settings().database_url, "restore it with pg_restore, then type: floodmark restore --mark")
    restore = Restore(file, path)
    restore.check()
    if restore.is_replacing and not confirm(cli, f"replace the database {path} with {file}", yes=yes):
        return None
    with _progress(cli) as progress:
        done = asyncio.run(restore.run(_actor(), progress))
    if as_json:
        return print_json(done)
    made = "" if done.made_at is None else f", made {relative(done.made_at, datetime.now(UTC))}"
    cli.out.print(
        f"[green]Done[/]: {plain(done.database)} is now {plain(file)}{made}, schema {plain(done.schema)}",
        soft_wrap=True,
    )
    if done.kept is not None:
        cli.out.print(f"The earlier database is kept as {plain(done.kept)}", soft_wrap=True)
    return cli.note("[dim]Start Floodmark: what came after the backup is collected again. Check: floodmark doctor[/]")


def run_mark(cli: CliContext, *, yes: bool, as_json: bool) -> None:
    """Prepare a database that was restored by other means."""
    shown = make_url(cli.settings().database_url).render_as_string(hide_password=True)
    if not confirm(cli, f"treat {shown} as just restored", yes=yes):
        return None

    async def work() -> int:
        async with open_here(cli.overrides) as operations:
            resources = operations.resources
            alive = [info.worker for info in await resources.repositories.fleet.workers() if info.alive]
            if alive:
                raise Conflict(
                    f"these processes use the database: {', '.join(alive[:5])}",
                    hint="stop them; processes that ended with the backup are forgotten after a minute",
                )
            return await mark_restored(resources.database, resources.clock, _actor())

    position = asyncio.run(work())
    if as_json:
        return print_json({"position": position})
    return cli.out.print(f"[green]Done[/]: the positions of events continue after {position:,}.")


def _sqlite_path(url: str, hint: str) -> Path:
    """Return the file of the database, or refuse a database that is none."""
    found = make_url(url)
    if found.get_backend_name() != "sqlite":
        shown = found.render_as_string(hide_password=True)
        raise InvalidInput(
            f"{shown} is not a file: this command is for SQLite", hint=f"{hint}; see docs/how-to/backup.md"
        )
    return Path(found.database or "")


def _actor() -> Actor:
    return Actor(who=user_name(), via="cli")


@contextmanager
def _progress(cli: CliContext) -> Iterator[CopyProgress]:
    """Show a progress bar on the terminal of stderr."""
    err = console(stderr=True)
    columns = (SpinnerColumn(), BarColumn(), TaskProgressColumn(), TimeElapsedColumn(), TextColumn("copying"))
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal or cli.is_quiet) as bar:
        task = bar.add_task("", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
