"""Accounts on both databases: their secrets, their state, and that one process at a time has a session open."""

import asyncio
import base64
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from sqlalchemy import insert, select, update

from floodmark.errors import Conflict, InvalidInput, NotFound
from floodmark.model.clock import Clock, SystemClock
from floodmark.model.job import Job
from floodmark.observability.events import AccountParked, Events
from floodmark.repositories.jobs import Jobs
from floodmark.security.vault import Vault
from floodmark.sources.telegram.accounts import Accounts, TelegramAccount, mask_phone
from floodmark.sources.telegram.tables import accounts as table
from floodmark.sources.telegram.tables import telegram_channels
from floodmark.store.database import SqliteDatabase
from floodmark.testing.clock import SetClock
from system.stores import AnyDatabase, a_spec

pytest_plugins = ("backends",)

KEY = "a key for the tests"
HASH = "0123456789abcdef0123456789abcdef"
PHONE = "+4915112345678"
TTL = timedelta(seconds=30)
OVER = timedelta(seconds=-1)


def a_session(number: int = 1, *, port: int = 443) -> str:
    """A text like that of a StringSession; sessions with one number have one key."""
    packed = bytes([2, 127, 0, 0, 1]) + port.to_bytes(2, "big") + bytes([number] * 256)
    return "1" + base64.urlsafe_b64encode(packed).decode()


@pytest.fixture(params=["sqlite_copy", "pg_clean"])
def migrated_url(request: pytest.FixtureRequest) -> str:
    """Wiped, not made anew: that is ten times quicker."""
    return str(request.getfixturevalue(request.param))


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    return Vault(KEY, tmp_path / "secret.key")


@pytest.fixture
def accounts(database: AnyDatabase, vault: Vault) -> Accounts:
    return Accounts(database, SystemClock(), vault)


async def add(accounts: Accounts, name: str = "reader1", number: int = 1, **changes: Any) -> Any:
    given = {"api_id": 7, "api_hash": HASH, "session": a_session(number), "phone": PHONE, **changes}
    return await accounts.add(name, **given)


async def stored(database: AnyDatabase, name: str = "reader1") -> dict[str, Any]:
    async with database.reading() as connection:
        return dict((await connection.execute(select(table).where(table.c.name == name))).mappings().one())


async def knows(database: AnyDatabase, account: str, channel_id: int) -> None:
    async with database.writing() as connection:
        row = {"account": account, "channel_id": channel_id, "access_hash": 5}
        await connection.execute(insert(telegram_channels).values(row))


async def known(database: AnyDatabase) -> list[str]:
    async with database.reading() as connection:
        return list((await connection.execute(select(telegram_channels.c.account))).scalars())


async def a_paused_job(jobs: Jobs, target: str, reason: str, **changes: Any) -> Job:
    return await jobs.pause(await jobs.add(a_spec(target, name=target, **changes)), reason)


# What is stored


@pytest.mark.spec("T7")
async def test_an_account_comes_back_as_it_was_stored(accounts: Accounts) -> None:
    added = await add(accounts, tenant_id="acme", user_id="ann", identity=42)

    account = await accounts.get("reader1")

    assert (account.session, account.api_hash, account.api_id) == (a_session(), HASH, 7)
    assert (account.secrets.phone, account.secrets.identity) == (PHONE, 42)
    assert (account.tenant_id, account.user_id, account.state, account.reason) == ("acme", "ann", "active", None)
    assert (account.holder, account.last_used_at) == (None, None)
    assert not added.replaced
    assert added.account == await accounts.show("reader1")


async def test_the_database_holds_no_secret_in_the_clear(accounts: Accounts, database: AnyDatabase) -> None:
    await add(accounts)
    row = await stored(database)
    assert row["phone"] == "+49…678"
    assert not any(secret in str(row) for secret in (a_session(), HASH, PHONE))


async def test_nothing_but_get_gives_a_secret_away(accounts: Accounts) -> None:
    """Neither printing, nor JSON, nor turning an account into a dictionary that is printed."""
    await add(accounts)
    account = await accounts.get("reader1")
    shown = [
        repr(account),
        str(account),
        str(msgspec.structs.asdict(account)),
        msgspec.json.encode(account, enc_hook=str).decode(),
        repr(await accounts.page()),
        repr(list(account.__rich_repr__())),
    ]
    assert not any(secret in text for secret in (a_session(), HASH, PHONE) for text in shown)
    with pytest.raises(TypeError):
        msgspec.json.encode(account)


async def test_a_name_that_is_taken_is_refused_and_nothing_changes(accounts: Accounts, database: AnyDatabase) -> None:
    await add(accounts)
    before = await stored(database)

    with pytest.raises(Conflict, match="already an account 'reader1'") as told:
        await add(accounts, number=2)

    assert "--replace" in told.value.hint
    assert await stored(database) == before


