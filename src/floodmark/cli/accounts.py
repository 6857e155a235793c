"""The accounts that sources log in with: add, list, test, remove. Secrets are asked for, not shown."""

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.text import Text

from floodmark.errors import InvalidInput
from floodmark.model.page import cursor_of, take

from .asking import go_ahead
from .logging_in import SESSION_VARIABLE, LoginRequest, bring, fill_in, log_in
from .root import AsJson, Desk, DryRun, Yes
from .showing import counted, plain, print_json, safe, short, table
from .times import relative

if TYPE_CHECKING:
    from floodmark.model.accounts import AccountRow, Added, Person


AccountName = Annotated[str, typer.Argument(metavar="NAME", help="Name of an account.")]

accounts = typer.Typer(help="Manage Telegram accounts.")


@accounts.callback(invoke_without_command=True)
def begin(context: typer.Context) -> None:
    """Manage Telegram accounts."""
    if context.invoked_subcommand is None:
        ls(context)


# Adding


@accounts.command()
def add(
    context: typer.Context,
    *,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name: letters, digits, and any of - _ .")],
    phone: Annotated[str | None, typer.Option(metavar="NUMBER", help="Log in with this phone number.")] = None,
    session: Annotated[
        str | None,
        typer.Option(
            metavar="SESSION",
            help="Use a session of Telethon: a .session file, the text of a string session, or - to read it from "
            f"the standard input. Without it {SESSION_VARIABLE} is looked at.",
        ),
    ] = None,
    api_id: Annotated[
        int | None, typer.Option(min=1, help="Id of your application at Telegram (default: TELEGRAM_API_ID).")
    ] = None,
    api_hash: Annotated[
        str | None, typer.Option(help="Hash of your application at Telegram (default: TELEGRAM_API_HASH).")
    ] = None,
    tenant: Annotated[str | None, typer.Option(help="Tenant that owns it; posts have it as tenant_id.")] = None,
    user: Annotated[str | None, typer.Option(help="User who owns it; posts have it as user_id.")] = None,
    replace: Annotated[
        bool,
        typer.Option(
            "--replace", help="Log in again under an existing name; options that are not given stay unchanged."
        ),
    ] = False,
    code: Annotated[str | None, typer.Option(help="Login code, if already known.")] = None,
    no_check: Annotated[
        bool, typer.Option("--no-check", help="Store a session without testing it with Telegram.")
    ] = False,
    server: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="A test server on this machine.", hidden=True)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Add an account: log in by phone, or provide a session. It is stored encrypted.

    floodmark accounts add reader1 --phone +4915112345678
    """
    desk = Desk.of(context)
    if phone is not None and session is not None:
        raise InvalidInput("--phone and --session contradict each other", hint="say only one of them")
    request = LoginRequest(
        name=name,
        phone=phone,
        code=code,
        api_id=api_id,
        api_hash=api_hash,
        tenant=tenant,
        user=user,
        replace=replace,
        is_checked=not no_check,
    )
    known = fill_in(desk, request)
    given = session if session is not None or phone is not None else os.environ.get(SESSION_VARIABLE)
    added, person = bring(desk, request, given) if given else log_in(desk, request, known, server)
    if as_json:
        return print_json({**msgspec.structs.asdict(added), "person": person})
    return _tell_added(desk, added, person)


def _tell_added(desk: Desk, added: "Added", person: "Person | None") -> None:
    name = plain(added.account.name)
    who = f": {plain(_who(person))}" if person is not None else ", unchecked"
    desk.out.print(f"[green]{'Replaced' if added.replaced else 'Added'}[/] [bold]{name}[/]{who}", highlight=False)
    _tell_resumed(desk, added.resumed)
    settings = desk.maker().settings
    # Of a server it is its own that counts, and whoever runs it knows.
    if desk.url() is None and settings.floodmark_secret_key is None and not added.replaced:
        key = settings.floodmark_home / "secret.key"
        desk.note(f"[dim]Its session is encrypted with the key in {plain(key)}: without that file it is lost.[/]")
    if not added.resumed:
        desk.note(f"[dim]Read a channel with it: floodmark add telegram @NAME --every 5m --account {name}[/]")


def _tell_resumed(desk: Desk, resumed: Sequence[str]) -> None:
    if resumed:
        names = ", ".join(resumed[:10]) + (", ..." if len(resumed) > 10 else "")
        desk.out.print(f"Resumed {counted(len(resumed), 'job')}: {plain(names)}", highlight=False)


def _who(person: "Person") -> str:
    handle = f"@{person.username}" if person.username else f"id {person.id}"
    return f"{person.name} ({handle})" if person.name else handle


# Looking


@accounts.command()
def ls(
    context: typer.Context,
    *,
    after: Annotated[str | None, typer.Option(metavar="NAME", help="Start after this account.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=500, help="Maximum number of entries.")] = 100,
    as_json: AsJson = False,
) -> None:
    """List accounts with owner, state, and the process that has the session open."""
    desk = Desk.of(context)

    found, now = (
        desk.work(lambda operations: take(operations.each_account(cursor=cursor_of("accounts", after)), limit)),
        datetime.now(UTC),
    )
    if as_json:
        return print_json(found)
    if not found:
        desk.out.print("No accounts yet." if after is None else f"No accounts behind {plain(after)}.", highlight=False)
        return desk.note("Add one: floodmark accounts add NAME --phone +4915112345678")
    rows = [_row(row, now) for row in found]
    desk.out.print(table("name", "phone", "tenant, user", "state", "session", "last used", rows=rows))
    if len(found) == limit:
        desk.note(f"[dim]More: floodmark accounts ls --after {plain(found[-1].name)}[/]")
    return None


def _row(row: "AccountRow", now: datetime) -> list[object]:
    is_active = row.state == "active"
    words = "active" if is_active else f"parked: {short(row.reason or 'no reason given', 80)}"
    return [
        Text(safe(row.name), style="bold"),
        row.phone or "-",
        ", ".join(filter(None, (row.tenant_id, row.user_id))) or "-",
        Text(words, style="green" if is_active else "red"),
        f"open in {row.holder}" if row.holder else "free",
        "never" if row.last_used_at is None else relative(row.last_used_at, now),
    ]


@accounts.command("test")
def try_out(
    context: typer.Context,
    name: AccountName,
    activate: Annotated[
        bool, typer.Option("--activate", help="Activate the account if it is parked and works.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Test an account by connecting to Telegram. Refused while a worker has its session open."""
    desk = Desk.of(context)

    with desk.busy("asking Telegram who it is"):
        told = desk.work(lambda operations: operations.test_account(name, activate=activate))
    row, person = told.account, told.person
    if as_json:
        return print_json({"account": row, "works": True, "person": person, "resumed": told.resumed})
    desk.out.print(f"[green]Works[/]: [bold]{plain(name)}[/] is {plain(_who(person))}", highlight=False)
    if told.activated:
        desk.out.print("It is active again.", highlight=False)
        _tell_resumed(desk, told.resumed)
    elif row.state == "parked":
        desk.out.print(f"[yellow]But it is parked[/]: {plain(row.reason or 'no reason given')}", highlight=False)
        desk.note(f"[dim]Use it again: floodmark accounts test {plain(name)} --activate[/]")
    return None


# Removing


@accounts.command()
def rm(
    context: typer.Context,
    name: AccountName,
    force: Annotated[bool, typer.Option("--force", help="Delete it even if a process has its session open.")] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Delete an account and its session. Jobs that name it stay and wait for a new account of this name."""
    desk = Desk.of(context)

    shown = desk.work(lambda operations: operations.account(name))
    if not go_ahead(desk, f"forget the account {_described(shown.account, shown.jobs)}", dry_run=dry_run, yes=yes):
        return
    desk.work(lambda operations: operations.remove_account(name, force=force))
    desk.out.print(f"Forgot {plain(name)}.", highlight=False)
    desk.note("[dim]Telegram still knows its session: end it in the app, under Settings, Devices.[/]")


def _described(row: "AccountRow", asking: Sequence[str]) -> str:
    phone = f" ({row.phone})" if row.phone else ""
    open_in = f", whose session is open in {row.holder}" if row.holder else ""
    verb = "asks" if len(asking) == 1 else "ask"
    names = ", ".join(asking[:10]) + (", ..." if len(asking) > 10 else "")
    jobs = f", which {counted(len(asking), 'job')} {verb} for ({names})" if asking else ""
    return f"{row.name}{phone}{open_in}{jobs}"
