"""How an account gets its session: by phone, code and password, or brought from elsewhere.

Secrets are asked for at the keyboard, unseen, or read from the standard input. What would be refused in the end is
refused before Telegram is asked for anything.
"""

import asyncio
import os
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import typer

from floodmark.errors import FloodmarkError, InvalidInput, NotFound
from floodmark.signals.port import Topic

from .root import Desk
from .showing import console, plain

if TYPE_CHECKING:
    from floodmark.office.local import LocalOffice
    from floodmark.sources.telegram.login import Application, Person, Server, SignedIn
    from floodmark.store.accounts import Account, AccountRow, Accounts, Added

SESSION_VARIABLE = "TELEGRAM_SESSION"
# How much longer than its deadline a check may hold the session: for its goodbye.
SPARE = timedelta(seconds=15)

_TRIES = 3
# A server on this machine does not look at them.
_LOOPBACK_APPLICATION = (1, "loopback")


class Request(msgspec.Struct, kw_only=True):
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


async def known_as(office: "LocalOffice", request: Request) -> "Account | None":
    """What is stored under this name, if it can be read; what the request does not say stays as it is there.

    Refuses now what would be refused in the end.
    """
    from floodmark.store.accounts import check_name, taken  # noqa: PLC0415 - heavy
    from floodmark.vault import Vault  # noqa: PLC0415 - heavy

    check_name(request.name)
    store = store_of(office)
    # A login that cannot be stored would be lost, and Telegram counts them.
    Vault.of(office.parts.settings).seal("", label=request.name)
    try:
        row = await store.show(request.name)
    except NotFound:
        return None
    if not request.replace:
        raise taken(request.name)
    request.tenant, request.user = request.tenant or row.tenant_id, request.user or row.user_id
    try:
        known = await store.get(request.name)
    except FloodmarkError:
        # Stored with a key that is lost: storing it anew is the way out.
        return None
    request.phone = request.phone or known.secrets.phone
    return known


def store_of(office: "LocalOffice") -> "Accounts":
    """The accounts of this installation."""
    from floodmark.store.accounts import Accounts  # noqa: PLC0415 - heavy
    from floodmark.vault import Vault  # noqa: PLC0415 - heavy

    parts = office.parts
    return Accounts(parts.database, parts.clock, Vault.of(parts.settings), parts.events)


def account_told(row: "AccountRow") -> dict[str, object]:
    """What the audit may say of an account."""
    return {name: getattr(row, name) for name in ("name", "phone", "tenant_id", "user_id", "state")}


def _application(desk: Desk, request: Request, known: "Account | None", *, is_loopback: bool) -> "Application":
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


def bring(desk: Desk, request: Request, known: "Account | None", given: str) -> "tuple[Added, Person | None]":
    """Store a session that was made elsewhere; who it is, unless that was not to be asked."""
    from floodmark.sources.telegram import login  # noqa: PLC0415 - heavy

    session = _session_of(given)
    is_loopback = login.is_loopback(login.server_of(session))
    app = _application(desk, request, known, is_loopback=is_loopback)

    async def work(opened: "LocalOffice") -> "tuple[Added, Person | None]":
        person = await _checked(opened, request, session, app) if request.is_checked else None
        return await _put(opened, request, session, app, person), person

    with desk.busy("asking Telegram who it is" if request.is_checked else "storing"):
        done = desk.work_here("accounts add", work)
    if given == session and given != os.environ.get(SESSION_VARIABLE) and not is_loopback:
        _aside(desk, "[dim]A session that was typed stays in the history of the shell: next time say --session -[/]")
    return done


def _session_of(given: str) -> str:
    from floodmark.sources.telegram.login import session_of_file, session_of_text  # noqa: PLC0415 - heavy

    if given == "-":
        return session_of_text(_asked("Session") if sys.stdin.isatty() else sys.stdin.read(100_000))
    # The text of a session is longer than a name of a file can be.
    looks_like_a_file = len(given) < 256 and (given.endswith(".session") or os.sep in given or Path(given).exists())
    return session_of_file(Path(given).expanduser()) if looks_like_a_file else session_of_text(given)


async def _checked(opened: "LocalOffice", request: Request, session: str, app: "Application") -> "Person":
    """Who it is. Asked under the account's lease, if some process could have this very session open."""
    from floodmark.sources.telegram import login  # noqa: PLC0415 - heavy
    from floodmark.store.accounts import same_session  # noqa: PLC0415 - heavy

    store, timeout = store_of(opened), opened.parts.settings.telegram_call_timeout
    twin = await store.with_session(session)
    if twin is None:
        return await login.check(session, app, account=request.name, timeout=timeout)
    if twin != request.name:
        # The store would refuse it, too, but connecting with it could end it.
        raise same_session(twin)
    async with store.held(twin, holder=opened.parts.name, ttl=timeout + SPARE):
        return await login.check(session, app, account=request.name, timeout=timeout)


async def _put(
    opened: "LocalOffice", request: Request, session: str, app: "Application", person: "Person | None"
) -> "Added":
    async with opened.changing():
        added = await store_of(opened).add(
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
        action = "account.replaced" if added.replaced else "account.added"
        await opened.note(action, f"account:{request.name}", after=account_told(added.account))
    await opened.parts.signals.notify(Topic.JOBS)
    return added


# By phone


def log_in(
    desk: Desk, request: Request, known: "Account | None", server_text: str | None
) -> "tuple[Added, Person | None]":
    """Log in by phone, and store the session that was made by it."""
    from floodmark.sources.telegram import login  # noqa: PLC0415 - heavy

    server = None if server_text is None else login.server_from(server_text)
    request.phone = _phone(request)
    app = _application(desk, request, known, is_loopback=server is not None)
    signed_in = _signed_in(desk, request, app, server)

    async def work(opened: "LocalOffice") -> "Added":
        return await _put(opened, request, signed_in.session, app, signed_in.person)

    return desk.work_here("accounts add", work), signed_in.person


def _phone(request: Request) -> str:
    from floodmark.sources.telegram.login import phone_of  # noqa: PLC0415 - heavy

    if request.phone is None and not sys.stdin.isatty():
        raise InvalidInput(
            f"how to log in as {request.name} is not said",
            hint=f"floodmark accounts add {request.name} --phone +4915112345678, or --session FILE",
        )
    return phone_of(request.phone or str(typer.prompt("Phone number, as in +4915112345678", err=True)))


def _signed_in(desk: Desk, request: Request, app: "Application", server: "Server | None") -> "SignedIn":
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
