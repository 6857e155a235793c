"""The channels that an account has joined, and jobs for all of them: no name is looked up, no session opened twice."""

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from command_line import CommandLine
from floodmark.errors import AccountLost, Conflict, NotFound, SlowDown
from floodmark.model.audit import Actor
from floodmark.operations.local import LocalOperations
from floodmark.settings import keys
from floodmark.sources.telegram.sessions import Sessions
from floodmark.sources.telegram.tables import accounts, telegram_channels
from floodmark.testing.factories import rows_of
from floodmark.testing.telegram import LoopbackTelegram, TelegramBackend
from telegram_desk import Desk, opened, working

pytest_plugins = ("backends", "telegram_fixtures")
pytestmark = pytest.mark.spec("B9")

SECRET = "a secret key for tests, long enough"


@pytest.fixture(params=["sqlite_copy", "pg_clean"])
def database_url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(request.param))


@pytest.fixture
async def desk(database_url: str, server: LoopbackTelegram) -> AsyncIterator[Desk]:
    async with opened(server, database_url) as made:
        await made.account()
        yield made


@pytest.fixture
async def light(server: LoopbackTelegram, sqlite_copy: str) -> AsyncIterator[Desk]:
    async with opened(server, sqlite_copy) as made:
        await made.account()
        yield made


def operations(desk: Desk, deadline: timedelta | None = None) -> LocalOperations:
    return LocalOperations(desk.resources, Actor(who="ada"), deadline=deadline)


async def test_channels_are_listed_page_by_page_and_stored(
    desk: Desk, server: LoopbackTelegram, backend: TelegramBackend
) -> None:
    for number in range(130):
        backend.channel(f"quay_{number}").fill(1)
    backend.channel(None, title="Private", members=["reader1"]).fill(1)
    backend.channel("elsewhere", members=["other"]).fill(1)
    group = backend.channel("talk")
    group.is_group = True
    group.fill(1)
    found = await operations(desk).joined_channels("reader1")
    assert len(found) == 133
    assert {channel.title for channel in found if channel.is_group} == {"Talk"}
    assert [channel.title for channel in found if channel.username is None] == ["Private"]
    assert len(server.calls(method="messages.getDialogs")) == 2
    stored = await rows_of(desk.resources, telegram_channels)
    assert {row["username"] for row in stored} == {channel.username for channel in found}
    assert [row["holder"] for row in await rows_of(desk.resources, accounts)] == [None]
    # A second time nothing is stored twice, and a name that has moved belongs to its new channel.
    backend.channels[group.channel_id].username = None
    backend.channel("talk", title="New talk").fill(1)
    await operations(desk).joined_channels("reader1")
    named = [row for row in await rows_of(desk.resources, telegram_channels) if row["username"] == "talk"]
    assert [row["title"] for row in named] == ["New talk"]


async def test_a_session_that_another_process_uses_is_not_opened(light: Desk, server: LoopbackTelegram) -> None:
    sessions = Sessions(light.services, ttl=timedelta(seconds=30), linger=timedelta(seconds=30), max_runs=1)
    async with sessions.borrow("reader1"):
        with pytest.raises(Conflict, match="the session of reader1 is open in"):
            await operations(light, timedelta(seconds=0.2)).joined_channels("reader1")
    waiting = asyncio.create_task(operations(light).joined_channels("reader1"))
    # It is idle now: the process that has it open gives it back.
    await sessions.close()
    assert [channel.username for channel in await waiting] == ["harbour"]
    with pytest.raises(NotFound, match="there is no account 'nobody'"):
        await operations(light).joined_channels("nobody")


async def test_a_flood_wait_is_stored_for_all_and_nothing_is_asked_meanwhile(
    light: Desk, server: LoopbackTelegram
) -> None:
    server.flood("messages.getDialogs", seconds=300)
    for _ in range(2):
        with pytest.raises(SlowDown, match="FloodWait on account reader1"):
            await operations(light).joined_channels("reader1")
    assert len(server.calls(method="messages.getDialogs")) == 1
    assert [limit.key for limit in await operations(light).limits()] == ["telegram:reader1:messages.getDialogs"]


async def test_a_parked_account_is_not_used(light: Desk, server: LoopbackTelegram) -> None:
    await light.services.accounts.park("reader1", "it was banned")
    with pytest.raises(AccountLost, match="it was banned"):
        await operations(light).joined_channels("reader1")
    assert server.connections == 0


@pytest.fixture
def cli(sqlite_copy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CommandLine]:
    for key in keys():
        monkeypatch.delenv(key, raising=False)
    monkeypatch.chdir(tmp_path)
    path = list(sys.path)
    yield CommandLine(tmp_path, FLOODMARK_SECRET_KEY=SECRET, DATABASE_URL=sqlite_copy)
    sys.path[:] = path


@pytest.mark.thorough
def test_the_channels_of_an_account_are_added_after_a_preview(cli: CommandLine) -> None:
    backend = TelegramBackend(seed=7)
    backend.account("reader1")
    for name in ("harbour", "pier", "quay"):
        backend.channel(name).fill(1)
    backend.channel(None, title="Harbour staff", members=["reader1"]).fill(1)
    group = backend.channel("talk")
    group.is_group = True
    group.fill(1)
    with LoopbackTelegram.thread(backend) as server:
        options = ("--session", server.session("reader1"), "--api-id", "1", "--api-hash", "hash", "--tenant", "acme")
        cli.good("accounts", "add", "reader1", *options)
        cli.refused("add", "telegram", "--dialogs", "reader1", says="this would add 4 jobs: ")
        assert cli.good("ls", "--json").json == []
        some = cli.good("add", "telegram", "--dialogs", "reader1", "--match", "*[Hh]arbour*", "--every", "1m", "--yes")
        assert "Added 2 jobs" in some.out
        cli.good("add", "telegram", "--dialogs", "reader1", "--groups", "--match", "@*", "--yes")
        added = cli.good("ls", "--json").json
        assert {job["account"] for job in added} == {"reader1"}
        assert {job["tenant_id"] for job in added} == {"acme"}
        assert sorted(job["target"] for job in added) == ["1500000004", "@harbour", "@pier", "@quay", "@talk"]
        cli.refused("add", "telegram", "--dialogs", "nobody", says="there is no account 'nobody'")
        assert server.duplicates == []
        assert server.calls(method="contacts.resolveUsername") == []


@pytest.mark.thorough
async def test_a_run_of_such_a_job_looks_up_no_name(server: LoopbackTelegram, sqlite_copy: str) -> None:
    async with working(server, sqlite_copy) as desk:
        await desk.account()
        await operations(desk).joined_channels("reader1")
        job = await desk.job("@harbour", account="reader1")
        assert (await desk.run(job)).state == "done"
    assert server.calls(method="contacts.resolveUsername") == []