async def test_one_session_cannot_be_stored_under_two_names(accounts: Accounts) -> None:
    """Two workers would open it at once, and the server would end it for good."""
    await add(accounts)

    with pytest.raises(Conflict, match="'reader1' has this session already"):
        await add(accounts, "reader2", session=a_session(port=80))

    assert await accounts.with_session(a_session(port=80)) == "reader1"
    assert await accounts.with_session(a_session(2)) is None
    assert [row.name for row in await accounts.page()] == ["reader1"]


async def test_an_account_that_is_replaced_keeps_its_place(accounts: Accounts) -> None:
    first = await add(accounts)
    await accounts.lease("reader1", holder="a", ttl=TTL)
    await accounts.park("reader1", "revoked")

    second = await add(accounts, number=2, replace=True, tenant_id="acme")

    account = await accounts.get("reader1")
    assert second.replaced
    assert (account.session, account.tenant_id, account.state, account.reason) == (a_session(2), "acme", "active", None)
    assert account.created_at == first.account.created_at
    assert account.holder == "a", "whoever has it open still has"


async def test_one_that_was_stored_with_a_lost_key_can_be_replaced(
    accounts: Accounts, database: AnyDatabase, tmp_path: Path
) -> None:
    await add(accounts)
    renewed = Accounts(database, SystemClock(), Vault("another key of enough length", tmp_path / "key"))

    with pytest.raises(Conflict, match="wrong key"):
        await renewed.get("reader1")
    await add(renewed, replace=True)

    assert (await renewed.get("reader1")).session == a_session()


@pytest.mark.parametrize("name", ["", "a b", "-x", ".x", "ä", "(none)", "a:b", "a/b", "x" * 65, "a\n"])
async def test_a_bad_name_is_refused(accounts: Accounts, name: str) -> None:
    with pytest.raises(InvalidInput, match="cannot be the name of an account") as told:
        await add(accounts, name)
    assert "for example" in told.value.hint
    assert await accounts.page() == []


async def test_an_unknown_name_is_told_what_there_is(accounts: Accounts) -> None:
    with pytest.raises(NotFound, match="there is no account 'reader9'") as nothing:
        await accounts.get("reader9")
    assert "floodmark accounts add" in nothing.value.hint
    await add(accounts)
    for ask in (accounts.get, accounts.show, accounts.remove, accounts.activate):
        with pytest.raises(NotFound) as told:
            await ask("reader9")
        assert told.value.hint == "there are: reader1"


async def test_accounts_are_listed_page_by_page(accounts: Accounts) -> None:
    for number, name in enumerate(("c", "a", "b"), 1):
        await add(accounts, name, number)
    assert [row.name for row in await accounts.page(limit=2)] == ["a", "b"]
    assert [row.name for row in await accounts.page("b", limit=2)] == ["c"]


@pytest.mark.spec("T7")
async def test_a_tenant_uses_its_own_accounts_and_those_of_nobody(accounts: Accounts) -> None:
    for number, (name, tenant) in enumerate({"a": None, "b": "acme", "c": "other", "d": "acme"}.items(), 1):
        await add(accounts, name, number, tenant_id=tenant)
    await accounts.park("d", "revoked")

    assert [row.name for row in await accounts.active("acme")] == ["b", "a"]
    assert {row.name for row in await accounts.active()} == {"a", "b", "c"}


async def test_what_an_account_knows_of_channels_is_the_knowledge_of_one_person(
    accounts: Accounts, database: AnyDatabase
) -> None:
    await add(accounts, identity=42)
    await add(accounts, "reader2", 2, identity=43)
    await knows(database, "reader1", 1)
    await knows(database, "reader2", 1)

    await add(accounts, number=3, identity=42, replace=True)
    assert await known(database) == ["reader1", "reader2"]
    await add(accounts, number=4, identity=44, replace=True)
    assert await known(database) == ["reader2"]


@pytest.mark.parametrize(
    ("phone", "shown"), [(PHONE, "+49…678"), ("+10000000001", "+10…001"), ("12345", "…"), ("", None), (None, None)]
)
def test_a_phone_number_is_shown_in_part(phone: str | None, shown: str | None) -> None:
    assert mask_phone(phone) == shown


# Removing


