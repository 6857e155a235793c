"""The high-water mark of a channel exists while a run is unfinished, and so does its age."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from floodmark.model.batch import Batch, Item
from floodmark.model.outcome import Done
from floodmark.observability.metrics import render
from floodmark.operations.health import health_of
from floodmark.runtime.scheduler_role import SchedulerRole
from floodmark.settings import Settings
from floodmark.testing.factories import given_executions, given_job, settle, take
from floodmark.wiring.resources import Resources, open_resources

pytest_plugins = ("backends",)


@pytest.fixture(params=["sqlite_copy", "pg_clean"])
def url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(request.param))


@pytest.fixture
async def resources(url: str) -> AsyncIterator[Resources]:
    async with open_resources(Settings(database_url=url, hostname="telethon-ingest-1")) as opened:
        yield opened


async def shown(resources: Resources, role: SchedulerRole) -> list[str]:
    await role.measure()
    lines = render(resources.registry).decode().splitlines()
    return [line for line in lines if line.startswith(("parser_hwm_age_seconds{", "floodmark_channel_info{"))]


@pytest.mark.spec("T3", "T9", "T10")
@pytest.mark.thorough
async def test_a_quiet_channel_has_no_high_water_mark(resources: Resources) -> None:
    role = SchedulerRole(resources, is_alone=True)
    await role.leader.step()
    long_ago = datetime.now(UTC) - timedelta(days=400)
    quiet = await given_job(resources, name="quiet", source="telegram", target="@harbour")
    await given_executions(resources, [quiet])
    [lease] = await take(resources)
    post = Item(key="1:1", data={"text": "old"}, occurred_at=long_ago)
    await resources.keeping.keep(lease, Batch([post], {"channel": 1001, "id": 1}))

    age, name = await shown(resources, role)
    assert age.startswith('parser_hwm_age_seconds{channel_id="1001"}')
    assert float(age.split()[1]) < 60, "the post is old; the mark was moved just now"
    assert name == 'floodmark_channel_info{channel="@harbour",channel_id="1001"} 1.0'

    await settle(resources, lease, Done())
    assert await shown(resources, role) == [], "whatever the age of its newest post"
    await role.leader.resign()


@pytest.mark.spec("T8")
async def test_health_and_alert_mean_the_same_tick(resources: Resources) -> None:
    role = SchedulerRole(resources, is_alone=True)
    await role.leader.step()
    await role.scheduler.step()
    await role.tick()
    scheduler = (await health_of(resources))["scheduler"]
    assert (scheduler["interval_sec"], scheduler["lock_owner"], scheduler["status"]) == (60, "telethon-ingest-1", "ok")
    ticked = resources.registry.get_sample_value("scheduler_last_tick_ts_seconds")
    assert scheduler["last_tick_ts"].timestamp() == ticked
    await role.leader.resign()
