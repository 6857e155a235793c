"""Log in to Telegram, and read sessions that other programs have created. Imports Telethon, which takes a while.

The steps of a login by phone: `send_code`, `enter_code`, and `enter_password` if the account has a password. No
connection stays open while a person looks for the code: each step connects, makes its requests and disconnects, and
returns the values that the next step needs.
"""

import asyncio
import ipaddress
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from telethon import TelegramClient, errors
from telethon.sessions import StringSession
from telethon.tl import functions, types

from floodmark.errors import AccountLost, FloodmarkError, InvalidInput, Permanent, SlowDown, Transient, Unavailable
from floodmark.model.accounts import Person

from .client import make_client
from .faults import translate
from .proxies import ResolvedProxy

REGISTER = "https://my.telegram.org"

# The data centre in a session for a test server; a loopback server acts as all data centres.
_TEST_DC = 2
_DISCONNECT_SECONDS = 5
_PHONE = re.compile(r"\+?[0-9]{7,15}", re.ASCII)

_DELIVERY = {
    types.auth.SentCodeTypeApp: "in the Telegram app",
    types.auth.SentCodeTypeSms: "by SMS",
    types.auth.SentCodeTypeCall: "by a phone call",
    types.auth.SentCodeTypeFlashCall: "by a phone call",
    types.auth.SentCodeTypeMissedCall: "by a missed call: the last digits of its number",
    types.auth.SentCodeTypeEmailCode: "by e-mail",
    types.auth.SentCodeTypeFragmentSms: "at fragment.com",
}


class WrongSecret(InvalidInput):
    """The code or the password is wrong; the user may enter it again."""


class Server(NamedTuple):
    """The address of a server other than Telegram itself."""

    host: str
    port: int


class Application:
    """The application that logs in, as registered with Telegram, and the proxy that it uses.

    `repr` does not show its hash.
    """

    __slots__ = ("api_hash", "api_id", "proxy")

    def __init__(self, api_id: int, api_hash: str, proxy: ResolvedProxy | None = None) -> None:
        self.api_id, self.api_hash, self.proxy = api_id, api_hash, proxy

    def __repr__(self) -> str:
        return f"Application({self.api_id})"


class PendingLogin:
    """A login that waits for its code or its password. `how` says how Telegram sends the code."""

    __slots__ = ("_code_hash", "_phone", "_session", "how")

    def __init__(self, session: str, phone: str, code_hash: str, how: str) -> None:
        self._session, self._phone, self._code_hash, self.how = session, phone, code_hash, how

    def __repr__(self) -> str:
        return "PendingLogin(***)"

    def secrets(self) -> dict[str, str]:
        """Return its values, to be encrypted. `PendingLogin(**values)` continues it."""
        return {"session": self._session, "phone": self._phone, "code_hash": self._code_hash, "how": self.how}


class SignedIn:
    """A completed login. `session` gives full access to the account."""

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
        how = _DELIVERY.get(type(sent.type), "by Telegram")
        return PendingLogin(client.session.save(), phone, sent.phone_code_hash, how)


async def enter_code(app: Application, pending: PendingLogin, code: str, *, timeout: timedelta) -> SignedIn | None:
    """Log in with the code. Return None if a password is required too. `WrongSecret` if the code is wrong."""
    async with _connected(StringSession(pending._session), app, timeout) as client:
        try:
            await client.sign_in(pending._phone, code=code, phone_code_hash=pending._code_hash)
        except errors.SessionPasswordNeededError:
            return None
        return SignedIn(client.session.save(), await _fetch_person(client))


async def enter_password(app: Application, pending: PendingLogin, password: str, *, timeout: timedelta) -> SignedIn:
    """Complete the login of an account with a password. `WrongSecret` if the password is wrong."""
    async with _connected(StringSession(pending._session), app, timeout) as client:
        await client.sign_in(password=password)
        return SignedIn(client.session.save(), await _fetch_person(client))


async def log_out(app: Application, session: str, *, timeout: timedelta) -> None:
    """End a session at Telegram that nobody has stored. It stays if Telegram cannot be reached."""
    with suppress(FloodmarkError):
        async with _connected(StringSession(session), app, timeout) as client:
            await client.log_out()


def parse_phone(text: str) -> str:
    """Return a phone number in the form that Telegram accepts."""
    phone = re.sub(r"[\s().-]", "", text)
    if not _PHONE.fullmatch(phone):
        raise InvalidInput(
            "that is not a phone number", hint="write it with its country code, for example +4915112345678"
        )
    return phone if phone.startswith("+") else f"+{phone}"


# With a session


