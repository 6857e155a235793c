"""The installation: workers, schema, settings, keys and checks."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Annotated

import msgspec
import typer
from rich.text import Text

from floodmark.errors import InvalidInput, NotFound, Unavailable
from floodmark.model.fleet import Finding, FleetInfo, SettingShown, WorkerInfo
from floodmark.operations.declared import AsyncOperations

from .confirmation import confirm
from .output import plain, print_json, safe, table
from .root import AsJson, CliContext, DryRun, Yes
from .session import open_operations
from .times import relative


def workers(
    context: typer.Context,
    drain: Annotated[bool, typer.Option("--drain", help="Stop all workers from taking executions.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Undo --drain.")] = False,
    as_json: AsJson = False,
) -> None:
    """List the processes of the fleet; drain or resume workers."""
    cli = CliContext.of(context)
    if drain and resume:
        raise InvalidInput("--drain and --resume contradict each other", hint="use only one of them")

    async def work(operations: AsyncOperations) -> FleetInfo:
        if drain:
            await operations.drain()
        if resume:
            await operations.undrain()
        return await operations.fleet()

    fleet = cli.work(work)
    found, is_draining, leader = fleet.workers, fleet.draining, fleet.leader
    if as_json:
        shapes = [msgspec.structs.asdict(info) | {"leader": info.worker == leader} for info in found]
        return print_json({"draining": is_draining, "leader": leader, "workers": shapes})
    now = datetime.now(UTC)
    if found:
        rows = [_worker_row(info, now, is_leader=info.worker == leader) for info in found]
        cli.out.print(table("name", "role", "pid", "busy", "state", "since", rows=rows, right=("pid", "busy")))
    else:
        cli.out.print("No processes are running. Start one: floodmark up")
    if is_draining:
        cli.out.print("[yellow]Draining: workers start no executions.[/] Undo it: floodmark workers --resume")
    elif resume:
        cli.out.print("[green]Workers start executions again.[/]")
    return None


def _worker_row(info: WorkerInfo, now: datetime, *, is_leader: bool) -> list[object]:
    if not info.alive:
        condition = Text(f"silent, last seen {relative(info.seen_until, now)}", style="red")
    elif info.draining:
        condition = Text("draining", style="yellow")
    else:
        condition = Text("leader" if is_leader else "alive", style="green")
    busy = f"{info.busy}/{info.slots}" if info.slots else "-"
    return [Text(safe(info.worker), style="bold"), info.role, info.pid, busy, condition, relative(info.started_at, now)]


def migrate(
    context: typer.Context,
    to: Annotated[str, typer.Option(metavar="REVISION", help="Target revision of the schema.")] = "head",
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Migrate the database to the schema of this version. On SQLite this happens automatically."""
    from .database_tasks import migrate_database  # noqa: PLC0415 - loads Alembic

    cli = CliContext.of(context)
    cli.require_local("migrate")
    url = cli.settings().database_url

    before, newest_known = asyncio.run(migrate_database(url, to, dry_run=True))
    is_older = to == "base" or (before is not None and to not in ("head", newest_known) and to < before)
    action = f"downgrade the database from {before} to {to} and delete data that only the newer schema can store"
    if dry_run and not is_older:
        action = f"migrate the schema from {before or 'empty'} to {newest_known if to == 'head' else to}"
    if (is_older or dry_run) and not confirm(cli, action, dry_run=dry_run, yes=yes):
        return
    with cli.busy("migrating"):
        before, after = asyncio.run(migrate_database(url, to, dry_run=False))
    shown = [plain(revision or "empty") for revision in (before, after)]
    if before == after:
        cli.out.print(f"Schema {shown[0]}: nothing to do.")
    else:
        cli.out.print(f"Schema {shown[0]} -> [green]{shown[1]}[/]")


def settings(
    context: typer.Context,
    key: Annotated[str | None, typer.Argument(help="Only keys that contain this text.")] = None,
    changed: Annotated[bool, typer.Option("--changed", help="Only settings that differ from their default.")] = False,
    as_json: AsJson = False,
) -> None:
    """List all settings with their values and origins. Secrets are masked. With --url: those of the server."""
    cli = CliContext.of(context)
    every = _settings(cli)
    rows = [
        row for row in every if (key is None or key.upper() in row.key) and not (changed and row.origin == "default")
    ]
    if key is not None and not any(key.upper() in row.key for row in every):
        raise NotFound(f"no setting has {key[:60]!r} in its name", hint=_close_settings(every, key))
    if as_json:
        return print_json(rows)
    if not rows:
        return cli.out.print("All settings have their defaults. List all: floodmark settings")
    shown = [
        [
            Text(row.key, style="" if row.origin == "default" else "bold"),
            Text(safe(row.value), style="" if row.origin == "default" else "cyan"),
            Text(row.origin, style="dim" if row.origin == "default" else "cyan"),
            Text(row.help, style="dim"),
        ]
        for row in rows
    ]
    return cli.out.print(table("key", "value", "from", "", rows=shown))


def _settings(cli: CliContext) -> list[SettingShown]:
    # Without a server this reads no database: the settings may be wrong.
    if cli.url() is None:
        return [SettingShown(**row._asdict()) for row in cli.settings().rows()]
    return cli.work(lambda operations: operations.settings())


def _close_settings(every: Sequence[SettingShown], key: str) -> str:
    close = get_close_matches(key.upper(), [row.key for row in every], n=3)
    return f"did you mean {', '.join(close)}?" if close else "list all with: floodmark settings"


def rotate_key(context: typer.Context, yes: Yes = False, as_json: AsJson = False) -> None:
    """Encrypt stored sessions and secrets with a new key.

    The key file of FLOODMARK_HOME is replaced. With FLOODMARK_SECRET_KEY: set it to the new key and
    FLOODMARK_SECRET_KEY_OLD to the old one in every process first. An interrupted rotation is continued.
    """
    from .database_tasks import rotate_secret_key  # noqa: PLC0415 - loads the database library

    cli = CliContext.of(context)
    cli.require_local("rotate-key")
    if not confirm(cli, "encrypt every stored secret with a new key", yes=yes):
        return None
    done = asyncio.run(rotate_secret_key(cli.overrides))
    if as_json:
        return print_json(done)
    return cli.out.print(
        f"{done.accounts} accounts, {done.triggers} triggers and {done.secrets} secrets of jobs are encrypted with the "
        f"key {done.key}."
    )


def doctor(context: typer.Context, as_json: AsJson = False) -> None:
    """Check connections and invariants of the installation. Exit code 1 if there is a problem."""
    cli = CliContext.of(context)

    async def check() -> list[Finding]:

        try:
            async with open_operations(cli.overrides, only_reads=True) as operations:
                return await operations.doctor()
        except Unavailable as error:
            if cli.url() is not None:
                raise
            return [Finding(code="database", ok=False, text=str(error), hint=error.hint)]

    with cli.busy("checking the installation"):
        found = asyncio.run(check())
    bad = [finding for finding in found if not finding.ok]
    if as_json:
        print_json(found)
    else:
        for finding in found:
            good = "[yellow]note[/]" if finding.hint else "[green]ok  [/]"
            sign = good if finding.ok else "[bold red]BAD [/]"
            cli.out.print(f"{sign} [dim]{plain(finding.code):<15}[/] {plain(finding.text)}")
            if finding.hint:
                cli.out.print(f"     {'':<15} [bold]Next:[/] {plain(finding.hint)}")
        cli.note(f"\n{len(found) - len(bad)} of {len(found)} checks passed.")
    if bad:
        raise typer.Exit(1)
