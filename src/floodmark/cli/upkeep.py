"""The installation itself: who is there, the schema, the settings, and whether all is well."""

import asyncio
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.text import Text

from floodmark.errors import InvalidInput, NotFound

from .asking import go_ahead
from .root import AsJson, Desk, DryRun, Yes
from .showing import plain, print_json, safe, table
from .times import relative

if TYPE_CHECKING:
    from floodmark.model.fleet import Finding, FleetInfo, WorkerInfo
    from floodmark.operations.declared import AsyncOperations
    from floodmark.operations.rekeying import Rekeyed


def workers(
    context: typer.Context,
    drain: Annotated[bool, typer.Option("--drain", help="Stop all workers from taking executions.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Undo --drain.")] = False,
    as_json: AsJson = False,
) -> None:
    """List the processes of the fleet; drain or resume workers."""
    desk = Desk.of(context)
    if drain and resume:
        raise InvalidInput("--drain and --resume contradict each other", hint="say only one of them")

    async def work(operations: "AsyncOperations") -> "FleetInfo":
        if drain:
            await operations.drain()
        if resume:
            await operations.undrain()
        return await operations.fleet()

    fleet = desk.work(work)
    found, is_draining, leader = fleet.workers, fleet.draining, fleet.leader
    if as_json:
        shapes = [msgspec.structs.asdict(info) | {"leader": info.worker == leader} for info in found]
        return print_json({"draining": is_draining, "leader": leader, "workers": shapes})
    now = datetime.now(UTC)
    if found:
        rows = [_worker_row(info, now, is_leader=info.worker == leader) for info in found]
        desk.out.print(table("name", "role", "pid", "busy", "state", "since", rows=rows, right=("pid", "busy")))
    else:
        desk.out.print("Nobody is there. Start one: floodmark up", highlight=False)
    if is_draining:
        desk.out.print(
            "[yellow]Draining: workers take no more work.[/] Undo it: floodmark workers --resume", highlight=False
        )
    elif resume:
        desk.out.print("[green]Workers take work.[/]", highlight=False)
    return None


def _worker_row(info: "WorkerInfo", now: datetime, *, is_leader: bool) -> list[object]:
    if not info.alive:
        condition = Text(f"silent, last heard of {relative(info.seen_until, now)}", style="red")
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
    desk = Desk.of(context)
    desk.only_here("migrate")
    settings = desk.settings()

    async def work(*, is_trial: bool) -> tuple[str | None, str | None]:
        from alembic.util import CommandError  # noqa: PLC0415 - heavy

        from floodmark.observability.events import Events  # noqa: PLC0415 - heavy
        from floodmark.store.database import open_database  # noqa: PLC0415 - heavy
        from floodmark.store.migrate import current, newest  # noqa: PLC0415 - heavy
        from floodmark.store.migrate import migrate as change  # noqa: PLC0415 - heavy

        database = open_database(settings.database_url, events=Events())
        try:
            await database.ping()
            if is_trial:
                return await current(database), newest()
            return await change(database, to=to)
        except CommandError as error:
            raise InvalidInput(
                f"there is no schema {to[:40]!r}: {error}", hint=f"the newest is {newest()}; floodmark migrate"
            ) from error
        finally:
            await database.close()

    before, newest_known = asyncio.run(work(is_trial=True))
    is_older = to == "base" or (before is not None and to not in ("head", newest_known) and to < before)
    what = f"take the database back from {before} to {to}, with everything that only the newer schema can hold"
    if dry_run and not is_older:
        what = f"bring the schema from {before or 'empty'} to {newest_known if to == 'head' else to}"
    if (is_older or dry_run) and not go_ahead(desk, what, dry_run=dry_run, yes=yes):
        return
    with desk.busy("migrating"):
        before, after = asyncio.run(work(is_trial=False))
    shown = [plain(revision or "empty") for revision in (before, after)]
    if before == after:
        desk.out.print(f"Schema {shown[0]}: nothing to do.", highlight=False)
    else:
        desk.out.print(f"Schema {shown[0]} -> [green]{shown[1]}[/]", highlight=False)


