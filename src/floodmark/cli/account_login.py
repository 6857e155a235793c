"""Get the session of an account: log in with phone, code and password, or use an existing session.

Secrets are prompted for without echo, or read from standard input. Everything that can be refused is refused before
Telegram is called.
"""

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path

import typer

from floodmark.errors import InvalidInput
from floodmark.model.accounts import Added, Person
from floodmark.operations.handlers.accounts import KnownAccount, application_of, choose_proxy, expect_account
from floodmark.security.vault import Vault
from floodmark.sources.telegram import login
from floodmark.sources.telegram.accounts import Accounts
from floodmark.sources.telegram.proxies import resolve_proxy
from floodmark.sources.telegram.session_formats import ImportedSession, read_session_file, read_session_text

from .login_options import SESSION_VARIABLE, LoginOptions
from .output import console, plain
from .root import CliContext
from .session import open_here

_TRIES = 3


def add_account(cli: CliContext, options: LoginOptions) -> tuple[Added, Person | None]:
    """Store an account; the person is None if the session was not tested.

    Options that are not given come from the stored account of this name and from the settings.
    """
    is_by_phone = options.phone is not None
    known, settings = _find_known(cli, options), cli.local_settings()
    stored = settings.telegram_api_hash
    options.api_id = options.api_id or settings.telegram_api_id
    options.api_hash = options.api_hash or (stored.get_secret_value() if stored is not None else None)
    options.phone = options.phone or (known.secrets.secrets.phone if known.secrets is not None else None)
    session = options.session
    if session is None and not is_by_phone:
        session = os.environ.get(SESSION_VARIABLE)
    if not session and not is_by_phone and options.replace and options.proxy is not None and known.row is not None:
        return _change_proxy(cli, options)
    return _store_session(cli, options, session) if session else _log_in(cli, options, known)


def _change_proxy(cli: CliContext, options: LoginOptions) -> tuple[Added, Person | None]:
    """Store the same session with another proxy."""
    new = options.new_account(is_checked=not options.no_check)
    with cli.busy("storing" if options.no_check else "testing the proxy with Telegram"):
        return cli.work(lambda operations: operations.add_account(new))


def _find_known(cli: CliContext, options: LoginOptions) -> KnownAccount:
    """Return the stored account of this name. Its secrets are read from the database only, never from a server."""
    if cli.url() is not None:
        return KnownAccount(
            row=cli.work(lambda operations: operations.expect_account(options.name, replace=options.replace))
        )

    async def look() -> KnownAccount:
        async with open_here(cli.overrides) as local:
            vault = Vault.of(local.resources.settings)
            accounts = Accounts(local.resources.database, local.resources.clock, vault)
            return await expect_account(accounts, vault, options.name, replace=options.replace)

    return asyncio.run(look())


def _store_session(cli: CliContext, options: LoginOptions, given: str) -> tuple[Added, Person | None]:
    found = _read_session(cli, given)
    session = found.session
    if options.api_hash is not None and options.api_id is None:
        options.api_id = found.api_id
    new = options.new_account(session, is_checked=not options.no_check)
    with cli.busy("storing" if options.no_check else "testing the session with Telegram"):
        done = cli.work(lambda operations: operations.add_account(new))
    is_loopback = login.is_loopback(login.server_of(session))
    if given == session and given != os.environ.get(SESSION_VARIABLE) and not is_loopback:
        _print_aside(cli, "[dim]The session is now in the history of your shell: next time use --session -[/]")
    return done


def _read_session(cli: CliContext, given: str) -> ImportedSession:
    address = cli.local_settings().telegram_test_server
    server = None if address is None else login.parse_server(address)
    if given == "-":
        text = _read_secret("Session") if sys.stdin.isatty() else sys.stdin.read(100_000)
        return read_session_text(text, server)
    return read_session_file(Path(given).expanduser(), server) if is_file(given) else read_session_text(given, server)


def is_file(given: str) -> bool:
    """Return whether a session is given as the path of a file: the text of one is longer than a name can be."""
    return len(given) < 256 and (given.endswith(".session") or os.sep in given or Path(given).exists())


def _log_in(cli: CliContext, options: LoginOptions, known: KnownAccount) -> tuple[Added, Person | None]:
    server = None if options.server is None else login.parse_server(options.server)
    options.phone = _read_phone(options)
    app = application_of(options.new_account(), cli.local_settings(), known, is_loopback=server is not None)
    app.proxy = asyncio.run(resolve_proxy(choose_proxy(options.proxy, known), cli.local_settings()))
    signed_in = _sign_in(cli, options, app, server)
    options.api_id, options.api_hash = app.api_id, app.api_hash
    new = options.new_account(signed_in.session, signed_in.person.id)
    added, _ = cli.work(lambda operations: operations.add_account(new))
    return added, signed_in.person


def _read_phone(options: LoginOptions) -> str:
    if options.phone is None and not sys.stdin.isatty():
        raise InvalidInput(
            f"no phone number and no session is given for {options.name}",
            hint=f"floodmark accounts add {options.name} --phone +4915112345678, or --session FILE",
        )
    return login.parse_phone(options.phone or str(typer.prompt("Phone number, as in +4915112345678", err=True)))


def _sign_in(
    cli: CliContext, options: LoginOptions, app: login.Application, server: login.Server | None
) -> login.SignedIn:
    if server is not None:
        from floodmark.testing.telegram import trust_loopback  # noqa: PLC0415 - for a test server only

        trust_loopback()
    timeout = cli.local_settings().telegram_call_timeout
    with cli.busy("requesting a code from Telegram"):
        pending = asyncio.run(login.send_code(app, str(options.phone), timeout=timeout, server=server))
    _print_aside(cli, f"Telegram sent a code [bold]{plain(pending.how)}[/].")

    def enter_code(code: str) -> login.SignedIn | None:
        return asyncio.run(login.enter_code(app, pending, code, timeout=timeout))

    def enter_password(password: str) -> login.SignedIn | None:
        return asyncio.run(login.enter_password(app, pending, password, timeout=timeout))

    done = _repeat_until_right(cli, "Code", enter_code, options.code)
    if done is None:
        _print_aside(cli, "The account has a password (two-step verification).")
        done = _repeat_until_right(cli, "Password", enter_password)
    assert done is not None
    return done


def _repeat_until_right(
    cli: CliContext, what: str, enter: Callable[[str], login.SignedIn | None], first: str | None = None
) -> login.SignedIn | None:
    """Prompt again after a wrong secret, up to three times; without a terminal only once."""
    tries = _TRIES if sys.stdin.isatty() else 1
    for left in range(tries - 1, -1, -1):
        try:
            return enter(first or _read_secret(what))
        except login.WrongSecret as wrong:
            if not left:
                raise
            first = None
            _print_aside(cli, f"[yellow]{plain(wrong)}[/]; {plain(wrong.hint)}.")
    raise AssertionError("unreachable")


def _print_aside(cli: CliContext, text: str) -> None:
    """Print to stderr: stdout may be JSON for a program."""
    if not cli.is_quiet:
        console(stderr=True).print(text)


def _read_secret(what: str) -> str:
    """Prompt for a secret without echo, or read a line of standard input."""
    if sys.stdin.isatty():
        return str(typer.prompt(f"{what} (not shown)", hide_input=True, err=True)).strip()
    line = sys.stdin.readline().strip()
    if not line:
        raise InvalidInput(
            f"the {what.lower()} is missing, and there is no terminal to ask on",
            hint="run it in a terminal, or send it as a line of standard input",
        )
    return line
