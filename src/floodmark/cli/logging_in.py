"""How an account gets its session: by phone, code and password, or brought from elsewhere.

Secrets are asked for at the keyboard, unseen, or read from the standard input. What would be refused in the end is
refused before Telegram is asked for anything.
"""

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import typer

from floodmark.errors import InvalidInput

from .root import Desk
from .showing import console, plain

if TYPE_CHECKING:
    from floodmark.model.accounts import Added, Person
    from floodmark.operations.accounts import NewAccount
    from floodmark.operations.handlers.accounts import Known
    from floodmark.sources.telegram.login import Application, Server, SignedIn

SESSION_VARIABLE = "TELEGRAM_SESSION"

_TRIES = 3


class LoginRequest(msgspec.Struct, kw_only=True):
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

    def __repr__(self) -> str:
        return f"Request({self.name!r})"

    def new(self, session: str = "", identity: int | None = None, *, is_checked: bool = False) -> "NewAccount":
        """The account that is to be stored."""
        from floodmark.operations.accounts import NewAccount  # noqa: PLC0415 - heavy

        return NewAccount(
            name=self.name,
            session=session,
            api_id=self.api_id,
            api_hash=self.api_hash,
            phone=self.phone,
            identity=identity,
            tenant_id=self.tenant,
            user_id=self.user,
            replace=self.replace,
            is_checked=is_checked,
        )


def fill_in(desk: Desk, request: LoginRequest) -> "Known":
    """What is stored under this name already; what the request does not say is taken from there and from the settings.

    Refuses now what would be refused in the end.
    """
    known = _find_known(desk, request)
    settings = desk.maker().settings
    stored = settings.telegram_api_hash
    request.api_id = request.api_id or settings.telegram_api_id
    request.api_hash = request.api_hash or (stored.get_secret_value() if stored is not None else None)
    request.phone = request.phone or (known.secrets.secrets.phone if known.secrets is not None else None)
    return known


def _find_known(desk: Desk, request: LoginRequest) -> "Known":
    """Return what is stored under the name; beside the database with its secrets, which no server tells."""
    from floodmark.operations.handlers.accounts import Known, expect_account  # noqa: PLC0415 - heavy
    from floodmark.security.vault import Vault  # noqa: PLC0415 - heavy
    from floodmark.sources.telegram.accounts import Accounts  # noqa: PLC0415 - heavy

    from .session import open_here  # noqa: PLC0415 - heavy

    if desk.url() is not None:
        return Known(row=desk.work(lambda operations: operations.expect_account(request.name, replace=request.replace)))

    async def look() -> Known:
        async with open_here(desk.overrides) as local:
            vault = Vault.of(local.resources.settings)
            accounts = Accounts(local.resources.database, local.resources.clock, vault)
            return await expect_account(accounts, vault, request.name, replace=request.replace)

    return asyncio.run(look())


# With a session


def bring(desk: Desk, request: LoginRequest, given: str) -> "tuple[Added, Person | None]":
    """Store a session that was made elsewhere; who it is, unless that was not to be asked."""
    from floodmark.sources.telegram import login  # noqa: PLC0415 - heavy

    session = _session_of(given)
    new = request.new(session, is_checked=request.is_checked)
    with desk.busy("asking Telegram who it is" if request.is_checked else "storing"):
        done = desk.work(lambda operations: operations.add_account(new))
    is_loopback = login.is_loopback(login.server_of(session))
    if given == session and given != os.environ.get(SESSION_VARIABLE) and not is_loopback:
        _aside(desk, "[dim]A session that was typed stays in the history of the shell: next time say --session -[/]")
    return done


def _session_of(given: str) -> str:
    from floodmark.sources.telegram.login import parse_session, read_session_file  # noqa: PLC0415 - heavy

    if given == "-":
        return parse_session(_asked("Session") if sys.stdin.isatty() else sys.stdin.read(100_000))
    # The text of a session is longer than a name of a file can be.
    looks_like_a_file = len(given) < 256 and (given.endswith(".session") or os.sep in given or Path(given).exists())
    return read_session_file(Path(given).expanduser()) if looks_like_a_file else parse_session(given)


# By phone


def log_in(desk: Desk, request: LoginRequest, known: "Known", server_text: str | None) -> "tuple[Added, Person | None]":
    """Log in by phone, on this machine, and store the session that was made by it."""
    from floodmark.operations.handlers.accounts import application_of  # noqa: PLC0415 - heavy
    from floodmark.sources.telegram import login  # noqa: PLC0415 - heavy

    server = None if server_text is None else login.parse_server(server_text)
    request.phone = _phone(request)
    app = application_of(request.new(), desk.maker().settings, known, is_loopback=server is not None)
    signed_in = _signed_in(desk, request, app, server)
    request.api_id, request.api_hash = app.api_id, app.api_hash
    new = request.new(signed_in.session, signed_in.person.id)
    added, _ = desk.work(lambda operations: operations.add_account(new))
    return added, signed_in.person


def _phone(request: LoginRequest) -> str:
    from floodmark.sources.telegram.login import parse_phone  # noqa: PLC0415 - heavy

    if request.phone is None and not sys.stdin.isatty():
        raise InvalidInput(
            f"how to log in as {request.name} is not said",
            hint=f"floodmark accounts add {request.name} --phone +4915112345678, or --session FILE",
        )
    return parse_phone(request.phone or str(typer.prompt("Phone number, as in +4915112345678", err=True)))


def _signed_in(desk: Desk, request: LoginRequest, app: "Application", server: "Server | None") -> "SignedIn":
    from floodmark.sources.telegram import login  # noqa: PLC0415 - heavy

    if server is not None:
        from floodmark.testing.telegram import trust_loopback  # noqa: PLC0415 - heavy

        trust_loopback()
    timeout = desk.maker().settings.telegram_call_timeout
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


def _until_right(
    desk: Desk, what: str, enter: "Callable[[str], SignedIn | None]", first: str | None = None
) -> "SignedIn | None":
    """Ask until it is right; without a person at the keyboard only once."""
    from floodmark.sources.telegram.login import WrongSecret  # noqa: PLC0415 - heavy

    tries = _TRIES if sys.stdin.isatty() else 1
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
