"""One session, one process: leases, max_runs, and what is done before a lease runs out."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import update
from telethon.tl.functions.help import GetConfigRequest

from floodmark.errors import AccountLost, Permanent, SlowDown
from floodmark.security.vault import Vault
from floodmark.sources.telegram.accounts import Accounts
from floodmark.sources.telegram.sessions import Sessions
from floodmark.sources.telegram.tables import accounts
from floodmark.testing.eventually import eventually
from floodmark.testing.factories import rows_of
from floodmark.testing.telegram import LoopbackTelegram
from telegram_desk import Desk, opened

pytest_plugins = ("backends", "telegram_fixtures")

TTL, LINGER = timedelta(seconds=30), timedelta(seconds=30)


@pytest.fixture
async def desk(server: LoopbackTelegram, sqlite_copy: str) -> AsyncIterator[Desk]:
    async with opened(server, sqlite_copy) as made:
        await made.account()
        yield made


def sessions_of(desk: Desk, *, ttl: timedelta = TTL, linger: timedelta = LINGER, max_runs: int = 4) -> Sessions:
    return Sessions(desk.services, ttl=ttl, linger=linger, max_runs=max_runs)


async def holder(desk: Desk) -> Any:
    [row] = await rows_of(desk.resources, accounts)
    return row["holder"]


async def test_a_session_is_shared_lingers_and_is_given_back(desk: Desk, server: LoopbackTelegram) -> None:
    sessions = sessions_of(desk)
    async with sessions.borrow("reader1") as first, sessions.borrow("reader1") as second:
        assert first is second
        await first.call("help.getConfig", GetConfigRequest(), target="")
        assert await holder(desk) == desk.resources.name
    async with sessions.borrow("reader1") as third:
        assert third is first
    assert server.connections == 1
    await sessions.close()
    assert await holder(desk) is None


async def test_an_idle_session_is_closed_after_a_while(desk: Desk) -> None:
    sessions = sessions_of(desk, linger=timedelta(seconds=0.05))
    async with sessions.borrow("reader1"):
        pass

    async def is_free() -> bool:
        return await holder(desk) is None

    await eventually(is_free)
    await sessions.close()


@pytest.mark.spec("T5")
async def test_so_many_runs_at_once_and_no_more(desk: Desk) -> None:
    sessions = sessions_of(desk, max_runs=2, linger=timedelta())
    async with sessions.borrow("reader1"), sessions.borrow("reader1"):
        assert (await sessions.load(["reader1"])).runs == {"reader1": 2}
        pauses = []
        for _ in range(5):
            with pytest.raises(SlowDown, match="account reader1 is busy: 2 channels are being read on it") as told:
                async with sessions.borrow("reader1"):
                    pass
            assert told.value.key is None
            pauses.append(told.value.after)
        assert pauses == sorted(pauses)
        assert pauses[0] < pauses[-1]
    async with sessions.borrow("reader1"):
        pass


@pytest.mark.spec("T6")
async def test_a_session_that_is_open_elsewhere_is_not_opened(desk: Desk, server: LoopbackTelegram) -> None:
    await desk.services.accounts.lease("reader1", holder="another-host", ttl=TTL)
    sessions = sessions_of(desk)
    with pytest.raises(SlowDown, match="the session of account reader1 is open in another-host"):
        async with sessions.borrow("reader1"):
            pass
    assert server.connections == 0
    assert await holder(desk) == "another-host"


@pytest.mark.spec("T6")
@pytest.mark.parametrize("turns", [0, 1, 3])
async def test_closing_that_is_interrupted_leaves_no_connection_open(
    desk: Desk, server: LoopbackTelegram, turns: int
) -> None:
    """The next session would be the second one of its account."""
    sessions = sessions_of(desk)
    async with sessions.borrow("reader1") as session:
        await session.call("help.getConfig", GetConfigRequest(), target="")
        closing = asyncio.create_task(session.close())
        for _ in range(turns):
            await asyncio.sleep(0)
        closing.cancel()
        await session.close()
        await eventually(lambda: server.connected("reader1") == [])
        with suppress(asyncio.CancelledError):
            await closing
    await sessions.close()


async def test_a_lease_that_was_taken_away_closes_the_session(desk: Desk, server: LoopbackTelegram) -> None:
    sessions = sessions_of(desk, ttl=timedelta(seconds=6))
    async with sessions.borrow("reader1") as session:
        async with desk.resources.database.writing() as connection:
            await connection.execute(update(accounts).values(holder="another-host"))

        async def is_lost() -> bool:
            return session.is_lost

        await eventually(is_lost)
        with pytest.raises(SlowDown, match="could not be renewed"):
            await session.call("help.getConfig", GetConfigRequest(), target="")
    await sessions.close()
    # It was not ours to give back.
    assert await holder(desk) == "another-host"


class _Unreachable(Accounts):
    """Accounts in a database that goes away once the lease is had."""

    is_away = False

    async def lease(self, name: str, *, holder: str, ttl: timedelta) -> bool:
        if self.is_away:
            await asyncio.Event().wait()
        return await super().lease(name, holder=holder, ttl=ttl)


async def test_a_database_that_is_away_closes_the_session_before_the_lease_ends(desk: Desk) -> None:
    from msgspec.structs import replace

    store = _Unreachable(desk.resources.database, desk.resources.clock, Vault.of(desk.resources.settings))
    sessions = Sessions(replace(desk.services, accounts=store), ttl=timedelta(seconds=9), linger=LINGER, max_runs=4)
    async with sessions.borrow("reader1") as session:
        store.is_away = True

        async def is_lost() -> bool:
            return session.is_lost

        await eventually(is_lost)
        # Nobody else can have it yet.
        assert not await Accounts.lease(store, "reader1", holder="another-host", ttl=TTL)
    await sessions.close()


async def test_who_waits_for_an_answer_when_the_session_closes_is_told(desk: Desk, server: LoopbackTelegram) -> None:
    server.hang(method="help.getNearestDc", times=None)
    from telethon.tl.functions.help import GetNearestDcRequest

    sessions = sessions_of(desk)
    async with sessions.borrow("reader1") as session:
        waiting = asyncio.create_task(session.call("help.getNearestDc", GetNearestDcRequest(), target=""))

        async def has_arrived() -> bool:
            return bool(server.calls("help.getNearestDc"))

        await eventually(has_arrived)
        session.is_lost = True
        await session.close()
        with pytest.raises(SlowDown):
            await waiting
    await sessions.close()


async def test_accounts_that_cannot_be_used_are_told(desk: Desk, server: LoopbackTelegram) -> None:
    sessions = sessions_of(desk)
    await desk.services.accounts.park("reader1", "the session was logged out")
    with pytest.raises(AccountLost, match="the session was logged out"):
        async with sessions.borrow("reader1"):
            pass
    with pytest.raises(AccountLost, match="there is no such account"):
        async with sessions.borrow("nobody"):
            pass
    assert await holder(desk) is None
    assert server.connections == 0


async def test_a_process_without_the_key_does_not_blame_the_account(
    desk: Desk, server: LoopbackTelegram, sqlite_copy: str
) -> None:
    async with opened(server, sqlite_copy, floodmark_secret_key="another key than the one it was stored with") as other:
        sessions = sessions_of(other)
        with pytest.raises(Permanent) as refused:
            async with sessions.borrow("reader1"):
                pass
        assert "FLOODMARK_SECRET_KEY" in refused.value.hint
    [row] = await rows_of(desk.resources, accounts)
    assert (row["state"], row["holder"]) == ("active", None)
