"""Manage the accounts that sources log in with. Secrets are never printed."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import PurePath
from typing import Annotated

import msgspec
import typer
from rich.text import Text

from floodmark.errors import InvalidInput
from floodmark.model.accounts import AccountRow, Added, Person
from floodmark.model.page import cursor_of, take
from floodmark.operations.accounts import AccountShown

from .confirmation import confirm
from .login_options import LoginOptions, SessionImportOptions
from .option_groups import expand_options
from .output import counted, plain, print_json, safe, short, table
from .root import AsJson, CliContext, DryRun, Yes, command_group
from .times import relative

AccountName = Annotated[str, typer.Argument(metavar="NAME", help="Name of an account.")]

accounts = command_group("Manage Telegram accounts.", default="ls")


@accounts.command()
@expand_options
def add(context: typer.Context, *, options: LoginOptions) -> None:
    """Add an account: log in by phone, or provide a session. It is stored encrypted.

    floodmark accounts add reader1 --phone +4915112345678
    """
    from .account_login import add_account  # noqa: PLC0415 - loads the database and Telethon

    cli = CliContext.of(context)
    if options.phone is not None and options.session is not None:
        raise InvalidInput("--phone and --session contradict each other", hint="use only one of them")
    added, person = add_account(cli, options)
    if options.as_json:
        return print_json({**msgspec.structs.asdict(added), "person": person})
    return _print_added(cli, added, person)


@accounts.command("import")
@expand_options
def import_session(context: typer.Context, *, options: SessionImportOptions) -> None:
    """Add an account with a session of Telethon or Pyrogram. It is tested and stored encrypted.

    floodmark accounts import reader1.session
    """
    from .account_login import add_account, is_file  # noqa: PLC0415 - loads the database and Telethon

    cli = CliContext.of(context)
    name = options.name or (PurePath(options.session).stem if is_file(options.session) else None)
    if name is None:
        raise InvalidInput("the account needs a name", hint="add --name NAME, for example --name reader1")
    added, person = add_account(cli, options.login_options(name))
    if options.as_json:
        return print_json({**msgspec.structs.asdict(added), "person": person})
    return _print_added(cli, added, person)


def _print_added(cli: CliContext, added: Added, person: Person | None) -> None:
    name = plain(added.account.name)
    who = f": {plain(_person_name(person))}" if person is not None else ", unchecked"
    cli.out.print(f"[green]{'Replaced' if added.replaced else 'Added'}[/] [bold]{name}[/]{who}")
    _print_resumed(cli, added.resumed)
    settings = cli.local_settings()
    # A server encrypts with its own key.
    if cli.url() is None and settings.floodmark_secret_key is None and not added.replaced:
        key = settings.floodmark_home / "secret.key"
        cli.note(f"[dim]Its session is encrypted with the key in {plain(key)}. Do not lose that file.[/]")
    if not added.resumed:
        cli.note(f"[dim]Read a channel with it: floodmark add telegram @NAME --every 5m --account {name}[/]")


def _print_resumed(cli: CliContext, resumed: Sequence[str]) -> None:
    if resumed:
        cli.out.print(f"Resumed {counted(len(resumed), 'job')}: {plain(_first_names(resumed))}")


def _person_name(person: Person) -> str:
    handle = f"@{person.username}" if person.username else f"id {person.id}"
    return f"{person.name} ({handle})" if person.name else handle


@accounts.command()
def ls(
    context: typer.Context,
    *,
    after: Annotated[str | None, typer.Option(metavar="NAME", help="Start after this account.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=500, help="Maximum number of entries.")] = 100,
    as_json: AsJson = False,
) -> None:
    """List accounts with owner, state, and the process that has the session open."""
    cli = CliContext.of(context)

    found = cli.work(lambda operations: take(operations.each_account(cursor=cursor_of("accounts", after)), limit))
    now = datetime.now(UTC)
    if as_json:
        return print_json(found)
    if not found:
        cli.out.print("No accounts yet." if after is None else f"No accounts after {plain(after)}.")
        return cli.note("Add one: floodmark accounts add NAME --phone +4915112345678")
    rows = [_row(row, now) for row in found]
    cli.out.print(table("name", "phone", "proxy", "tenant, user", "state", "session", "last used", rows=rows))
    if len(found) == limit:
        cli.note(f"[dim]More: floodmark accounts ls --after {plain(found[-1].name)}[/]")
    return None


def _row(row: AccountRow, now: datetime) -> list[object]:
    is_active = row.state == "active"
    words = "active" if is_active else f"parked: {short(row.reason or 'no reason given', 80)}"
    return [
        Text(safe(row.name), style="bold"),
        row.phone or "-",
        row.proxy or "-",
        ", ".join(filter(None, (row.tenant_id, row.user_id))) or "-",
        Text(words, style="green" if is_active else "red"),
        f"open in {row.holder}" if row.holder else "free",
        "never" if row.last_used_at is None else relative(row.last_used_at, now),
    ]


@accounts.command("test")
def check_account(
    context: typer.Context,
    name: AccountName,
    activate: Annotated[
        bool, typer.Option("--activate", help="Activate the account if it is parked and works.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Test an account by connecting to Telegram. Refused while a worker has its session open."""
    cli = CliContext.of(context)

    with cli.busy("connecting to Telegram"):
        tested = cli.work(lambda operations: operations.test_account(name, activate=activate))
    row, person = tested.account, tested.person
    if as_json:
        return print_json({"account": row, "works": True, "person": person, "resumed": tested.resumed})
    cli.out.print(f"[green]Works[/]: [bold]{plain(name)}[/] is {plain(_person_name(person))}")
    if tested.activated:
        cli.out.print("It is active again.")
        _print_resumed(cli, tested.resumed)
    elif row.state == "parked":
        cli.out.print(f"[yellow]But it is parked[/]: {plain(row.reason or 'no reason given')}")
        cli.note(f"[dim]Use it again: floodmark accounts test {plain(name)} --activate[/]")
    return None


@accounts.command()
def rm(
    context: typer.Context,
    name: AccountName,
    force: Annotated[bool, typer.Option("--force", help="Delete it even if a process has its session open.")] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Delete an account and its session. Jobs that name it stay and wait for a new account of this name."""
    cli = CliContext.of(context)

    shown = cli.work(lambda operations: operations.account(name))
    if not confirm(cli, f"delete the account {_describe(shown)}", dry_run=dry_run, yes=yes):
        return
    cli.work(lambda operations: operations.remove_account(name, force=force))
    cli.out.print(f"Deleted {plain(name)}.")
    cli.note("[dim]The session is still valid at Telegram: end it in the app, under Settings, Devices.[/]")


def _describe(shown: AccountShown) -> str:
    row, count = shown.account, shown.job_count
    phone = f" ({row.phone})" if row.phone else ""
    open_in = f", whose session is open in {row.holder}" if row.holder else ""
    verb = "uses" if count == 1 else "use"
    used_by = f", which {counted(count, 'job')} {verb} ({_first_names(shown.jobs)})" if count else ""
    return f"{row.name}{phone}{open_in}{used_by}"


def _first_names(names: Sequence[str]) -> str:
    return ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")
