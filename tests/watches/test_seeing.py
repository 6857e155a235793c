"""What goes wrong with watches is seen: in metrics, by the doctor and in the health."""

import pytest
from prometheus_client import CollectorRegistry
from sqlalchemy import update

from floodmark.observability.metrics import Metrics, render
from floodmark.operations.doctor import doctor_of
from floodmark.operations.health import health_of
from floodmark.store.tables import consumers
from floodmark.testing.clock import SetClock
from floodmark.watches.tables import watch_channels
from watches.desk import HOUR, WatchDesk

pytestmark = pytest.mark.spec("B8")


def measured(metrics: Metrics) -> dict[str, float]:
    lines = [line.rpartition(" ") for line in render(metrics.registry).decode().splitlines() if "_watch_" in line]
    return {name: float(value) for name, _, value in lines if not name.startswith("#")}


async def test_metrics_count_events_matches_and_back_fill(light: WatchDesk) -> None:
    metrics = Metrics(CollectorRegistry(), 10)
    metrics.attach(light.resources.events)
    await light.watch("fire", name="fires")
    await light.collect("fire 1", "rain 1", job="new")
    await light.collect("fire 2", "fire 3")
    await light.evaluate()
    found = measured(metrics)
    assert found["floodmark_watch_events_total"] == 4
    assert found['floodmark_watch_matches_total{result="matched"}'] == 2
    assert found['floodmark_watch_matches_total{result="suppressed"}'] == 1
    assert found["floodmark_watch_lag_seconds"] > 0
    await light.evaluate()
    assert measured(metrics)["floodmark_watch_lag_seconds"] == 0, "there is nothing more to read"


@pytest.mark.thorough
async def test_the_doctor_and_the_health_name_what_fails(timed: WatchDesk, clock: SetClock) -> None:
    doctor = doctor_of(timed.resources)

    async def findings() -> list[tuple[bool, str]]:
        return [(one.ok, one.text) for one in await doctor.check() if one.code == "watches"]

    async def problems() -> list[str]:
        return [text for text in (await health_of(timed.resources))["problems"] if "watches" in text]

    assert await findings() == []
    await timed.watch("fire", name="fires")
    assert await findings() == [(True, "1 watch is evaluated, and all channels work")]
    timed.receiver.refuse("/hook", 503)
    await timed.collect("fire 1")
    for _ in range(3):
        await timed.work()
        assert await problems() == [] or _ == 2
        clock.advance(HOUR)
    assert await findings() == [(False, "1 message cannot be sent over webhook: 127.0.0.1 answered 503: ok")]
    assert await problems() == ["watches cannot notify over webhook: 127.0.0.1 answered 503: ok"]
    timed.receiver.refused.clear()
    await timed.work()
    assert [ok for ok, _ in await findings()] == [True]
    async with timed.resources.database.writing() as connection:
        await connection.execute(update(watch_channels).values(channel="pager"))
        await connection.execute(update(consumers).values(position=-20_000))
    assert [text for _, text in await findings()] == [
        "the channel pager of the watch fires is not configured; its matches wait",
        "watches are 20,001 events behind",
    ]
