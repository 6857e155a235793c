"""Logging in with the real client to a loopback Telegram, and reading sessions that were made elsewhere."""

import asyncio
import base64
import hashlib
import sqlite3
import struct
from collections.abc import AsyncIterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from telethon import TelegramClient
from telethon.crypto import AuthKey, rsa
from telethon.sessions import StringSession
from telethon.tl.types import User

from floodmark.errors import AccountLost, FloodmarkError, InvalidInput, Permanent, SlowDown, Unavailable
from floodmark.model.accounts import Person
from floodmark.sources.telegram.login import (
    Application,
    PendingLogin,
    Server,
    SignedIn,
    WrongSecret,
    check,
    enter_code,
    enter_password,
    is_loopback,
    parse_phone,
    parse_server,
    person_of,
    send_code,
    server_of,
)
from floodmark.sources.telegram.session_formats import read_session_file, read_session_text
from floodmark.testing.eventually import eventually
from floodmark.testing.telegram import LoopbackTelegram, TelegramBackend, trust_loopback

APP = Application(1, "hash-of-the-application")
PATIENCE = timedelta(seconds=120)
IMPATIENCE = timedelta(seconds=0.3)
PHONE, LOCKED = "+10000000001", "+10000000002"
CODE, PASSWORD = "24680", "correct horse"


@pytest.fixture(autouse=True)
def no_config_of_another_server() -> None:
    """Telethon keeps the first server's list of data centres on the class, for every client after it."""
    TelegramClient._config = None


@pytest.fixture
def backend() -> TelegramBackend:
    made = TelegramBackend(seed=7)
    made.account("reader1", phone=PHONE, code=CODE)
    made.account("locked", phone=LOCKED, code=CODE, password=PASSWORD)
    return made


@pytest.fixture
async def server(backend: TelegramBackend) -> AsyncIterator[LoopbackTelegram]:
    trust_loopback()
    async with LoopbackTelegram(backend, forbid_duplicates=True) as made:
        yield made
        assert made.duplicates == []


async def code_sent(server: LoopbackTelegram, phone: str = PHONE) -> PendingLogin:
    return await send_code(APP, phone, timeout=PATIENCE, server=Server("127.0.0.1", server.port))


# By phone


async def test_a_person_logs_in_by_phone_and_code(server: LoopbackTelegram, backend: TelegramBackend) -> None:
    pending = await code_sent(server)
    assert pending.how == "in the Telegram app"

    done = await enter_code(APP, pending, CODE, timeout=PATIENCE)

    assert isinstance(done, SignedIn)
    assert done.person.id == backend.get_account("reader1").user_id
    assert server_of(done.session) == Server("127.0.0.1", server.port)
    assert done.session != server.session("reader1"), "a session of its own"
    assert await check(done.session, APP, account="reader1", timeout=PATIENCE) == done.person


@pytest.mark.thorough
async def test_a_person_with_a_password_is_asked_for_it(server: LoopbackTelegram, backend: TelegramBackend) -> None:
    pending = await code_sent(server, LOCKED)
    assert await enter_code(APP, pending, CODE, timeout=PATIENCE) is None
    with pytest.raises(WrongSecret, match="that is not the password"):
        await enter_password(APP, pending, "wrong", timeout=PATIENCE)

    done = await enter_password(APP, pending, PASSWORD, timeout=PATIENCE)

    assert done.person.id == backend.get_account("locked").user_id
    assert await check(done.session, APP, account="locked", timeout=PATIENCE) == done.person


async def test_a_wrong_code_may_be_put_right(server: LoopbackTelegram) -> None:
    pending = await code_sent(server)
    with pytest.raises(WrongSecret, match="that is not the code"):
        await enter_code(APP, pending, "11111", timeout=PATIENCE)
    assert await enter_code(APP, pending, CODE, timeout=PATIENCE)


async def test_nothing_is_connected_while_the_person_looks_for_the_code(server: LoopbackTelegram) -> None:
    await code_sent(server)
    opened = server.connections
    server.disconnect()
    server.refuse()
    server.accept()
    assert server.connections == opened


