"""The accounts that sources log in with: add, list, test, remove. Secrets are asked for, not shown."""

import asyncio
import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from rich.text import Text

from floodmark.errors import FloodmarkError, InvalidInput, NotFound
from floodmark.signals.port import Topic

from .asking import go_ahead
from .root import AsJson, Desk, DryRun, Yes
from .showing import console, counted, plain, print_json, safe, short, table
from .times import relative

if TYPE_CHECKING:
    from floodmark.sources.telegram.login import Application, Person, Server, SignedIn
    from floodmark.store.accounts import Account, AccountRow, Accounts, Added

    from .session import Session

SESSION_VARIABLE = "TELEGRAM_SESSION"

_CODES_ASKED = 3
# How much longer than its deadline a test may hold the session: for its goodbye.
_SPARE = timedelta(seconds=15)
# A server on this machine does not look at them.
_LOOPBACK_APPLICATION = (1, "loopback")

AccountName = Annotated[str, typer.Argument(metavar="NAME", help="The name of an account.")]

accounts = typer.Typer(help="The accounts that Telegram channels are read with.")


@accounts.callback(invoke_without_command=True)
def begin(context: typer.Context) -> None:
    """The accounts that Telegram channels are read with."""
    if context.invoked_subcommand is None:
        ls(context)


# Adding


class _Request(msgspec.Struct, kw_only=True):
    """What was asked for, filled in step by step."""

    name: str
    phone: str | None
    code: str | None
    api_id: int | None
    api_hash: str | None
    tenant: str | None
    user: str | None
    replace: bool
    is_checked: bool

    def keep(self, known: "Account") -> None:
        """Let what was not said stay as it is."""
        self.phone = self.phone or known.secrets.phone
        self.tenant, self.user = self.tenant or known.tenant_id, self.user or known.user_id


