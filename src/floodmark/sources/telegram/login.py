"""Logging in to Telegram, and reading sessions that were made elsewhere. Imports Telethon, which takes a while.

By phone in steps: `send_code`, `enter_code`, and `enter_password` where there is one. Nothing stays connected while a
person looks for the code: each step connects, asks, and leaves; what the next one needs is in the value it returns.
"""

import asyncio
import ipaddress
import logging
import re
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from telethon import TelegramClient, errors
from telethon.crypto import AuthKey
from telethon.sessions import StringSession
from telethon.tl import functions, types

from floodmark.errors import AccountLost, FloodmarkError, InvalidInput, Permanent, SlowDown, Transient, Unavailable
from floodmark.model.accounts import Person

from .faults import translate

REGISTER = "https://my.telegram.org"

# Where a session for a test server says it belongs; a loopback server answers for every data centre.
_TEST_DC = 2
_CONNECT_SECONDS = 10
_GOODBYE_SECONDS = 5
_KEY_BYTES = 256
_SQLITE_MAGIC = b"SQLite format 3\0"
_LOG_IN = "log in with: floodmark accounts add NAME --phone +49..."
_PHONE = re.compile(r"\+?[0-9]{7,15}", re.ASCII)

# Telethon warns of every failed attempt; what came of them is said in our own words.
_QUIET = logging.getLogger("telethon.login")
_QUIET.addHandler(logging.NullHandler())

_HOW = {
    types.auth.SentCodeTypeApp: "in the Telegram app",
    types.auth.SentCodeTypeSms: "by SMS",
    types.auth.SentCodeTypeCall: "by a phone call",
    types.auth.SentCodeTypeFlashCall: "by a phone call",
    types.auth.SentCodeTypeMissedCall: "by a missed call: the last digits of its number",
    types.auth.SentCodeTypeEmailCode: "by e-mail",
    types.auth.SentCodeTypeFragmentSms: "at fragment.com",
}


class WrongSecret(InvalidInput):
    """The code or the password is not the right one; it may be asked for again."""


class Server(NamedTuple):
    """Where to connect to, when it is not Telegram itself."""

    host: str
    port: int


class Application:
    """The program that logs in, as registered with Telegram. Its hash is not shown."""

    __slots__ = ("api_hash", "api_id")

    def __init__(self, api_id: int, api_hash: str) -> None:
        self.api_id, self.api_hash = api_id, api_hash

    def __repr__(self) -> str:
        return f"Application({self.api_id})"


class PendingLogin:
    """A login that waits for its code or its password."""

    __slots__ = ("_code_hash", "_phone", "_session", "how")

    def __init__(self, session: str, phone: str, code_hash: str, how: str) -> None:
        self._session, self._phone, self._code_hash, self.how = session, phone, code_hash, how

    def __repr__(self) -> str:
        return "Pending(***)"


class SignedIn:
    """A login that went well. `session` is as good as the account itself."""

    __slots__ = ("person", "session")

    def __init__(self, session: str, person: Person) -> None:
        self.session, self.person = session, person

    def __repr__(self) -> str:
        return f"SignedIn(***, {self.person!r})"


# By phone


async def send_code(app: Application, phone: str, *, timeout: timedelta, server: Server | None = None) -> PendingLogin:
    """Ask Telegram to send a code to this number."""
    session = StringSession()
    if server is not None:
        session.set_dc(_TEST_DC, *server)
    async with _connected(session, app, timeout) as client:
        sent = await client.send_code_request(phone)
        how = _HOW.get(type(sent.type), "by Telegram")
        return PendingLogin(client.session.save(), phone, sent.phone_code_hash, how)


async def enter_code(app: Application, pending: PendingLogin, code: str, *, timeout: timedelta) -> SignedIn | None:
    """Log in with the code. None: there is a password, too. `WrongSecret` if the code is not the right one."""
    async with _connected(StringSession(pending._session), app, timeout) as client:
        try:
            await client.sign_in(pending._phone, code=code, phone_code_hash=pending._code_hash)
        except errors.SessionPasswordNeededError:
            return None
        return SignedIn(client.session.save(), await _asked_who(client))


async def enter_password(app: Application, pending: PendingLogin, password: str, *, timeout: timedelta) -> SignedIn:
    """The second step, where there is one. `WrongSecret` if the password is not the right one."""
    async with _connected(StringSession(pending._session), app, timeout) as client:
        await client.sign_in(password=password)
        return SignedIn(client.session.save(), await _asked_who(client))


def phone_of(text: str) -> str:
    """A phone number as Telegram takes it."""
    phone = re.sub(r"[\s().-]", "", text)
    if not _PHONE.fullmatch(phone):
        raise InvalidInput(
            "that is not a phone number", hint="write it with the code of its country, for example +4915112345678"
        )
    return phone if phone.startswith("+") else f"+{phone}"


