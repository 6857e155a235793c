"""What the leader counts and measures, over HTTP: minutes, days, the freshness map, the last freshness report."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import insert

from api.serving import Api
from floodmark.model.batch import PollResult
from floodmark.operations.overview import OverviewReader
from floodmark.repositories.freshness import FreshnessReader
from floodmark.rules.measures import Measures, encode_measures, record
from floodmark.rules.minutes import begin_of_minute
from floodmark.runtime.scheduler_role import SchedulerRole
from floodmark.store.tables import activity, budgets, minutes, stream_days, watermarks
from floodmark.testing.factories import given_job

pytestmark = pytest.mark.spec("B10", "V8")

HOUR = timedelta(hours=1)


async def put(api: Api, table: Any, *rows: dict[str, Any]) -> None:
    async with api.resources.database.writing() as connection:
        await connection.execute(insert(table), list(rows))


async def test_minutes_and_days_are_read_by_anyone(api: Api) -> None:
    now = begin_of_minute(datetime.now(UTC))
    await put(api, minutes, {"minute": now - HOUR, "done": 4, "items_new": 9, "created": 4, "counted_at": now})
    report = (await api.get("minutes")).json()
    assert (report["step_minutes"], len(report["rows"])) == (1, 360)
    assert sum(row["done"] for row in report["rows"]) == 4
    assert (await api.get("minutes", params={"hours": 672})).json()["step_minutes"] == 120
    assert (await api.get("minutes", params={"hours": 700})).status_code == 422

    today = now.date()
    await put(
        api,
        stream_days,
        *({"stream": "a/b", "day": today - timedelta(days=n), "new": n, "changed": 1} for n in (3, 2, 0)),
    )
    await put(api, watermarks, {"stream": "a/b", "fence": 1})
    days = (await api.get("streams/a%2Fb/days")).json()["items"]
    assert [(day["day"], day["new"]) for day in days] == [(f"{today - timedelta(days=n)}", n) for n in (3, 2, 0)]
    since = f"{today - timedelta(days=2)}"
    assert len((await api.get("streams/a%2Fb/days", params={"since": since, "until": since})).json()["items"]) == 1
    assert (await api.get("streams/a%2Fb/days", params={"since": "yesterday"})).status_code == 422
    assert (await api.get("streams/nothing/days")).status_code == 404


async def test_the_map_has_the_latest_sources_first_and_counts_the_others(api: Api) -> None:
    assert (await api.get("freshness/map")).json()["measured_at"] is None
    now = datetime.now(UTC)
    usual = {"schedule_type": "interval", "interval_seconds": 3600.0, "source": "web", "created_at": now - 100 * HOUR}
    checked = {"fresh": 1, "behind": 1.8, "late": 5, "gone": 50}
    for name, hours in checked.items():
        await given_job(api.resources, name=name, tags=["de", name], stream=name, **usual)
        await put(api, watermarks, {"stream": name, "fence": 1, "last_checked_at": now - hours * HOUR})
    await given_job(api.resources, name="never", **{**usual, "created_at": now, "source": "feed"})
    await given_job(api.resources, name="asleep", paused=True, **usual)

    await OverviewReader(api.resources.database, api.resources.clock, api.resources.repositories).measure()

    found = (await api.get("freshness/map")).json()
    levels = {cell["name"]: cell["level"] for cell in found["cells"]}
    assert list(levels.items()) == [
        ("gone", "very_late"),
        ("late", "late"),
        ("behind", "behind"),
        ("fresh", "fresh"),
        ("never", "new"),
        ("asleep", "off"),
    ]
    assert found["jobs"] == 6
    kinds = {kind["name"]: kind["levels"] for kind in found["kinds"]}
    assert kinds == {"feed": {"new": 1}, "web": {"very_late": 1, "late": 1, "behind": 1, "fresh": 1, "off": 1}}
    assert (found["tags"][0]["name"], found["tags"][0]["jobs"]) == ("de", 4)
    assert [tag["name"] for tag in found["tags"][1:3]] == ["gone", "late"]
    assert found["cells"][0]["usual_seconds"] == 3600


async def test_the_last_freshness_report_is_read_at_once(api: Api) -> None:
    now = datetime.now(UTC)
    usual = {"interval_seconds": 1.0, "next_free": now, "sources": 3, "requests": 60}
    await put(api, budgets, *({"name": name, **usual} for name in ("a", "b")))
    for number, delay in enumerate((10.0, 500.0, 3.0)):
        job_id = await given_job(
            api.resources, name=f"job-{number}", schedule_type="adaptive", budget="b" if number else "a"
        )
        first = Measures((now - HOUR).timestamp(), polls=1, requests=1)
        known = record(first, PollResult(found=1, expected=1, delays=(delay,)), now=now.timestamp(), polls=1)
        await put(api, activity, {"job_id": job_id, "measured": encode_measures(known), "polled_at": now})
    nothing = (await api.get("freshness", params={"measured": True})).json()
    assert (nothing["budgets"], nothing["sources"], nothing["measured_at"]) == ([], [], None)

    await FreshnessReader(api.resources.database, api.resources.clock).measure()

    stored = (await api.get("freshness", params={"measured": True})).json()
    fresh = (await api.get("freshness")).json()
    assert [row["name"] for row in stored["sources"]] == ["job-1", "job-0", "job-2"]
    assert [row["name"] for row in stored["sources"]] == [row["name"] for row in fresh["sources"]]
    assert [row["name"] for row in stored["budgets"]] == ["a", "b"]
    assert stored["measured_at"] is not None
    assert fresh["measured_at"] is None
    one = (await api.get("freshness", params={"measured": True, "budget": "b", "limit": 1})).json()
    assert ([row["name"] for row in one["sources"]], [row["name"] for row in one["budgets"]]) == (["job-1"], ["b"])
    more = {"measured": True, "budget": "b", "limit": 1, "cursor": one["next"]}
    assert [row["name"] for row in (await api.get("freshness", params=more)).json()["sources"]] == ["job-2"]


async def test_settings_are_listed_for_admins_without_secrets(light: Api) -> None:
    found = {row["key"]: row for row in (await light.get("settings")).json()["items"]}
    assert found["HOSTNAME"] == {**found["HOSTNAME"], "value": "test", "origin": "code"}
    assert found["SCHEDULER_LEADER_TTL"]["origin"] == "default"
    assert found["SCHEDULER_LEADER_TTL"]["help"]
    minted = (await light.post("tokens", json={"name": "op", "role": "operate"})).json()["token"]
    headers = {"Authorization": f"Bearer {minted}"}
    assert (await light.get("settings", headers=headers)).status_code == 403


@pytest.mark.thorough
async def test_the_services_of_the_leader_count_and_measure(api: Api) -> None:
    """As the scheduler runs them."""
    role = SchedulerRole(api.resources)
    await role.leader.step()
    await role.measure()
    for service in role.services:
        if service.name in ("minutes", "days", "freshness"):
            await service.step()
    assert (await api.get("minutes")).json()["counted_at"] is not None
    assert (await api.get("freshness/map")).json()["measured_at"] is not None
    assert (await api.get("overview")).json()["failures"] == []