def settings(
    context: typer.Context,
    key: Annotated[str | None, typer.Argument(help="Only keys that contain this text.")] = None,
    changed: Annotated[bool, typer.Option("--changed", help="Only settings that differ from their default.")] = False,
    as_json: AsJson = False,
) -> None:
    """List all settings with their values and origins. Secrets are masked."""
    desk = Desk.of(context)
    rows = [
        row
        for row in desk.settings().rows()
        if (key is None or key.upper() in row.key) and not (changed and row.origin == "default")
    ]
    if key is not None and not any(key.upper() in row.key for row in desk.settings().rows()):
        raise NotFound(f"no setting has {key[:60]!r} in its name", hint=_close_settings(desk, key))
    if as_json:
        return print_json([row._asdict() for row in rows])
    if not rows:
        return desk.out.print("Every setting is at its default. All of them: floodmark settings", highlight=False)
    shown = [
        [
            Text(row.key, style="" if row.origin == "default" else "bold"),
            Text(safe(row.value), style="" if row.origin == "default" else "cyan"),
            Text(row.origin, style="dim" if row.origin == "default" else "cyan"),
            Text(row.help, style="dim"),
        ]
        for row in rows
    ]
    return desk.out.print(table("key", "value", "from", "", rows=shown))


def _close_settings(desk: Desk, key: str) -> str:
    close = get_close_matches(key.upper(), [row.key for row in desk.settings().rows()], n=3)
    return f"did you mean {', '.join(close)}?" if close else "list all of them with: floodmark settings"


def rotate_key(context: typer.Context, yes: Yes = False, as_json: AsJson = False) -> None:
    """Encrypt stored sessions and webhook secrets with a new key.

    The key file of FLOODMARK_HOME is replaced. With FLOODMARK_SECRET_KEY: set it to the new key and
    FLOODMARK_SECRET_KEY_OLD to the old one in every process first. An interrupted rotation is continued.
    """
    desk = Desk.of(context)
    desk.only_here("rotate-key")
    if not go_ahead(desk, "encrypt every stored secret with a new key", yes=yes):
        return None

    async def work() -> "Rekeyed":
        from floodmark.operations.rekeying import rekey  # noqa: PLC0415 - heavy
        from floodmark.security.vault import Vault  # noqa: PLC0415 - heavy

        from .session import open_here  # noqa: PLC0415 - heavy

        async with open_here(desk.overrides) as operations:
            resources = operations.resources
            audit, vault = resources.repositories.audit, Vault.of(resources.settings)
            return await rekey(resources.database, audit, vault, operations.actor)

    done = asyncio.run(work())
    if as_json:
        return print_json(done)
    told = f"{done.accounts} accounts and {done.triggers} triggers are encrypted with the key {done.key}."
    return desk.out.print(told, highlight=False)


def doctor(context: typer.Context, as_json: AsJson = False) -> None:
    """Check connections and invariants of the installation. Exit code 1 if there is a problem."""
    desk = Desk.of(context)

    async def examine() -> "list[Finding]":
        from floodmark.errors import Unavailable  # noqa: PLC0415 - beside its use
        from floodmark.model.fleet import Finding  # noqa: PLC0415 - beside its use

        from .session import open_operations  # noqa: PLC0415 - heavy

        try:
            async with open_operations(desk.overrides, only_reads=True) as operations:
                return await operations.doctor()
        except Unavailable as error:
            if desk.url() is not None:
                raise
            return [Finding(code="database", ok=False, text=str(error), hint=error.hint)]

    with desk.busy("examining the installation"):
        found = asyncio.run(examine())
    bad = [finding for finding in found if not finding.ok]
    if as_json:
        print_json(found)
    else:
        for finding in found:
            good = "[yellow]note[/]" if finding.hint else "[green]ok  [/]"
            sign = good if finding.ok else "[bold red]BAD [/]"
            desk.out.print(f"{sign} [dim]{plain(finding.code):<15}[/] {plain(finding.text)}", highlight=False)
            if finding.hint:
                desk.out.print(f"     {'':<15} [bold]Next:[/] {plain(finding.hint)}", highlight=False)
        desk.note(f"\n{len(found) - len(bad)} of {len(found)} are well.")
    if bad:
        raise typer.Exit(1)
