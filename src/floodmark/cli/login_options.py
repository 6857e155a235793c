"""The options of `accounts add`."""

from dataclasses import dataclass
from typing import Annotated

import typer

from floodmark.operations.accounts import NewAccount

from .root import AsJson

SESSION_VARIABLE = "TELEGRAM_SESSION"


@dataclass(kw_only=True, repr=False)
class LoginOptions:
    """The options of `accounts add`. They contain secrets, so there is no `repr`."""

    name: Annotated[str, typer.Argument(metavar="NAME", help="Name: letters, digits, and any of - _ .")]
    phone: Annotated[str | None, typer.Option(metavar="NUMBER", help="Log in with this phone number.")] = None
    session: Annotated[
        str | None,
        typer.Option(
            metavar="SESSION",
            help="Use a session of Telethon or Pyrogram: a .session file, the text of a session, or - to read it from "
            f"standard input (default: {SESSION_VARIABLE}).",
        ),
    ] = None
    api_id: Annotated[
        int | None, typer.Option(min=1, help="Id of your application at Telegram (default: TELEGRAM_API_ID).")
    ] = None
    api_hash: Annotated[
        str | None, typer.Option(help="Hash of your application at Telegram (default: TELEGRAM_API_HASH).")
    ] = None
    proxy: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Proxy that it uses: socks5://USER:PASSWORD@HOST:PORT, mtproxy://SECRET@HOST:PORT, a link of "
            "Telegram, or none (default: TELEGRAM_PROXY).",
        ),
    ] = None
    tenant: Annotated[str | None, typer.Option(help="Tenant that owns it; posts have it as tenant_id.")] = None
    user: Annotated[str | None, typer.Option(help="User who owns it; posts have it as user_id.")] = None
    replace: Annotated[
        bool,
        typer.Option(
            "--replace", help="Log in again under an existing name; options that are not given stay unchanged."
        ),
    ] = False
    code: Annotated[str | None, typer.Option(help="Login code, if already known.")] = None
    no_check: Annotated[bool, typer.Option("--no-check", help="Store a session without testing it with Telegram.")] = (
        False
    )
    server: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="A test server on this machine.", hidden=True)
    ] = None
    as_json: AsJson = False

    def new_account(self, session: str = "", identity: int | None = None, *, is_checked: bool = False) -> NewAccount:
        """Return the account to store."""
        return NewAccount(
            name=self.name,
            session=session,
            api_id=self.api_id,
            api_hash=self.api_hash,
            phone=self.phone,
            identity=identity,
            proxy=self.proxy,
            tenant_id=self.tenant,
            user_id=self.user,
            replace=self.replace,
            is_checked=is_checked,
        )


@dataclass(kw_only=True, repr=False)
class SessionImportOptions:
    """The options of `accounts import`. They contain secrets, so there is no `repr`."""

    session: Annotated[
        str,
        typer.Argument(
            metavar="FILE|STRING",
            help="A .session file or a string session, of Telethon or Pyrogram; - reads a string from standard input.",
        ),
    ]
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name of the account (default: the name of the file).")
    ] = None
    api_id: Annotated[
        int | None, typer.Option(min=1, help="Id of your application at Telegram (default: TELEGRAM_API_ID).")
    ] = None
    api_hash: Annotated[
        str | None, typer.Option(help="Hash of your application at Telegram (default: TELEGRAM_API_HASH).")
    ] = None
    proxy: Annotated[str | None, typer.Option(metavar="URL", help="Proxy that it uses (default: TELEGRAM_PROXY).")] = (
        None
    )
    tenant: Annotated[str | None, typer.Option(help="Tenant that owns it; posts have it as tenant_id.")] = None
    user: Annotated[str | None, typer.Option(help="User who owns it; posts have it as user_id.")] = None
    replace: Annotated[bool, typer.Option("--replace", help="Replace the session of an existing account.")] = False
    no_check: Annotated[bool, typer.Option("--no-check", help="Store a session without testing it with Telegram.")] = (
        False
    )
    as_json: AsJson = False

    def login_options(self, name: str) -> LoginOptions:
        """Return the same as options of `accounts add`."""
        return LoginOptions(
            name=name,
            session=self.session,
            api_id=self.api_id,
            api_hash=self.api_hash,
            proxy=self.proxy,
            tenant=self.tenant,
            user=self.user,
            replace=self.replace,
            no_check=self.no_check,
            as_json=self.as_json,
        )
