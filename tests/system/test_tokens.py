"""Tokens and the audit: in the store, and as they are typed."""

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from command_line import CommandLine
from floodmark.errors import Conflict, InvalidInput, NotFound
from floodmark.model.clock import SystemClock
from floodmark.model.tokens import is_enough
from floodmark.observability.events import Events
from floodmark.operations.stored_tokens import Tokens, digest_of, id_in
from floodmark.security.masking import mask_text
from floodmark.store.database import open_database
from floodmark.store.migrate import migrate
from floodmark.testing.clock import SetClock
from system.stores import AnyDatabase


@pytest.fixture
def store(database: AnyDatabase) -> Tokens:
    return Tokens(database, SystemClock())


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, migrated_sqlite: Path) -> CommandLine:
    monkeypatch.chdir(tmp_path)
    return CommandLine.installed(tmp_path, migrated_sqlite)


# In the store


async def test_a_token_is_made_found_and_revoked(store: Tokens) -> None:
    assert await store.is_empty()
    minted = await store.add("ci", "operate", timedelta(days=90))
    assert (minted.row.name, minted.row.role, minted.row.state) == ("ci", "operate", "active")
    assert minted.row.expires_at is not None
    assert minted.row.expires_at - minted.row.created_at >= timedelta(days=90)
    assert minted.text not in repr(minted)
    assert id_in(minted.text) == minted.row.token_id

    found = await store.find(minted.row.token_id)
    assert found is not None
    assert found.fits(minted.text)
    assert not any(found.fits(minted.text[:at] + "x" + minted.text[at + 1 :]) for at in range(len(minted.text)))
    assert not found.fits("")

    assert (await store.revoke("ci")).state == "active"
    assert (await store.show("ci")).state == "revoked"
    assert not await store.has_active()
    assert not await store.is_empty()
    with pytest.raises(Conflict, match="revoked already"):
        await store.revoke("ci")


async def test_no_two_tokens_are_alike(store: Tokens) -> None:
    made = [await store.add(f"t{number}", "read") for number in range(20)]
    assert len({minted.text for minted in made}) == len({minted.row.token_id for minted in made}) == 20
    assert [row.name for row in await store.page(after="t17", limit=2)] == ["t18", "t19"]


async def test_of_several_who_want_one_name_one_gets_it(store: Tokens) -> None:
    told: list[Any] = await asyncio.gather(*(store.add("ci", "read") for _ in range(5)), return_exceptions=True)
    assert sum(isinstance(answer, Conflict) for answer in told) == 4
    assert len(await store.page()) == 1


async def test_names_and_times_that_make_no_sense_are_refused(store: Tokens) -> None:
    for name in ("", "a b", "-a", "é", "a" * 65, "local", "anonymous", "a\n"):
        with pytest.raises(InvalidInput, match="cannot be the name"):
            await store.add(name, "read")
    for length in (timedelta(), timedelta(seconds=-1), timedelta(days=40_000)):
        with pytest.raises(InvalidInput, match="a hundred years"):
            await store.add("ci", "read", length)
    with pytest.raises(NotFound, match="no token 'ci'"):
        await store.revoke("ci")
    assert await store.is_empty()


async def test_a_token_expires_by_the_clock(sqlite_url: str) -> None:
    clock, opened = SetClock(), open_database(sqlite_url, events=Events())
    await migrate(opened)
    store = Tokens(opened, clock)
    await store.add("ci", "read", timedelta(days=90))
    clock.advance(timedelta(days=90) - timedelta(seconds=1))
    assert (await store.show("ci")).state == "active"
    clock.advance(timedelta(seconds=1))
    assert (await store.show("ci")).state == "expired"
    assert not await store.has_active()
    await opened.close()


def test_each_role_may_what_those_below_it_may() -> None:
    assert [is_enough("operate", needed) for needed in ("read", "operate", "admin")] == [True, True, False]
    assert not is_enough("read", "operate")
    assert is_enough("admin", "admin")