@pytest.mark.parametrize(
    ("error", "code", "kind", "says"),
    [
        ("API_ID_INVALID", 400, InvalidInput, "does not know this api id"),
        ("PHONE_NUMBER_INVALID", 400, InvalidInput, "does not accept this phone number"),
        ("PHONE_NUMBER_BANNED", 400, InvalidInput, "banned this phone number"),
        ("PHONE_NUMBER_UNOCCUPIED", 400, InvalidInput, "no Telegram account has this phone number"),
        ("PHONE_PASSWORD_FLOOD", 406, Unavailable, "too many logins"),
        ("FLOOD_WAIT_312", 420, SlowDown, "wait 312 s"),
        ("SOMETHING_NEW", 400, Permanent, "Telegram refused: BadRequest"),
        ("INPUT_USER_DEACTIVATED", 400, Permanent, "InputUserDeactivated"),
    ],
)
async def test_a_refusal_is_told_in_plain_words(
    server: LoopbackTelegram, error: str, code: int, kind: type[FloodmarkError], says: str
) -> None:
    server.fail("auth.sendCode", error, code=code)
    with pytest.raises(kind, match=says) as told:
        await code_sent(server)
    assert told.value.hint
    assert APP.api_hash not in str(told.value)
    assert PHONE not in str(told.value)


async def test_an_expired_code_and_a_banned_person_are_told(server: LoopbackTelegram) -> None:
    pending = await code_sent(server)
    server.fail("auth.signIn", "PHONE_CODE_EXPIRED")
    with pytest.raises(InvalidInput, match="the code has expired"):
        await enter_code(APP, pending, CODE, timeout=PATIENCE)
    server.fail("auth.signIn", "USER_DEACTIVATED_BAN", code=401)
    with pytest.raises(InvalidInput, match="the account was banned"):
        await enter_code(APP, pending, CODE, timeout=PATIENCE)


async def test_a_server_with_an_unknown_key_is_not_trusted(server: LoopbackTelegram) -> None:
    known = dict(rsa._server_keys)
    rsa._server_keys.clear()
    try:
        with pytest.raises(Unavailable, match="cannot be reached"):
            await code_sent(server)
    finally:
        rsa._server_keys.update(known)


# With a session


async def test_a_session_that_works_says_who_it_is(server: LoopbackTelegram, backend: TelegramBackend) -> None:
    person = await check(server.session("reader1"), APP, account="reader1", timeout=PATIENCE)
    account = backend.get_account("reader1")
    assert person.id == account.user_id
    assert person.name
    assert "messages.getHistory" not in {call.method for call in server.calls()}


@pytest.mark.parametrize(
    ("reason", "says"),
    [
        ("AUTH_KEY_UNREGISTERED", "the session was logged out"),
        ("SESSION_REVOKED", "the session was ended by its owner"),
        ("USER_DEACTIVATED_BAN", "the account was banned"),
    ],
)
async def test_a_session_that_was_ended_says_why(server: LoopbackTelegram, reason: str, says: str) -> None:
    server.revoke("reader1", reason)
    with pytest.raises(AccountLost, match=f"account reader1: {says}") as told:
        await check(server.session("reader1"), APP, account="reader1", timeout=PATIENCE)
    assert "floodmark accounts add reader1 --replace" in told.value.hint


async def test_a_session_the_server_never_saw_is_lost(server: LoopbackTelegram) -> None:
    stranger = TelegramBackend(seed=8)
    stranger.account("reader1")
    async with LoopbackTelegram(stranger) as other:
        theirs = StringSession(other.session("reader1"))
    session = StringSession()
    session.set_dc(2, "127.0.0.1", server.port)
    session.auth_key = theirs.auth_key
    with pytest.raises(AccountLost, match="does not know the session"):
        await check(session.save(), APP, account="reader1", timeout=PATIENCE)


async def test_a_flood_wait_is_told_and_not_slept_through(server: LoopbackTelegram) -> None:
    server.flood("users.getUsers", seconds=312, times=None)
    with pytest.raises(SlowDown, match="wait 312 s") as told:
        await check(server.session("reader1"), APP, account="reader1", timeout=PATIENCE)
    assert told.value.after == timedelta(seconds=312)
    assert told.value.hint


def test_a_bot_is_refused_because_it_cannot_read_channels() -> None:
    assert person_of(User(1, first_name="Ann", last_name="Ash")).name == "Ann Ash"
    with pytest.raises(InvalidInput, match="bots cannot read") as told:
        person_of(User(2, bot=True, first_name="Bee"))
    assert "--phone" in told.value.hint