# With a session


async def check(session: str, app: Application, *, account: str, timeout: timedelta) -> Person:
    """Connect, ask who we are, and leave. The caller must see to it that nobody else has this session open.

    `AccountLost` if Telegram has ended the session; `Unavailable` or `SlowDown` if it could not be found out.
    """
    async with _connected(StringSession(session), app, timeout, account=account) as client:
        return await _asked_who(client)


async def _asked_who(client: TelegramClient) -> Person:
    # Not `get_me`, which says nothing of why it may not.
    [me] = await client(functions.users.GetUsersRequest([types.InputUserSelf()]))
    return person_of(me)


def person_of(me: types.User) -> Person:
    """Who it is. Bots are refused."""
    if me.bot:
        raise InvalidInput(
            "this is a bot: bots may not read the history of channels",
            hint="log in as a person: floodmark accounts add NAME --phone +49...",
        )
    name = " ".join(filter(None, (me.first_name, me.last_name)))
    return Person(id=me.id, name=name, username=me.username)


def session_of_text(text: str) -> str:
    """A string session, checked as far as that goes without connecting."""
    text = "".join(text.split())
    try:
        session = StringSession(text)
    except Exception:  # noqa: BLE001 - whatever it stumbled over, its message may hold a part of the session
        session = None
    if session is None or not text:
        raise InvalidInput(
            f"that is not a string session of Telethon: it has {len(text)} characters",
            hint="one begins with 1 and has 353 characters; or give the path of a .session file",
        )
    if not session.auth_key:
        raise InvalidInput("this session has no key in it: nobody ever logged in with it", hint=_LOG_IN)
    return text


def session_of_file(path: Path) -> str:
    """The session in a `.session` file of Telethon, as text. The file is only read, and may be in use."""
    try:
        with path.open("rb") as file:
            start = file.read(len(_SQLITE_MAGIC))
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}", hint="check the path") from error
    if not start:
        raise InvalidInput(f"{path} is empty", hint=_LOG_IN)
    if start != _SQLITE_MAGIC:
        raise InvalidInput(f"{path} is not a session file", hint="give a .session file made by Telethon")
    return _packed(path, _row_of(path))


def _row_of(path: Path) -> tuple[Any, ...] | None:
    # Immutable: no lock is taken, no journal is written, whoever uses the file does not notice.
    address = f"{path.resolve().as_uri()}?mode=ro&immutable=1"
    try:
        with closing(sqlite3.connect(address, uri=True)) as connection:
            row: tuple[Any, ...] | None = connection.execute(
                "SELECT dc_id, server_address, port, auth_key FROM sessions LIMIT 1"
            ).fetchone()
            return row
    except sqlite3.Error as error:
        raise InvalidInput(
            f"{path} is not a session file of Telethon ({error})",
            hint="other libraries have their own kind; give a .session file or a string session made by Telethon",
        ) from error


def _packed(path: Path, row: tuple[Any, ...] | None) -> str:
    dc_id, address, port, key = row or (None, None, None, None)
    if not key:
        raise InvalidInput(f"{path} has no key in it: nobody ever logged in with it", hint=_LOG_IN)
    if not isinstance(key, bytes) or len(key) != _KEY_BYTES:
        raise InvalidInput(f"the key in {path} is damaged", hint=_LOG_IN)
    session = StringSession()
    try:
        # In this order: `set_dc` forgets the key.
        session.set_dc(int(dc_id), str(ipaddress.ip_address(address)), int(port))
        session.auth_key = AuthKey(key)
        return str(session.save())
    except Exception as error:
        # Whatever it stumbled over: the numbers in a file may be any.
        raise InvalidInput(f"{path} does not say which server it belongs to", hint=_LOG_IN) from error


# Where


def server_of(session: str) -> Server:
    """Where a session leads."""
    found = StringSession(session)
    return Server(found.server_address, found.port)


def is_loopback(server: Server) -> bool:
    """Whether it is on this machine: a test server, whose keys are known to everybody."""
    return ipaddress.ip_address(server.host).is_loopback


def server_from(text: str) -> Server:
    """A test server, as in 127.0.0.1:4443. Only this machine: to any other the code and the password would be given."""
    host, _, port = text.rpartition(":")
    host = "127.0.0.1" if host == "localhost" else host.strip("[]")
    try:
        server = Server(ipaddress.ip_address(host).compressed, int(port))
    except ValueError:
        raise InvalidInput(f"{text[:60]!r} is not HOST:PORT", hint="for example --server 127.0.0.1:4443") from None
    if not is_loopback(server) or not 0 < server.port < 65536:
        raise InvalidInput(
            f"--server is for test servers on this machine, not for {text[:60]}",
            hint="leave it out to log in to Telegram",
        )
    return server


# Connecting