@accounts.command()
def add(
    context: typer.Context,
    *,
    name: Annotated[str, typer.Argument(metavar="NAME", help="What to call it: letters, digits, and any of - _ .")],
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
        int | None, typer.Option(min=1, help="Of your application at Telegram (default: TELEGRAM_API_ID).")
    ] = None,
    api_hash: Annotated[str | None, typer.Option(help="Its hash (default: TELEGRAM_API_HASH).")] = None,
    tenant: Annotated[str | None, typer.Option(help="Whose it is: posts carry it as tenant_id.")] = None,
    user: Annotated[str | None, typer.Option(help="Whose it is: posts carry it as user_id.")] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Log in anew under a name that is there; what is not given stays.")
    ] = False,
    code: Annotated[str | None, typer.Option(help="The code, if it is known before it is asked for.")] = None,
    no_check: Annotated[
        bool, typer.Option("--no-check", help="Store a session without asking Telegram whether it works.")
    ] = False,
    server: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="A test server on this machine.", hidden=True)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Add an account: log in by phone, or bring a session. It is encrypted before it is stored.

    floodmark accounts add reader1 --phone +4915112345678
    """
    desk = Desk.of(context)
    if phone is not None and session is not None:
        raise InvalidInput("--phone and --session contradict each other", hint="say only one of them")
    request = _Request(
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
    known = desk.work(lambda opened: _known(opened, request))
    if known is not None:
        request.keep(known)
    given = session if session is not None or phone is not None else os.environ.get(SESSION_VARIABLE)
    if given:
        added, person = _bring(desk, request, known, given)
    else:
        added, person = _log_in(desk, request, known, server)
    if as_json:
        return print_json({**msgspec.structs.asdict(added), "person": person})
    return _tell_added(desk, added, person)


async def _known(session: "Session", request: _Request) -> "Account | None":
    """What is stored under this name, as far as it can be read. Refuses now what would be refused in the end."""
    from floodmark.store.accounts import check_name, taken  # noqa: PLC0415 - heavy
    from floodmark.vault import Vault  # noqa: PLC0415 - heavy

    check_name(request.name)
    store = _store(session)
    try:
        await store.show(request.name)
    except NotFound:
        known = None
    else:
        if not request.replace:
            raise taken(request.name)
        known = await _readable(store, request.name)
    # A login that cannot be stored would be lost, and Telegram counts them.
    Vault.of(session.parts.settings).seal("", label=request.name)
    return known


async def _readable(store: "Accounts", name: str) -> "Account | None":
    try:
        return await store.get(name)
    except FloodmarkError:
        # Stored with a key that is lost: storing it anew is the way out.
        return None


def _store(session: "Session") -> "Accounts":
    from floodmark.store.accounts import Accounts  # noqa: PLC0415 - heavy
    from floodmark.vault import Vault  # noqa: PLC0415 - heavy

    parts = session.parts
    return Accounts(parts.database, parts.clock, Vault.of(parts.settings), parts.events)


def _application(desk: Desk, request: _Request, known: "Account | None", *, is_loopback: bool) -> "Application":
    from floodmark.sources.telegram.login import REGISTER, Application  # noqa: PLC0415 - heavy

    settings = desk.settings()
    stored = settings.telegram_api_hash
    api_id = request.api_id or settings.telegram_api_id
    api_hash = request.api_hash or (stored.get_secret_value() if stored is not None else None)
    if api_id is None and api_hash is None:
        if known is not None:
            return Application(known.api_id, known.api_hash)
        if is_loopback:
            return Application(*_LOOPBACK_APPLICATION)
    if api_id is None or not api_hash:
        missing = " and ".join([*(["id"] if api_id is None else []), *([] if api_hash else ["hash"])])
        raise InvalidInput(
            f"the api {missing} of your application at Telegram is missing",
            hint=f"get both at {REGISTER} (API development tools), then set TELEGRAM_API_ID and TELEGRAM_API_HASH, "
            "or say --api-id N --api-hash H",
        )
    return Application(api_id, api_hash)


# With a session


def _bring(desk: Desk, request: _Request, known: "Account | None", given: str) -> "tuple[Added, Person | None]":
    from floodmark.sources.telegram import login  # noqa: PLC0415 - heavy

    session = _session_of(given)
    is_loopback = login.is_loopback(login.server_of(session))
    app = _application(desk, request, known, is_loopback=is_loopback)

    async def work(opened: "Session") -> "tuple[Added, Person | None]":
        person = await _checked(opened, request, session, app) if request.is_checked else None
        return await _put(opened, request, session, app, person), person

    with desk.busy("asking Telegram who it is" if request.is_checked else "storing"):
        done = desk.work(work)
    if given == session and not is_loopback:
        _aside(desk, "[dim]A session that was typed stays in the history of the shell: next time say --session -[/]")
    return done


def _session_of(given: str) -> str:
    from floodmark.sources.telegram.login import session_of_file, session_of_text  # noqa: PLC0415 - heavy

    if given == "-":
        return session_of_text(_asked("Session") if sys.stdin.isatty() else sys.stdin.read(100_000))
    # The text of a session is longer than a name of a file can be.
    looks_like_a_file = len(given) < 256 and (given.endswith(".session") or os.sep in given or Path(given).exists())
    return session_of_file(Path(given).expanduser()) if looks_like_a_file else session_of_text(given)


async def _checked(opened: "Session", request: _Request, session: str, app: "Application") -> "Person":
    """Who it is. Asked under the account's lease, if some process could have this very session open."""
    from floodmark.sources.telegram import login  # noqa: PLC0415 - heavy
    from floodmark.store.accounts import same_session  # noqa: PLC0415 - heavy

    store, timeout = _store(opened), opened.parts.settings.telegram_call_timeout
    twin = await store.with_session(session)
    if twin is None:
        return await login.check(session, app, account=request.name, timeout=timeout)
    if twin != request.name:
        # The store would refuse it, too, but connecting with it could end it.
        raise same_session(twin)
    async with store.held(twin, holder=opened.parts.name, ttl=timeout + _SPARE):
        return await login.check(session, app, account=request.name, timeout=timeout)


async def _put(
    opened: "Session", request: _Request, session: str, app: "Application", person: "Person | None"
) -> "Added":
    added = await _store(opened).add(
        request.name,
        api_id=app.api_id,
        api_hash=app.api_hash,
        session=session,
        phone=request.phone,
        identity=person.id if person is not None else None,
        tenant_id=request.tenant,
        user_id=request.user,
        replace=request.replace,
    )
    await opened.wake(Topic.JOBS)
    return added


# By phone