@pytest.mark.parametrize("trouble", ["hang", "refuse", "drop", "accept and close"])
async def test_a_server_in_trouble_ends_the_wait(server: LoopbackTelegram, trouble: str) -> None:
    if trouble == "hang":
        server.hang(times=None)
    elif trouble == "refuse":
        server.refuse()
    elif trouble == "drop":
        server.drop(times=None)
    else:
        server.accept_and_close()
    with pytest.raises(Unavailable, match=rf"Telegram at 127\.0\.0\.1:{server.port}") as told:
        await check(
            server.session("reader1"), APP, account="reader1", timeout=IMPATIENCE if trouble == "hang" else PATIENCE
        )
    assert told.value.hint
    assert server.connections < 10, "no storm of connections"


async def test_someone_who_gives_up_leaves_nothing_behind(server: LoopbackTelegram) -> None:
    server.hang(times=None)
    asking = asyncio.create_task(check(server.session("reader1"), APP, account="reader1", timeout=PATIENCE))
    await eventually(server.calls)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking


# Sessions made elsewhere


def test_a_session_file_is_read_and_left_as_it_was(tmp_path: Path) -> None:
    backend = TelegramBackend(seed=7)
    backend.account("reader1")
    made = LoopbackTelegram(backend, port=4443)
    path = tmp_path / "my reader #1.session"
    made.write_session("reader1", path)
    before = (hashlib.sha256(path.read_bytes()).digest(), path.stat().st_mtime_ns)
    path.chmod(0o400)

    with closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA locking_mode=EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        assert read_session_file(path).session == made.session("reader1"), "also while somebody uses it"

    assert (hashlib.sha256(path.read_bytes()).digest(), path.stat().st_mtime_ns) == before
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def a_session_file(path: Path, *rows: tuple[Any, ...], columns: str = "dc_id, server_address, port, auth_key") -> Path:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"CREATE TABLE sessions ({columns})")
        connection.executemany("INSERT INTO sessions VALUES (?, ?, ?, ?)", rows)
        connection.commit()
    return path


def test_a_file_that_is_no_session_is_refused_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "empty.session").touch()
    (tmp_path / "text.session").write_text("hello, this is not a database at all")
    with closing(sqlite3.connect(tmp_path / "other.session")) as connection:
        connection.execute("CREATE TABLE peers (id)")
    pyrogram = "dc_id, is_bot, test_mode, auth_key"
    a_session_file(tmp_path / "bot.session", (2, 1, 0, b"k" * 256), columns=pyrogram)
    a_session_file(tmp_path / "test.session", (2, 0, 1, b"k" * 256), columns=pyrogram)
    a_session_file(tmp_path / "unknown.session", (9, 0, 0, b"k" * 256), columns=pyrogram)
    a_session_file(tmp_path / "strange.session", (2, 0, 0, b"k" * 256), columns="dc, is_bot, test_mode, auth_key")
    a_session_file(tmp_path / "nobody.session")
    a_session_file(tmp_path / "keyless.session", (2, "149.154.167.51", 443, None))
    a_session_file(tmp_path / "damaged.session", (2, "149.154.167.51", 443, b"short"))
    a_session_file(tmp_path / "nowhere.session", (2, "somewhere", 443, b"k" * 256))
    a_session_file(tmp_path / "far.session", (2, "149.154.167.51", 99999999, b"k" * 256))
    said = {
        "missing": "cannot be read: No such file",
        "empty": "is empty",
        "text": "is not a session file",
        "other": "is not a session file of Telethon",
        "bot": "belongs to a bot",
        "test": "is for Telegram's test servers",
        "unknown": "does not say which server",
        "strange": "is not a session file of Telethon",
        "nobody": "has no key",
        "keyless": "has no key",
        "damaged": "is damaged",
        "nowhere": "does not say which server",
        "far": "does not say which server",
    }
    for name, says in said.items():
        with pytest.raises(InvalidInput, match=says) as told:
            read_session_file(tmp_path / f"{name}.session")
        assert told.value.hint
        assert f"{name}.session" in str(told.value)
    with pytest.raises(InvalidInput, match="cannot be read: Is a directory"):
        read_session_file(tmp_path)


def a_text(key: bytes = b"k" * 256, address: str = "149.154.167.51") -> str:
    session = StringSession()
    session.set_dc(2, address, 443)
    session.auth_key = AuthKey(key)
    return str(session.save())


