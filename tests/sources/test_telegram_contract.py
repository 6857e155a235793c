"""The Telegram source keeps what every source promises."""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from floodmark.sources.port import Source, Target
from floodmark.sources.telegram.source import TelegramSource
from floodmark.testing.contracts.source import SourceContract
from floodmark.testing.telegram import LoopbackTelegram
from telegram_desk import opened

pytest_plugins = ("backends", "telegram_fixtures")


class TelegramContract(SourceContract):
    @pytest.fixture
    async def source(self, server: LoopbackTelegram, url: str) -> AsyncIterator[Source]:
        # Nothing lingers, so that a run that is left has let go of everything.
        async with opened(server, url, telegram_session_linger=timedelta()) as desk:
            await desk.account()
            async with TelegramSource(desk.resources.settings, desk.services) as made:
                yield made

    @pytest.fixture(params=[{}, {"revisit": "48h"}], ids=["usual", "revisit"])
    def target(self, request: pytest.FixtureRequest) -> Target:
        return Target(name="@harbour", stream="telegram:@harbour", params=request.param)

    @pytest.fixture(params=["t.me/+invitation", "+49170000000", "a b"])
    def nonsense(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)


class TestTelegramOnSqlite(TelegramContract):
    @pytest.fixture
    def url(self, sqlite_copy: str) -> str:
        return sqlite_copy


class TestTelegramOnPostgres(TelegramContract):
    @pytest.fixture
    def target(self) -> Target:
        return Target(name="@harbour", stream="telegram:@harbour", params={"revisit": "48h"})

    @pytest.fixture
    def url(self, pg_clean: str) -> str:
        return pg_clean