def _log_in(
    desk: Desk, request: _Request, known: "Account | None", server_text: str | None
) -> "tuple[Added, Person | None]":
    from floodmark.sources.telegram import login  # noqa: PLC0415 - heavy

    server = None if server_text is None else login.server_from(server_text)
    request.phone = _phone(request)
    app = _application(desk, request, known, is_loopback=server is not None)
    signed_in = _signed_in(desk, request, app, server)

    async def work(opened: "Session") -> "Added":
        return await _put(opened, request, signed_in.session, app, signed_in.person)

    return desk.work(work), signed_in.person


def _phone(request: _Request) -> str:
    from floodmark.sources.telegram.login import phone_of  # noqa: PLC0415 - heavy

    if request.phone is None and not sys.stdin.isatty():
        raise InvalidInput(
            f"how to log in as {request.name} is not said",
            hint=f"floodmark accounts add {request.name} --phone +4915112345678, or --session FILE",
        )
    return phone_of(request.phone or str(typer.prompt("Phone number, as in +4915112345678", err=True)))


def _signed_in(desk: Desk, request: _Request, app: "Application", server: "Server | None") -> "SignedIn":
    from floodmark.sources.telegram import login  # noqa: PLC0415 - heavy

    if server is not None:
        from floodmark.testing.telegram import trust_loopback  # noqa: PLC0415 - heavy

        trust_loopback()
    timeout = desk.settings().telegram_call_timeout
    with desk.busy("asking Telegram for a code"):
        pending = asyncio.run(login.send_code(app, str(request.phone), timeout=timeout, server=server))
    _aside(desk, f"Telegram sent a code [bold]{plain(pending.how)}[/].")

    def enter_code(code: str) -> "SignedIn | None":
        return asyncio.run(login.enter_code(app, pending, code, timeout=timeout))

    def enter_password(password: str) -> "SignedIn | None":
        return asyncio.run(login.enter_password(app, pending, password, timeout=timeout))

    done = _until_right(desk, "Code", enter_code, request.code)
    if done is None:
        _aside(desk, "The account has a password (two-step verification).")
        done = _until_right(desk, "Password", enter_password)
    assert done is not None
    return done


def _until_right(desk: Desk, what: str, enter: Any, first: str | None = None) -> "SignedIn | None":
    """Ask until it is right; without a person at the keyboard only once."""
    from floodmark.sources.telegram.login import WrongSecret  # noqa: PLC0415 - heavy

    tries = _CODES_ASKED if sys.stdin.isatty() else 1
    for left in range(tries - 1, -1, -1):
        try:
            done: SignedIn | None = enter(first or _asked(what))
        except WrongSecret as wrong:
            if not left:
                raise
            first = None
            _aside(desk, f"[yellow]{plain(wrong)}[/]; {plain(wrong.hint)}.")
        else:
            return done
    raise AssertionError("unreachable")


def _aside(desk: Desk, text: str) -> None:
    """Part of the talk at the keyboard, which must not get among what is printed for programs."""
    if not desk.is_quiet:
        console(stderr=True).print(text, highlight=False)


def _asked(what: str) -> str:
    """Something secret from the keyboard, unseen, or a line of the standard input."""
    if sys.stdin.isatty():
        return str(typer.prompt(f"{what} (not shown)", hide_input=True, err=True)).strip()
    line = sys.stdin.readline().strip()
    if not line:
        raise InvalidInput(
            f"the {what.lower()} is needed, and nobody is at the keyboard",
            hint="run it in a terminal, or send it a line of standard input",
        )
    return line


def _tell_added(desk: Desk, added: "Added", person: "Person | None") -> None:
    name = plain(added.account.name)
    who = f": {plain(_who(person))}" if person is not None else ", unchecked"
    desk.out.print(f"[green]{'Replaced' if added.replaced else 'Added'}[/] [bold]{name}[/]{who}", highlight=False)
    _tell_resumed(desk, added)
    settings = desk.settings()
    if settings.floodmark_secret_key is None and not added.replaced:
        key = settings.floodmark_home / "secret.key"
        desk.note(f"[dim]Its session is encrypted with the key in {plain(key)}: without that file it is lost.[/]")
    if not added.resumed:
        desk.note(f"[dim]Read a channel with it: floodmark add telegram @NAME --every 5m --account {name}[/]")


