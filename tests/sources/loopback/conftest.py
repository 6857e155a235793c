"""A loopback Telegram with one channel and one account, and the real client to read it with."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import Any

import pytest
from telethon import TelegramClient
from telethon.sessions import StringSession

from floodmark.testing.telegram import Channel, LoopbackTelegram, TelegramBackend

START = datetime(2026, 5, 1, tzinfo=UTC)

Connect = Callable[..., Awaitable[Any]]


@pytest.fixture(autouse=True)
def no_config_of_another_server() -> None:
    """Telethon keeps the first server's list of data centres on the class, for every client after it."""
    TelegramClient._config = None


@pytest.fixture
def backend() -> TelegramBackend:
    made = TelegramBackend(seed=7)
    made.account("reader1", phone="+1 000 000 0001", code="24680")
    return made


@pytest.fixture
def channel(backend: TelegramBackend) -> Channel:
    made = backend.channel("harbour", title="Harbour News")
    made.fill(250, start=START, gaps=0.1)
    return made


@pytest.fixture
async def server(backend: TelegramBackend) -> AsyncIterator[LoopbackTelegram]:
    async with LoopbackTelegram(backend) as made:
        yield made


@pytest.fixture
async def connect(server: LoopbackTelegram) -> AsyncIterator[Connect]:
    """Connect a client: `await connect("reader1", flood_sleep_threshold=0)`."""
    async with AsyncExitStack() as stack:

        async def connected(account: str = "reader1", session: Any = None, **options: Any) -> Any:
            used = StringSession(server.session(account)) if session is None else session
            client = TelegramClient(used, 1, "hash", **{"flood_sleep_threshold": 0, "retry_delay": 0, **options})
            stack.push_async_callback(client.disconnect)
            await client.connect()
            return client

        yield connected
