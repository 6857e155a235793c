"""Which worker reads a channel, and when a session moves to another worker."""

from collections import Counter
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from floodmark.model.execution import Lease
from floodmark.rules.partition import choose_owner
from floodmark.sources.telegram.channels import KnownChannel
from floodmark.sources.telegram.sessions import Sessions, scope_of
from floodmark.sources.telegram.source import TelegramSource
from floodmark.testing.eventually import eventually
from floodmark.testing.factories import a_job, a_lease
from floodmark.testing.telegram import LoopbackTelegram, TelegramBackend
from telegram_desk import Desk, opened

pytest_plugins = ("backends", "telegram_fixtures")
pytestmark = pytest.mark.spec("T15")

ACCOUNTS = ("reader1", "reader2", "reader3", "reader4")
TTL, LINGER = timedelta(seconds=30), timedelta(seconds=30)


@pytest.fixture
async def desk(backend: TelegramBackend, server: LoopbackTelegram, sqlite_copy: str) -> AsyncIterator[Desk]:
    """Four accounts, and three workers of which this process is one."""
    async with opened(server, sqlite_copy) as made:
        for name in ACCOUNTS:
            if name != "reader1":
                backend.account(name)
            await made.account(name, tenant_id="acme" if name == "reader4" else None)
        made.resources.partition.update([made.resources.name, "worker-b", "worker-c"])
        yield made


def a_run(target: str = "@harbour", watermark: Any = None, **fields: Any) -> Lease:
    return a_lease(a_job(source="telegram", target=target, **fields), watermark=watermark)


async def preferred(desk: Desk, *runs: Lease) -> list[str | None]:
    source = TelegramSource(desk.resources.settings, desk.services)
    return list(await source.preferred_workers(runs))


def owner(desk: Desk, account: str) -> str | None:
    return choose_owner(scope_of(account), desk.resources.partition.workers)


async def test_a_named_account_decides(desk: Desk) -> None:
    runs = [a_run(f"@channel_{number}", account=name) for number, name in enumerate(ACCOUNTS)]
    assert await preferred(desk, *runs) == [owner(desk, name) for name in ACCOUNTS]
    # Its run explains what is wrong; it may do so anywhere.
    assert await preferred(desk, a_run(account="nobody")) == [None]


async def test_the_worker_with_the_open_session_comes_before_the_owner(desk: Desk) -> None:
    for holder in ("worker-b", "worker-c", desk.resources.name):
        assert await desk.services.accounts.lease("reader1", holder=holder, ttl=TTL)
        assert await preferred(desk, a_run(account="reader1")) == [holder]
        await desk.services.accounts.release("reader1", holder=holder)
    # A command has it open for a moment, or a worker that is dead.
    assert await desk.services.accounts.lease("reader1", holder="not a worker", ttl=TTL)
    assert await preferred(desk, a_run(account="reader1")) == [owner(desk, "reader1")]


async def test_the_account_that_knows_the_channel_decides(desk: Desk) -> None:
    for number, name in enumerate(ACCOUNTS):
        known = KnownChannel(account=name, channel_id=100 + number, access_hash=1, username=f"Channel_{number}")
        await desk.services.channels.store(known)
    expected = [owner(desk, name) for name in ACCOUNTS]
    assert await preferred(desk, *(a_run(f"@channel_{number}") for number in range(4))) == expected
    assert await preferred(desk, *(a_run(f"{100 + number}") for number in range(4))) == expected
    # A renamed channel is known by its id.
    renamed = [a_run("@old_name", {"channel": 100 + number}) for number in range(4)]
    assert await preferred(desk, *renamed) == expected


async def test_new_channels_are_spread_over_the_accounts_of_their_tenant(desk: Desk) -> None:
    workers = (desk.resources.name, "worker-b", "worker-c")
    for name, worker in zip(ACCOUNTS, workers, strict=False):
        assert await desk.services.accounts.lease(name, holder=worker, ttl=TTL)
    runs = [a_run(f"@channel_{number}", tenant_id="other") for number in range(30)]
    together = Counter(await preferred(desk, *runs))
    # No run has ended yet: each seems to be the first.
    apart = Counter([(await preferred(desk, run))[0] for run in runs])
    for found in (together, apart):
        assert set(found) == set(workers)
        assert min(found.values()) >= 5, found


async def test_a_job_that_is_not_valid_is_run_anywhere(desk: Desk) -> None:
    assert await preferred(desk, a_run("no channel"), a_run(watermark="not a mark")) == [None, None]


async def held(desk: Desk) -> str | None:
    return await desk.services.accounts.holder("reader1")


async def test_a_session_is_closed_when_it_belongs_to_a_worker_that_joined(desk: Desk) -> None:
    """At once if it is idle, otherwise after its last run."""
    me, partition = desk.resources.name, desk.resources.partition
    partition.update([me])
    sessions = Sessions(desk.services, ttl=TTL, linger=LINGER, max_runs=4)

    async def is_free() -> bool:
        return await held(desk) is None

    for _ in range(2):
        async with sessions.borrow("reader1"), sessions.borrow("reader2"):
            pass
        assert await held(desk) == me
        partition.update(["other"])
        await eventually(is_free)
        partition.update([me])

    async with sessions.borrow("reader1"):
        async with sessions.borrow("reader1"):
            partition.update(["other"])
        assert await held(desk) == me
    assert await held(desk) is None
    await sessions.close()


async def test_a_session_that_stays_with_its_worker_stays_open(desk: Desk, server: LoopbackTelegram) -> None:
    """Workers join and leave, and it still belongs to this one."""
    me, partition = desk.resources.name, desk.resources.partition
    others = [name for name in map(str, range(100)) if choose_owner(scope_of("reader1"), [me, name]) == me]
    sessions = Sessions(desk.services, ttl=TTL, linger=LINGER, max_runs=4)
    for workers in ([me], [me, *others[:3]], [me, *others[1:4]], [me]):
        partition.update(workers)
        async with sessions.borrow("reader1"):
            assert await held(desk) == me
    assert server.connections == 1
    await sessions.close()
