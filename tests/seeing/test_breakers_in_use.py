"""`breaker_state` is shown from the start of a process, before anything has failed."""

from datetime import timedelta

import pytest

from floodmark import Floodmark
from floodmark.outbound.breakers import Breakers
from floodmark.rules.breaker import Breaker, BreakerState
from floodmark.settings import Settings
from floodmark.testing.eventually import eventually
from floodmark.testing.serving import served
from floodmark.testing.telegram import LoopbackTelegram, TelegramBackend
from floodmark.testing.web import Site
from floodmark.wiring.resources import Resources, open_resources
from telegram_desk import QUICK, Desk

pytest_plugins = ("backends", "telegram_fixtures")
pytestmark = pytest.mark.spec("F7", "F8")


def state(resources: Resources, component: str) -> float | None:
    return resources.registry.get_sample_value("breaker_state", {"component": component})


@pytest.mark.parametrize("scheduler", [True, False], ids=["up", "worker"])
async def test_the_breakers_of_accounts_and_domains_are_closed_before_the_first_failure(
    server: LoopbackTelegram, backend: TelegramBackend, sqlite_copy: str, *, scheduler: bool
) -> None:
    settings = Settings(**{"database_url": sqlite_copy, **QUICK, **Site.settings("a.test")})
    async with open_resources(settings) as resources:
        await Desk(resources, server).account()
        backend.account("reader2")
        await Desk(resources, server).account("reader2")
        # Left open by a process that is gone.
        await Breakers(resources.database, resources.clock).change(
            "telegram:reader2",
            lambda _, now: Breaker(state=BreakerState.OPEN, open_until=now + timedelta(hours=1), trips=1),
        )
    async with Site() as site, served(Floodmark(settings), scheduler=scheduler) as (resources, _):
        await eventually(lambda: state(resources, "telegram:reader1") == 0)
        assert state(resources, "telegram:reader2") == 1, "what is stored is shown, not what a new breaker would be"

        backend.account("reader3")
        desk = Desk(resources, server)
        await desk.account("reader3")
        assert state(resources, "telegram:reader3") is None
        execution_id = await desk.ask(await desk.job(account="reader3"))
        await desk.reaches(execution_id, "done")
        assert state(resources, "telegram:reader3") == 0

        site.page("/", "A page")
        await resources.polite.get(f"http://a.test:{site.port}/")
        assert state(resources, f"web:a.test:{site.port}") == 0
        domain = {"domain": f"a.test:{site.port}"}
        assert resources.registry.get_sample_value("crawler_scheduler_circuit_breaker_state", domain) == 0