def _tell_resumed(desk: Desk, added: "Added") -> None:
    if added.resumed:
        names = ", ".join(added.resumed[:10]) + (", ..." if len(added.resumed) > 10 else "")
        desk.out.print(f"Resumed {counted(len(added.resumed), 'job')}: {plain(names)}", highlight=False)


def _who(person: "Person") -> str:
    handle = f"@{person.username}" if person.username else f"id {person.id}"
    return f"{person.name} ({handle})" if person.name else handle


# Looking


@accounts.command()
def ls(
    context: typer.Context,
    *,
    after: Annotated[str | None, typer.Option(metavar="NAME", help="The page behind this account.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=500, help="How many.")] = 100,
    as_json: AsJson = False,
) -> None:
    """List the accounts: whose they are, whether they can be used, and who has their session open."""
    desk = Desk.of(context)

    async def work(session: "Session") -> "list[AccountRow]":
        return await _store(session).page(after, limit)

    found, now = desk.work(work), datetime.now(UTC)
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
    activate: Annotated[bool, typer.Option("--activate", help="Use it again, if it is parked and works.")] = False,
    as_json: AsJson = False,
) -> None:
    """Connect with an account and ask Telegram who it is. Refused while a worker has its session open."""
    desk = Desk.of(context)

    async def work(session: "Session") -> "tuple[AccountRow, Person, Added | None]":
        person = await _tried(session, name)
        store = _store(session)
        row = await store.show(name)
        if not activate or row.state == "active":
            return row, person, None
        added = await store.activate(name)
        await session.wake(Topic.JOBS)
        return added.account, person, added

    with desk.busy("asking Telegram who it is"):
        row, person, added = desk.work(work)
    if as_json:
        resumed = added.resumed if added is not None else ()
        return print_json({"account": row, "works": True, "person": person, "resumed": resumed})
    desk.out.print(f"[green]Works[/]: [bold]{plain(name)}[/] is {plain(_who(person))}", highlight=False)
    if added is not None:
        desk.out.print("It is active again.", highlight=False)
        _tell_resumed(desk, added)
    elif row.state == "parked":
        desk.out.print(f"[yellow]But it is parked[/]: {plain(row.reason or 'no reason given')}", highlight=False)
        desk.note(f"[dim]Use it again: floodmark accounts test {plain(name)} --activate[/]")
    return None


async def _tried(session: "Session", name: str) -> "Person":
    from floodmark.sources.telegram.login import Application, check  # noqa: PLC0415 - heavy

    store, timeout = _store(session), session.parts.settings.telegram_call_timeout
    await store.show(name)
    async with store.held(name, holder=session.parts.name, ttl=timeout + _SPARE):
        # Read while it is ours: it may have been replaced a moment ago.
        account = await store.get(name)
        app = Application(account.api_id, account.api_hash)
        return await check(account.session, app, account=name, timeout=timeout)


# Removing


@accounts.command()
def rm(
    context: typer.Context,
    name: AccountName,
    force: Annotated[bool, typer.Option("--force", help="Also while a process has its session open.")] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Forget an account and its session. Jobs that ask for it stay, and wait for another of this name."""
    desk = Desk.of(context)

    async def look(session: "Session") -> "tuple[AccountRow, list[str]]":
        store = _store(session)
        return await store.show(name), await store.jobs_of(name)

    async def work(session: "Session") -> list[str]:
        return await _store(session).remove(name, force=force)

    row, asking = desk.work(look)
    if not go_ahead(desk, f"forget the account {_described(row, asking)}", dry_run=dry_run, yes=yes):
        return
    desk.work(work)
    desk.out.print(f"Forgot {plain(name)}.", highlight=False)
    desk.note("[dim]Telegram still knows its session: end it in the app, under Settings, Devices.[/]")


def _described(row: "AccountRow", asking: list[str]) -> str:
    phone = f" ({row.phone})" if row.phone else ""
    open_in = f", whose session is open in {row.holder}" if row.holder else ""
    verb = "asks" if len(asking) == 1 else "ask"
    names = ", ".join(asking[:10]) + (", ..." if len(asking) > 10 else "")
    jobs = f", which {counted(len(asking), 'job')} {verb} for ({names})" if asking else ""
    return f"{row.name}{phone}{open_in}{jobs}"