def client_for(session: StringSession, app: Application) -> TelegramClient:
    """A client that does nothing by itself: no sleeping through flood waits, no reconnecting, no updates."""
    return TelegramClient(
        session,
        app.api_id,
        app.api_hash,
        # Otherwise Telethon would go to the address it knows for IPv4, with a key that is of no use there.
        use_ipv6=":" in (session.server_address or ""),
        timeout=_CONNECT_SECONDS,
        # One more attempt: the first may be told to go to another data centre.
        request_retries=1,
        connection_retries=1,
        retry_delay=1,
        auto_reconnect=False,
        receive_updates=False,
        flood_sleep_threshold=0,
        raise_last_call_error=True,
        base_logger=_QUIET,
    )


@asynccontextmanager
async def _connected(
    session: StringSession, app: Application, timeout: timedelta, *, account: str | None = None
) -> AsyncIterator[TelegramClient]:
    """A connection for one step, which has `timeout` for all it does; errors are in our words."""
    client = client_for(session, app)
    with _in_our_words(session, timeout, account):
        try:
            async with asyncio.timeout(timeout.total_seconds()):
                await client.connect()
                yield client
        finally:
            await _leave(client)


async def _leave(client: TelegramClient) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(_GOODBYE_SECONDS):
            await client.disconnect()
    # The error that ended the connection is also in here, and would be logged as one that nobody looked at.
    ended = client.disconnected
    if ended.done() and not ended.cancelled():
        ended.exception()


@contextmanager
def _in_our_words(session: StringSession, timeout: timedelta, account: str | None) -> Iterator[None]:
    try:
        yield
    except FloodmarkError:
        raise
    except TimeoutError as error:
        raise _silent(session, f"did not answer within {timeout.total_seconds():g} s") from error
    except Exception as error:
        raise _told(error, session, account) from error


def _told(error: Exception, session: StringSession, account: str | None) -> Exception:
    """What an error means for someone who logs in or tests an account."""
    for refusal in _REFUSALS:
        if isinstance(error, refusal.errors):
            return refusal.kind(refusal.message, hint=refusal.hint)
    if isinstance(error, errors.FloodError) and getattr(error, "seconds", None) is not None:
        return _slow_down(int(error.seconds))
    ours = translate(error, account=account or "", method="login", target="", now=datetime.now(UTC))
    if isinstance(ours, AccountLost):
        return ours if account else InvalidInput(ours.reason, hint="use another account")
    if isinstance(ours, Transient):
        return _silent(session, f"cannot be reached ({type(error).__name__})")
    return Permanent(f"Telegram refused: {type(error).__name__.removesuffix('Error')}", hint="try another account")


def _silent(session: StringSession, what: str) -> Unavailable:
    where = f" at {session.server_address}:{session.port}" if session.server_address else ""
    return Unavailable(f"Telegram{where} {what}", hint="check the connection of this machine, then try again")


def _slow_down(seconds: int) -> SlowDown:
    told = SlowDown(timedelta(seconds=max(1, seconds)), None, "Telegram asks for patience")
    told.hint = "the same command when that time is over; trying before makes it longer"
    return told


class _Refusal(NamedTuple):
    errors: tuple[type[Exception], ...]
    kind: type[FloodmarkError]
    message: str
    hint: str


_REFUSALS = (
    _Refusal(
        (errors.ApiIdInvalidError, errors.ApiIdPublishedFloodError),
        InvalidInput,
        "Telegram does not know this api id with this hash",
        f"copy both from {REGISTER} (API development tools)",
    ),
    _Refusal(
        (errors.PhoneNumberInvalidError,),
        InvalidInput,
        "Telegram says that there is no such phone number",
        "write it with the code of its country, for example +4915112345678",
    ),
    _Refusal(
        (errors.PhoneNumberUnoccupiedError,),
        InvalidInput,
        "no Telegram account has this phone number",
        "sign up in the Telegram app first",
    ),
    _Refusal(
        (errors.PhoneNumberBannedError,),
        InvalidInput,
        "Telegram has banned this phone number",
        "use another account",
    ),
    _Refusal(
        (errors.PhoneCodeInvalidError, errors.PhoneCodeEmptyError),
        WrongSecret,
        "that is not the code",
        "look again: the newest one counts; the same command sends another",
    ),
    _Refusal(
        (errors.PhoneCodeExpiredError, errors.PhoneCodeHashEmptyError),
        InvalidInput,
        "the code has expired",
        "the same command sends a new one",
    ),
    _Refusal(
        (errors.PasswordHashInvalidError,),
        WrongSecret,
        "that is not the password",
        "it is the one of the two-step verification, in the app under Settings, Privacy and Security",
    ),
    _Refusal(
        (errors.PhonePasswordFloodError, errors.PhoneNumberFloodError),
        Unavailable,
        "Telegram saw too many logins with this phone number",
        "try again tomorrow",
    ),
)