async def check(session: str, app: Application, *, account: str, timeout: timedelta) -> Person:
    """Connect, and return the user of the session. The caller must ensure that no other process has it open.

    `AccountLost` if Telegram has ended the session; `Unavailable` or `SlowDown` if that could not be determined.
    """
    async with _connected(StringSession(session), app, timeout, account=account) as client:
        return await _fetch_person(client)


async def _fetch_person(client: TelegramClient) -> Person:
    # Not `get_me`, which hides the error.
    [me] = await client(functions.users.GetUsersRequest([types.InputUserSelf()]))
    return person_of(me)


def person_of(me: types.User) -> Person:
    """Return the person of a user object. Bots are refused."""
    if me.bot:
        raise InvalidInput(
            "this is a bot: bots cannot read the history of channels",
            hint="log in as a person: floodmark accounts add NAME --phone +49...",
        )
    name = " ".join(filter(None, (me.first_name, me.last_name)))
    return Person(id=me.id, name=name, username=me.username)


# Where


def server_of(session: str) -> Server:
    """Return the server of a session."""
    found = StringSession(session)
    return Server(found.server_address, found.port)


def is_loopback(server: Server) -> bool:
    """Return whether the server is on this machine: a test server, whose keys are public."""
    return ipaddress.ip_address(server.host).is_loopback


def parse_server(text: str) -> Server:
    """Return a test server from HOST:PORT. It must be on this machine, because it gets the code and the password."""
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


@asynccontextmanager
async def _connected(
    session: StringSession, app: Application, timeout: timedelta, *, account: str | None = None
) -> AsyncIterator[TelegramClient]:
    """Yield a connected client for one step, which must end within `timeout`; translates errors."""
    # One retry of a request: Telegram may redirect the first one to another data centre.
    client = make_client(session, app.api_id, app.api_hash, proxy=app.proxy, request_retries=1, retry_delay=1)
    try:
        try:
            async with asyncio.timeout(timeout.total_seconds()):
                await client.connect()
                yield client
        finally:
            await _disconnect(client)
    except FloodmarkError:
        raise
    except TimeoutError as error:
        raise _unreachable(session, f"did not answer within {timeout.total_seconds():g} s") from error
    except Exception as error:
        raise _translate(error, session, account) from error


async def _disconnect(client: TelegramClient) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(_DISCONNECT_SECONDS):
            await client.disconnect()
    # Mark the exception as retrieved: asyncio would log it otherwise.
    ended = client.disconnected
    if ended.done() and not ended.cancelled():
        ended.exception()


def _translate(error: Exception, session: StringSession, account: str | None) -> Exception:
    """Return the error to raise for a person who logs in or tests an account."""
    for refusal in _REFUSALS:
        if isinstance(error, refusal.errors):
            return refusal.kind(refusal.message, hint=refusal.hint)
    if isinstance(error, errors.FloodError) and getattr(error, "seconds", None) is not None:
        return _slow_down(int(error.seconds))
    ours = translate(error, account=account or "", method="login", target="", now=datetime.now(UTC))
    if isinstance(ours, AccountLost):
        return ours if account else InvalidInput(ours.reason, hint="use another account")
    if isinstance(ours, Transient):
        return _unreachable(session, f"cannot be reached ({type(error).__name__})")
    return Permanent(f"Telegram refused: {type(error).__name__.removesuffix('Error')}", hint="try another account")


def _unreachable(session: StringSession, what: str) -> Unavailable:
    where = f" at {session.server_address}:{session.port}" if session.server_address else ""
    return Unavailable(f"Telegram{where} {what}", hint="check the connection of this machine, then try again")


def _slow_down(seconds: int) -> SlowDown:
    error = SlowDown(timedelta(seconds=max(1, seconds)), None, "Telegram requires a wait")
    error.hint = "try again after that time; an earlier attempt makes the wait longer"
    return error


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
        "Telegram does not accept this phone number",
        "write it with its country code, for example +4915112345678",
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
        "only the newest code is valid; begin the login again to get another",
    ),
    _Refusal(
        (errors.PhoneCodeExpiredError, errors.PhoneCodeHashEmptyError),
        InvalidInput,
        "the code has expired",
        "begin the login again to get a new one",
    ),
    _Refusal(
        (errors.PasswordHashInvalidError,),
        WrongSecret,
        "that is not the password",
        "enter the password of the two-step verification: in the app, Settings, Privacy and Security",
    ),
    _Refusal(
        (errors.PhonePasswordFloodError, errors.PhoneNumberFloodError),
        Unavailable,
        "there were too many logins with this phone number",
        "try again tomorrow",
    ),
)