async def test_an_account_is_removed_with_what_it_knew_and_its_jobs_are_told_of(
    accounts: Accounts, database: AnyDatabase, jobs: Jobs
) -> None:
    await add(accounts)
    await knows(database, "reader1", 1)
    await jobs.add(a_spec("two", name="two", account="reader1"))
    await jobs.add(a_spec("one", name="one", account="reader1"))
    await jobs.add(a_spec("three", name="three"))

    assert await accounts.jobs_of("reader1") == ["one", "two"]
    assert await accounts.remove("reader1") == ["one", "two"]

    assert await accounts.page() == []
    assert await known(database) == []
    assert len(await jobs.find()) == 3


async def test_an_account_in_use_is_not_removed_unless_forced(accounts: Accounts) -> None:
    await add(accounts)
    await accounts.lease("reader1", holder="worker-1", ttl=TTL)

    with pytest.raises(Conflict, match="open in worker-1") as told:
        await accounts.remove("reader1")
    assert "--force" in told.value.hint

    await accounts.remove("reader1", force=True)
    assert not await accounts.lease("reader1", holder="worker-1", ttl=TTL), "so its holder learns of it"


async def test_an_account_whose_holder_fell_silent_can_be_removed(accounts: Accounts) -> None:
    await add(accounts)
    await accounts.lease("reader1", holder="worker-1", ttl=OVER)
    assert await accounts.remove("reader1") == []


# Parking, and going on


async def test_an_account_is_parked_once_and_told_of_once(database: AnyDatabase, vault: Vault) -> None:
    heard: list[AccountParked] = []
    events = Events()
    events.listen(AccountParked, heard.append)
    accounts = Accounts(database, SystemClock(), vault, events)
    await add(accounts)

    assert await accounts.park("reader1", "the session was revoked")
    assert not await accounts.park("reader1", "again")
    assert not await accounts.park("nobody", "not there")

    row = await accounts.show("reader1")
    assert (row.state, row.reason) == ("parked", "the session was revoked")
    assert heard == [AccountParked(account="reader1", reason="the session was revoked")]


async def test_the_failure_of_an_older_session_does_not_park_the_new_one(accounts: Accounts) -> None:
    await add(accounts)
    seen = await accounts.get("reader1")
    await add(accounts, number=2, replace=True)

    assert not await accounts.park("reader1", "revoked", seen=seen)
    assert (await accounts.show("reader1")).state == "active"

    seen = await accounts.get("reader1")
    await accounts.lease("reader1", holder="a", ttl=TTL)
    assert await accounts.park("reader1", "revoked", seen=seen), "a lease is no change of the account"


@pytest.mark.parametrize("how", ["replace", "activate"])
async def test_an_account_that_comes_back_resumes_the_jobs_it_stopped(accounts: Accounts, jobs: Jobs, how: str) -> None:
    await add(accounts)
    await a_paused_job(jobs, "b", "account reader1: the session was revoked")
    await a_paused_job(jobs, "a", "account (none): there is no account yet")
    await a_paused_job(jobs, "c", "account reader10: the session was revoked")
    await a_paused_job(jobs, "d", "lunch")
    await jobs.add(a_spec("e", name="e"))
    await accounts.park("reader1", "the session was revoked")

    added = await add(accounts, number=2, replace=True) if how == "replace" else await accounts.activate("reader1")

    assert added.resumed == ("a", "b")
    assert added.account.state == "active"
    found = {job.name: job for job in await jobs.find()}
    assert [name for name, job in found.items() if job.paused] == ["c", "d"]
    assert found["b"].pause_reason is None
    assert found["b"].version == 3, "made, paused, resumed"
    assert found["b"].next_run is None, "to be planned anew"


async def test_any_account_that_is_added_resumes_jobs_that_had_none(accounts: Accounts, jobs: Jobs) -> None:
    await a_paused_job(jobs, "a", "account (none): there is no account yet")
    await a_paused_job(jobs, "b", "account READER1: capitals are another account")
    assert (await add(accounts)).resumed == ("a",)


async def test_a_refused_account_resumes_nothing(accounts: Accounts, jobs: Jobs) -> None:
    await add(accounts)
    await a_paused_job(jobs, "a", "account (none): there is no account yet")
    with pytest.raises(Conflict):
        await add(accounts, number=2)
    assert (await jobs.get("a")).paused


# One holder at a time


@pytest.mark.spec("T6")
async def test_one_holder_at_a_time(accounts: Accounts) -> None:
    await add(accounts)
    assert await accounts.holder("reader1") is None
    assert await accounts.lease("reader1", holder="a", ttl=TTL)
    assert await accounts.lease("reader1", holder="a", ttl=TTL), "renewed"
    assert not await accounts.lease("reader1", holder="b", ttl=TTL)
    await accounts.release("reader1", holder="b")
    assert await accounts.holder("reader1") == "a"
    row = await accounts.show("reader1")
    assert row.holder == "a"
    assert row.last_used_at is not None

    await accounts.release("reader1", holder="a")

    assert await accounts.holder("reader1") is None
    assert await accounts.lease("reader1", holder="b", ttl=TTL)
    assert not await accounts.lease("nobody", holder="b", ttl=TTL)