def test_a_string_session_is_taken_with_its_line_breaks() -> None:
    text = a_text()
    assert read_session_text(f"  {text[:100]}\n{text[100:]}\n").session == text
    assert server_of(text) == Server("149.154.167.51", 443)
    assert not is_loopback(server_of(text))
    six = a_text(address="2001:67c:4e8:f002::a")
    assert server_of(read_session_text(six).session).host == "2001:67c:4e8:f002::a"


@pytest.mark.parametrize("text", ["", "x", "1", "2" + "A" * 352, "1" + "A" * 100, "1" + "!" * 352, "ü" * 353])
def test_a_text_that_is_no_session_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(InvalidInput, match="not a string session of Telethon") as told:
        read_session_text(text)
    assert told.value.__cause__ is None
    assert told.value.hint
    assert len(text) < 100 or text not in str(told.value)


def a_pyrogram_text(layout: str, *values: Any) -> str:
    return base64.urlsafe_b64encode(struct.pack(layout, *values)).decode().rstrip("=")


@pytest.mark.spec("B11")
def test_sessions_of_pyrogram_are_converted(tmp_path: Path) -> None:
    key = bytes(range(256))
    texts = {
        a_pyrogram_text(">BI?256sQ?", 4, 1234, False, key, 10**10, False): 1234,
        a_pyrogram_text(">B?256sQ?", 4, False, key, 10**10, False): None,
        a_pyrogram_text(">B?256sI?", 4, False, key, 10**9, False): None,
    }
    for text, api_id in texts.items():
        found = read_session_text(f"{text[:50]}\n{text[50:]}")
        session = StringSession(found.session)
        assert (session.dc_id, session.server_address, session.port) == (4, "149.154.167.91", 443)
        assert (session.auth_key.key, found.api_id) == (key, api_id)
        assert text not in repr(found)
        assert server_of(read_session_text(text, Server("127.0.0.1", 4443)).session) == Server("127.0.0.1", 4443)
    with pytest.raises(InvalidInput, match="belongs to a bot"):
        read_session_text(a_pyrogram_text(">BI?256sQ?", 4, 1234, False, key, 1, True))
    path = a_session_file(tmp_path / "p.session", (1, 77, False, key), columns="dc_id, api_id, test_mode, auth_key")
    found = read_session_file(path)
    assert (StringSession(found.session).server_address, found.api_id) == ("149.154.175.53", 77)


def test_a_session_without_a_key_is_refused() -> None:
    with pytest.raises(InvalidInput, match="has no key"):
        read_session_text(a_text(b"\0" * 256))


# What people type


@pytest.mark.parametrize(
    ("text", "phone"),
    [("+49 151 1234-5678", "+4915112345678"), ("4915112345678", "+4915112345678"), ("+1 (000) 000.0001", PHONE)],
)
def test_a_phone_number_may_be_written_in_many_ways(text: str, phone: str) -> None:
    assert parse_phone(text) == phone


@pytest.mark.parametrize("text", ["", "12", "+49 abc", "+" + "1" * 16, "٠١٢٣٤٥٦٧٨", "+1;2345678"])
def test_what_is_no_phone_number_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="not a phone number") as told:
        parse_phone(text)
    assert "for example" in told.value.hint


def test_a_test_server_must_be_on_this_machine() -> None:
    assert parse_server("127.0.0.1:4443") == Server("127.0.0.1", 4443)
    assert parse_server("localhost:4443") == Server("127.0.0.1", 4443)
    assert parse_server("[::1]:4443") == Server("::1", 4443)
    for text in ("149.154.167.51:443", "0.0.0.0:443", "127.0.0.1:0", "127.0.0.1:70000"):
        with pytest.raises(InvalidInput, match="test servers on this machine"):
            parse_server(text)
    for text in ("", "4443", "example.org:443", "127.0.0.1:x", "127.0.0.1"):
        with pytest.raises(InvalidInput, match="is not HOST:PORT"):
            parse_server(text)


def test_nothing_shows_the_secrets_of_a_login() -> None:
    secret = a_text()
    shown = (
        APP,
        PendingLogin(secret, PHONE, "hash", "by SMS"),
        SignedIn(secret, Person(id=1, name="Ann", username=None)),
    )
    for value in shown:
        assert secret not in f"{value!r} {value}"
        assert APP.api_hash not in f"{value!r} {value}"
