"""A loopback Telegram for tests: `pytest_plugins = ("backends", "telegram_fixtures")`.

backend, channel, server      one channel of 250 posts in 50 hours and the account `reader1`, on a real socket
"""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
from telethon import TelegramClient

from floodmark.testing.telegram import Channel, LoopbackTelegram, TelegramBackend


@pytest.fixture
def no_config_of_another_server() -> None:
    """Telethon keeps the first server's list of data centres on the class, for every client after it."""
    TelegramClient._config = None


@pytest.fixture
def backend() -> TelegramBackend:
    made = TelegramBackend(seed=7)
    made.account("reader1")
    return made


@pytest.fixture
def channel(backend: TelegramBackend) -> Channel:
    made = backend.channel("harbour", title="Harbour News")
    made.fill(250, start=datetime.now(UTC) - timedelta(hours=50), every=timedelta(minutes=10), gaps=0.1)
    return made


@pytest.fixture
async def server(
    backend: TelegramBackend, channel: Channel, no_config_of_another_server: None
) -> AsyncIterator[LoopbackTelegram]:
    async with LoopbackTelegram(backend, forbid_duplicates=True) as made:
        yield made
        assert made.duplicates == [], "a session was used twice"