@pytest.mark.spec("T6")
async def test_a_silent_holder_is_replaced_and_cannot_give_back_what_is_not_its_own(accounts: Accounts) -> None:
    await add(accounts)
    assert await accounts.lease("reader1", holder="silent", ttl=OVER)
    assert await accounts.holder("reader1") is None
    row = await accounts.show("reader1")
    assert (row.holder, row.lease_until) == (None, None)

    assert await accounts.lease("reader1", holder="next", ttl=TTL)
    await accounts.release("reader1", holder="silent")

    assert await accounts.holder("reader1") == "next"
    assert not await accounts.lease("reader1", holder="silent", ttl=TTL)


async def test_a_parked_account_can_still_be_held_to_test_it(accounts: Accounts) -> None:
    await add(accounts)
    await accounts.park("reader1", "revoked")
    async with accounts.hold("reader1", holder="test", ttl=TTL):
        assert await accounts.holder("reader1") == "test"
        with pytest.raises(Conflict, match="open in test"):
            async with accounts.hold("reader1", holder="other", ttl=TTL):
                pytest.fail("held twice")
    assert await accounts.holder("reader1") is None


async def test_the_clock_of_the_database_counts(database: AnyDatabase, vault: Vault) -> None:
    """A machine with a wrong clock must not take a session that is open elsewhere. SQLite has but one machine."""
    ahead: Clock = SetClock(datetime.now(UTC) + timedelta(hours=1))
    await add(Accounts(database, SystemClock(), vault))
    assert await Accounts(database, SystemClock(), vault).lease("reader1", holder="a", ttl=TTL)

    taken = await Accounts(database, ahead, vault).lease("reader1", holder="b", ttl=TTL)

    assert taken == isinstance(database, SqliteDatabase)


@pytest.mark.spec("T6")
async def test_of_many_who_ask_at_once_one_gets_it(accounts: Accounts) -> None:
    await add(accounts)
    holders = [f"worker-{number}" for number in range(20)]
    won = await asyncio.gather(*(accounts.lease("reader1", holder=holder, ttl=TTL) for holder in holders))
    assert won.count(True) == 1
    assert await accounts.holder("reader1") == holders[won.index(True)]


_RACER = """
import asyncio, sys
from datetime import timedelta
from pathlib import Path
from floodmark.model.clock import SystemClock
from floodmark.sources.telegram.accounts import Accounts
from floodmark.store.database import open_database
from floodmark.observability.events import Events
from floodmark.security.vault import Vault

async def main(url, holder):
    database = open_database(url, events=Events())
    accounts = Accounts(database, SystemClock(), Vault("a key for the tests", Path("unused")))
    await accounts.holder("account-0")
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(20):
        if await accounts.lease(f"account-{number}", holder=holder, ttl=timedelta(minutes=5)):
            print(number)
    await database.close()

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.spec("T6")
async def test_processes_that_race_never_hold_one_session_together(
    accounts: Accounts, database: AnyDatabase, migrated_url: str
) -> None:
    """Two real processes ask for twenty sessions in the same order."""
    await add(accounts, "account-0")
    row = await stored(database, "account-0")
    async with database.writing() as connection:
        await connection.execute(insert(table), [row | {"name": f"account-{number}"} for number in range(1, 20)])
    racers = [
        await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", _RACER, migrated_url, f"racer-{number}"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        for number in range(2)
    ]
    for racer in racers:
        assert racer.stdout
        assert await racer.stdout.readline() == b"ready\n"

    told = [out.split() for out, _ in await asyncio.gather(*(racer.communicate(b"go\n") for racer in racers))]

    assert [racer.returncode for racer in racers] == [0, 0]
    assert sorted(int(number) for numbers in told for number in numbers) == list(range(20)), "each once, none left"
    for racer_number, numbers in enumerate(told):
        for number in numbers:
            assert await accounts.holder(f"account-{number.decode()}") == f"racer-{racer_number}"


async def test_a_row_passed_off_as_another_is_refused(accounts: Accounts, database: AnyDatabase) -> None:
    await add(accounts)
    await add(accounts, "reader2", 2)
    other = (await stored(database, "reader2"))["secrets"]
    async with database.writing() as connection:
        await connection.execute(update(table).where(table.c.name == "reader1").values(secrets=other))

    with pytest.raises(Conflict, match="has been changed, or was stored under another name"):
        await accounts.get("reader1")
    assert isinstance(await accounts.get("reader2"), TelegramAccount)
