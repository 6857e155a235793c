"""`floodmark accounts` as it is typed, with the real client and a Telegram on this machine."""

import base64
import sqlite3
import struct
import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from telethon import TelegramClient
from telethon.sessions import StringSession
from typer.testing import CliRunner

from command_line import Answer, CommandLine
from floodmark.cli import app
from floodmark.cli.login_options import SESSION_VARIABLE
from floodmark.settings import keys
from floodmark.testing.telegram import LoopbackTelegram, TelegramBackend

PHONE, CODE, PASSWORD = "+10000000001", "24680", "correct horse"


@pytest.fixture(autouse=True)
def untouched_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No settings from outside, and nothing of another server."""
    for key in (*keys(), SESSION_VARIABLE):
        monkeypatch.delenv(key, raising=False)
    monkeypatch.setattr(TelegramClient, "_config", None)
    path = list(sys.path)
    yield
    sys.path[:] = path


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, migrated_sqlite: Path) -> CommandLine:
    monkeypatch.chdir(tmp_path)
    return CommandLine.installed(tmp_path, migrated_sqlite)


@pytest.fixture
def server() -> Iterator[LoopbackTelegram]:
    backend = TelegramBackend(seed=7)
    backend.account("reader1", phone=PHONE, code=CODE)
    backend.account("reader2")
    backend.account("locked", phone="+10000000003", code=CODE, password=PASSWORD)
    with LoopbackTelegram.thread(backend, forbid_duplicates=True) as made:
        yield made
        assert made.duplicates == []


def typed(cli: CommandLine, *command: str, keyboard: str) -> Answer:
    """A command with lines for it to read."""
    result = CliRunner().invoke(app, [*cli.options(), *command], input=keyboard)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Answer(command, result.exit_code, result.stdout, result.stderr)


def by_phone(server: LoopbackTelegram, name: str, phone: str = PHONE) -> tuple[str, ...]:
    return ("accounts", "add", name, "--phone", phone, "--server", f"127.0.0.1:{server.port}")


def sql(cli: CommandLine, statement: str, *values: Any) -> list[Any]:
    with closing(sqlite3.connect(cli.folder / ".floodmark" / "floodmark.db")) as connection:
        found = connection.execute(statement, values).fetchall()
        connection.commit()
        return found


# Adding


@pytest.mark.spec("B11")
def test_sessions_of_telethon_and_pyrogram_are_imported_and_never_shown(
    cli: CommandLine, server: LoopbackTelegram, tmp_path: Path
) -> None:
    server.write_session("reader1", tmp_path / "reader1.session")
    key = StringSession(server.session("reader2")).auth_key.key
    pyrogram = base64.urlsafe_b64encode(struct.pack(">BI?256sQ?", 2, 1, False, key, 7, False)).decode().rstrip("=")
    options = ("--api-id", "1", "--api-hash", "hash")

    told = cli.good("accounts", "import", "reader1.session", *options)
    assert "Added reader1: reader1" in told.out
    cli.refused("accounts", "import", pyrogram, *options, says="needs a name")
    with_server = CommandLine(tmp_path, TELEGRAM_TEST_SERVER=f"127.0.0.1:{server.port}")
    also = with_server.good("accounts", "import", pyrogram, "--name", "reader2", *options)
    assert "Added reader2: reader2" in also.out
    assert {row["name"] for row in cli.good("accounts", "ls", "--json").json} == {"reader1", "reader2"}
    cli.refused("accounts", "import", pyrogram[:-9], "--name", "other", *options, says="not a string session")
    shown = "".join((told.out, told.err, also.out, also.err, str(sql(cli, "SELECT * FROM accounts"))))
    assert pyrogram[20:80] not in shown


@pytest.mark.spec("B11")
@pytest.mark.thorough
def test_the_proxy_of_an_account_is_changed_and_shown_without_its_secrets(
    cli: CommandLine, server: LoopbackTelegram
) -> None:
    proxy = "socks5://ada:open-sesame@127.0.0.1:1080"
    cli.good("accounts", "add", "reader1", "--session", server.session("reader1"))
    cli.refused("accounts", "add", "reader1", "--replace", "--proxy", proxy, says="127.0.0.1", code=1)
    cli.refused("accounts", "add", "reader1", "--replace", "--proxy", "mtproxy://ee" + 16 * "00" + "aa@h:1", says="TLS")
    told = cli.good("accounts", "add", "reader1", "--replace", "--proxy", proxy, "--no-check")
    [row] = cli.good("accounts", "ls", "--json").json
    assert row["proxy"] == "socks5://***@127.0.0.1:1080"
    assert "sesame" not in told.out + told.err + str(sql(cli, "SELECT * FROM accounts"))
    # Another session keeps it, and `none` removes it.
    cli.good("accounts", "add", "reader1", "--replace", "--session", server.session("reader1"), "--no-check")
    assert cli.good("accounts", "ls", "--json").json[0]["proxy"] == row["proxy"]
    cli.good("accounts", "add", "reader1", "--replace", "--proxy", "none")
    assert cli.good("accounts", "ls", "--json").json[0]["proxy"] == "none"


def test_a_string_session_is_added_and_listed_without_a_secret(cli: CommandLine, server: LoopbackTelegram) -> None:
    session = server.session("reader1")

    told = cli.good("accounts", "add", "reader1", "--session", session, "--tenant", "acme", "--user", "ann")

    assert "Added reader1" in told.out
    assert "secret.key" in told.out
    assert "floodmark add telegram" in told.out
    [row] = cli.good("accounts", "ls", "--json").json
    assert (row["name"], row["state"], row["tenant_id"], row["user_id"]) == ("reader1", "active", "acme", "ann")
    listed = cli.good("accounts", "ls").out
    assert "reader1" in listed
    assert "acme, ann" in listed
    assert cli.good("accounts").out == listed
    shown = told.out + told.err + listed + str(row) + str(sql(cli, "SELECT * FROM accounts"))
    assert session not in shown
    assert session[10:80] not in shown
    assert (cli.folder / ".floodmark" / "secret.key").stat().st_mode & 0o777 == 0o600


def test_a_session_file_is_added_and_not_touched(cli: CommandLine, server: LoopbackTelegram) -> None:
    path = cli.folder / "mine.session"
    server.write_session("reader1", path)
    before = path.read_bytes()

    told = cli.good("accounts", "add", "reader1", "--session", "mine.session", "--json").json

    assert told["account"]["name"] == "reader1"
    assert told["person"]["id"]
    assert (told["replaced"], told["resumed"]) == (False, [])
    assert path.read_bytes() == before


def test_a_session_need_not_stand_on_the_command_line(
    cli: CommandLine, server: LoopbackTelegram, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = typed(cli, "accounts", "add", "a", "--session", "-", keyboard=f"{server.session('reader1')}\n")
    assert told.code == 0, told
    monkeypatch.setenv(SESSION_VARIABLE, server.session("reader2"))
    assert "Added b" in cli.good("accounts", "add", "b").out


@pytest.mark.spec("T1")
def test_a_person_logs_in_by_phone_code_and_password(cli: CommandLine, server: LoopbackTelegram) -> None:
    told = typed(cli, *by_phone(server, "reader1"), keyboard=f"{CODE}\n")
    assert told.code == 0, told
    assert "Telegram sent a code in the Telegram app" in told.err
    assert "Added reader1" in told.out

    told = typed(
        cli, *by_phone(server, "locked", "+1 000 000 0003"), "--code", CODE, "--json", keyboard=f"{PASSWORD}\n"
    )
    assert told.code == 0, told
    assert "has a password" in told.err
    assert told.json["account"]["phone"] == "+10…003"

    listed = cli.good("accounts", "ls").out
    assert "+10…001" in listed
    assert "+10…003" in listed
    assert not any(secret in told.out + told.err + listed for secret in (PASSWORD, "10000000003", CODE))


@pytest.mark.thorough
def test_a_wrong_code_and_a_wrong_password_add_nothing(cli: CommandLine, server: LoopbackTelegram) -> None:
    cli.refused(*by_phone(server, "reader1"), "--code", "11111", "--quiet", says="that is not the code")
    told = typed(cli, *by_phone(server, "locked", "+10000000003"), "--code", CODE, keyboard="wrong\n")
    assert "that is not the password" in told.err
    assert told.code == 2
    told = typed(cli, *by_phone(server, "reader1"), keyboard="")
    assert "the code is missing, and there is no terminal to ask on" in told.err
    assert cli.good("accounts", "ls", "--json").json == []


@pytest.mark.thorough
def test_what_makes_no_sense_is_refused_and_changes_nothing(cli: CommandLine, server: LoopbackTelegram) -> None:
    session = server.session("reader1")
    (cli.folder / "text.session").write_text("not a database, but long enough to look at")
    refused = {
        "cannot be the name of an account": ("a b", "--session", session),
        "contradict each other": ("a", "--session", session, "--phone", PHONE),
        "no phone number and no session is given": ("a",),
        "not a string session": ("a", "--session", "nonsense"),
        "cannot be read": ("a", "--session", "missing.session"),
        "is not a session file": ("a", "--session", "text.session"),
        "not a phone number": ("a", "--phone", "12"),
        "is not HOST:PORT": ("a", "--phone", PHONE, "--server", "here"),
        "test servers on this machine": ("a", "--phone", PHONE, "--server", "149.154.167.51:443"),
    }
    for says, words in refused.items():
        answer = cli.refused("accounts", "add", *words, says=says)
        assert session not in answer.err
    assert server.connections == 0
    assert cli.good("accounts", "ls", "--json").json == []


def test_a_missing_application_is_told_where_to_get_one(cli: CommandLine) -> None:
    told = cli.refused("accounts", "add", "a", "--phone", PHONE, says="the api id and hash of your application")
    assert "https://my.telegram.org" in told.err
    assert "TELEGRAM_API_ID" in told.err
    cli.refused("accounts", "add", "a", "--phone", PHONE, "--api-id", "7", says="the api hash of")


def test_one_session_is_not_added_twice_and_not_even_tried(cli: CommandLine, server: LoopbackTelegram) -> None:
    cli.good("accounts", "add", "reader1", "--session", server.session("reader1"))
    before = server.connections
    cli.refused("accounts", "add", "reader1", "--session", server.session("reader2"), says="already an account")
    cli.refused("accounts", "add", "other", "--session", server.session("reader1"), says="has this session already")
    assert server.connections == before


def test_a_session_that_was_ended_is_refused_unless_it_is_not_to_be_checked(
    cli: CommandLine, server: LoopbackTelegram
) -> None:
    server.revoke("reader1")
    cli.refused("accounts", "add", "a", "--session", server.session("reader1"), says="was logged out", code=1)
    assert cli.good("accounts", "ls", "--json").json == []
    before = server.connections
    assert "unchecked" in cli.good("accounts", "add", "a", "--session", server.session("reader1"), "--no-check").out
    assert server.connections == before


def test_a_key_that_is_too_short_is_told_before_anybody_logs_in(cli: CommandLine, server: LoopbackTelegram) -> None:
    cli.settings["FLOODMARK_SECRET_KEY"] = "short"
    cli.refused(*by_phone(server, "reader1"), says="FLOODMARK_SECRET_KEY is too short")
    assert server.connections == 0


# Coming back


@pytest.mark.thorough
def test_an_account_that_is_replaced_resumes_its_jobs_and_keeps_what_was_not_said(
    cli: CommandLine, server: LoopbackTelegram
) -> None:
    assert typed(cli, *by_phone(server, "reader1"), "--tenant", "acme", keyboard=f"{CODE}\n").code == 0
    cli.good("add", "python", "feeds:news", "--name", "news", "--every", "1h")
    sql(cli, "UPDATE jobs SET paused = 1, pause_reason = 'account reader1: the session was logged out'")
    sql(cli, "UPDATE accounts SET state = 'parked', reason = 'the session was logged out'")
    assert "parked: the session was logged out" in cli.good("accounts", "ls").out

    told = typed(
        cli, "accounts", "add", "reader1", "--replace", "--server", f"127.0.0.1:{server.port}", keyboard=f"{CODE}\n"
    )

    assert told.code == 0, told
    assert "Replaced reader1" in told.out
    assert "Resumed 1 job: news" in told.out
    [row] = cli.good("accounts", "ls", "--json").json
    assert (row["state"], row["reason"], row["tenant_id"], row["phone"]) == ("active", None, "acme", "+10…001")
    assert not cli.good("show", "news", "--json").json["job"]["paused"]


def test_an_account_whose_key_is_lost_can_be_added_anew(cli: CommandLine, server: LoopbackTelegram) -> None:
    session = server.session("reader1")
    cli.good("accounts", "add", "reader1", "--session", session, "--tenant", "acme")
    (cli.folder / ".floodmark" / "secret.key").unlink()
    cli.settings["FLOODMARK_SECRET_KEY"] = "another key of enough length"
    told = cli.refused("accounts", "test", "reader1", says="wrong key")
    assert "set FLOODMARK_SECRET_KEY to the key it was stored with" in told.err
    told = cli.good("accounts", "add", "reader1", "--session", session, "--replace", "--json")
    assert told.json["account"]["tenant_id"] == "acme"
    assert "Works" in cli.good("accounts", "test", "reader1").out


# Testing


def test_a_test_says_who_it_is_and_leaves_the_session_free(cli: CommandLine, server: LoopbackTelegram) -> None:
    cli.good("accounts", "add", "reader1", "--session", server.session("reader1"))
    told = cli.good("accounts", "test", "reader1", "--json").json
    assert told["works"]
    assert told["person"]["id"]
    [row] = cli.good("accounts", "ls", "--json").json
    assert row["holder"] is None
    assert row["last_used_at"] is not None
    cli.refused("accounts", "test", "reader9", says="there is no account 'reader9'")


def test_a_session_that_is_open_elsewhere_is_not_tested(cli: CommandLine, server: LoopbackTelegram) -> None:
    session = server.session("reader1")
    cli.good("accounts", "add", "reader1", "--session", session)
    soon = (datetime.now(UTC) + timedelta(hours=1)).isoformat(sep=" ", timespec="microseconds")
    sql(cli, "UPDATE accounts SET holder = 'box-1', lease_until = ?", soon)
    before = server.connections

    cli.refused("accounts", "test", "reader1", says="is open in box-1")
    cli.refused("accounts", "add", "reader1", "--session", session, "--replace", says="is open in box-1")
    cli.refused("accounts", "rm", "reader1", "--yes", says="is open in box-1")

    assert server.connections == before
    assert "open in box-1" in cli.good("accounts", "ls").out
    cli.good("accounts", "rm", "reader1", "--yes", "--force")


def test_trouble_in_a_test_is_told_with_what_to_do(cli: CommandLine, server: LoopbackTelegram) -> None:
    cli.good("accounts", "add", "reader1", "--session", server.session("reader1"))
    server.flood("users.getUsers", seconds=312, times=None)
    cli.refused("accounts", "test", "reader1", says="wait 312 s", code=1)
    server.heal()
    server.revoke("reader1", "SESSION_REVOKED")
    told = cli.refused("accounts", "test", "reader1", says="ended by its owner", code=1)
    assert "floodmark accounts add reader1 --replace" in told.err
    [row] = cli.good("accounts", "ls", "--json").json
    assert (row["holder"], row["state"]) == (None, "active"), "a test changes nothing"


def test_a_parked_account_that_works_is_used_again_when_asked(cli: CommandLine, server: LoopbackTelegram) -> None:
    cli.good("accounts", "add", "reader1", "--session", server.session("reader1"))
    sql(cli, "UPDATE accounts SET state = 'parked', reason = 'banned'")
    told = cli.good("accounts", "test", "reader1").out
    assert "But it is parked: banned" in told
    assert "--activate" in told
    assert "active again" in cli.good("accounts", "test", "reader1", "--activate").out
    assert cli.good("accounts", "ls", "--json").json[0]["state"] == "active"


# Removing


def test_an_account_is_removed_after_asking(cli: CommandLine, server: LoopbackTelegram) -> None:
    cli.good("accounts", "add", "reader1", "--session", server.session("reader1"))
    cli.good("add", "python", "feeds:news", "--name", "news", "--every", "1h")
    sql(cli, "UPDATE jobs SET account = 'reader1'")

    cli.refused("accounts", "rm", "reader1", says="it needs confirmation")
    told = cli.good("accounts", "rm", "reader1", "--dry-run").out
    assert "Would delete the account reader1, which 1 job uses (news)" in told
    assert len(cli.good("accounts", "ls", "--json").json) == 1

    assert "Devices" in cli.good("accounts", "rm", "reader1", "--yes").out
    assert "No accounts yet" in cli.good("accounts", "ls").out
    cli.refused("accounts", "rm", "reader1", "--yes", says="there is no account")