async def test_a_token_in_a_text_is_not_shown(store: Tokens) -> None:
    minted = await store.add("ci", "read")
    shown = mask_text(f"GET /jobs/{minted.text}?x failed, and {minted.text[:40]}")
    assert shown == f"GET /jobs/fm_{minted.row.token_id}_***?x failed, and fm_{minted.row.token_id}_***"


# As they are typed


def test_a_token_is_shown_once_and_listed_without_its_secret(cli: CommandLine) -> None:
    assert "No tokens yet." in cli.good("tokens").out
    told = cli.good("tokens", "add", "ci", "--role", "operate", "--expires", "90d")
    [text] = [line for line in told.out.splitlines() if line.startswith("fm_")]
    assert "Added ci, role operate, until 20" in told.out
    assert "every API request needs a token" in told.out
    quiet = cli.good("--quiet", "tokens", "add", "boss", "--role", "admin").out.strip()
    assert id_in(quiet) is not None
    given = cli.good("tokens", "add", "reader", "--role", "read", "--json").json
    assert id_in(given["token"]) == given["token_id"]

    listed = cli.good("tokens", "ls").out
    rows = cli.good("tokens", "ls", "--json").json
    assert [(row["name"], row["role"], row["state"]) for row in rows] == [
        ("boss", "admin", "active"),
        ("ci", "operate", "active"),
        ("reader", "read", "active"),
    ]
    kept = b"".join(path.read_bytes() for path in (cli.folder / ".floodmark").iterdir() if path.is_file())
    for secret in (text.rpartition("_")[2], quiet.rpartition("_")[2]):
        assert secret not in listed + str(rows)
        assert secret.encode() not in kept
    assert digest_of(text).encode() in kept


@pytest.mark.spec("G9")
def test_what_makes_no_sense_is_refused(cli: CommandLine) -> None:
    cli.refused("tokens", "add", "ci", "--role", "root", says="'root' is not a role")
    cli.refused("tokens", "add", "a b", "--role", "read", says="cannot be the name of a token")
    cli.refused("tokens", "add", "ci", "--role", "read", "--expires", "soon", says="is not a length of time")
    cli.refused("tokens", "revoke", "ci", "--yes", says="there is no token 'ci'")
    assert cli.good("tokens", "ls", "--json").json == []
    assert cli.good("audit", "--json").json == []


def test_revoking_is_asked_about_and_audited(cli: CommandLine) -> None:
    cli.good("tokens", "add", "ci", "--role", "read")
    cli.refused("tokens", "revoke", "ci", says="there is no terminal to ask on")
    assert "Would revoke the token ci" in cli.good("tokens", "revoke", "ci", "--dry-run").out
    assert "Revoked ci." in cli.good("tokens", "revoke", "ci", "--yes").out
    cli.refused("tokens", "revoke", "ci", "--yes", says="revoked already")
    assert "revoked" in cli.good("tokens", "ls").out
    cli.good("tokens", "add", "ci", "--role", "admin")

    rows = cli.good("audit", "--object", "token:ci", "--json").json
    assert [(row["action"], row["via"]) for row in rows] == [
        ("token.added", "cli"),
        ("token.revoked", "cli"),
        ("token.added", "cli"),
    ]
    assert set(rows[0]["after"]) == {"token_id", "role", "expires_at"}


@pytest.mark.spec("V8")
def test_the_audit_is_shown_in_pages(cli: CommandLine) -> None:
    assert cli.good("audit").out.strip() == "No changes."
    cli.good("add", "python", "feeds:news", "--name", "news", "--every", "1h")
    cli.good("pause", "news")
    cli.good("resume", "news")
    shown = cli.good("audit").out
    assert all(word in shown for word in ("job.added", "job.paused", "job.resumed", "job:news"))
    page = cli.good("audit", "--limit", "2")
    assert "job.added" not in page.out
    assert "floodmark audit --before 2" in page.out
    assert "job.added" in cli.good("audit", "--before", "2").out
    assert "No changes of job:olds." in cli.good("audit", "--object", "job:olds").out
