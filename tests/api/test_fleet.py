"""Health, workers, limits, breakers, audit and what else concerns the whole installation."""

from datetime import UTC, datetime, timedelta

import pytest

from api.serving import Api
from floodmark.operations.health import scheduler_status
from floodmark.outbound.breakers import Breakers
from floodmark.repositories.fleet import FleetRepository, Tick
from floodmark.rules.breaker import Breaker, BreakerState

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.mark.spec("T8")
@pytest.mark.parametrize(
    ("age", "status"), [(0, "ok"), (10, "ok"), (10.1, "stale"), (25, "stale"), (25.1, "down"), (None, "down")]
)
def test_the_scheduler_is_judged_by_the_age_of_its_last_tick(age: float | None, status: str) -> None:
    tick = None if age is None else Tick(at=NOON - timedelta(seconds=age), holder="a", interval=5)
    assert scheduler_status(tick, NOON) == status


@pytest.mark.spec("T8", "V8")
async def test_health_tells_of_the_scheduler_the_stores_and_the_workers(api: Api) -> None:
    found = (await api.get("/health/details")).json()
    assert found["scheduler"] == {"last_tick_ts": None, "interval_sec": None, "lock_owner": None, "status": "down"}
    assert (found["status"], found["database"], found["redis"]) == ("down", "ok", "not configured")
    assert len(found["problems"]) == 2

    fleet = FleetRepository(api.resources.database, api.resources.clock)
    await api.resources.leases.acquire(
        api.resources.settings.scheduler_leader_key, holder="one", ttl=timedelta(seconds=30)
    )
    await fleet.tick("one", timedelta(seconds=5))
    await fleet.record_presence(
        "one", role="worker", hostname="h", pid=1, slots=4, busy=1, draining=False, ttl=timedelta(seconds=30)
    )

    for path in ("/health/details", "scheduler/health"):
        found = (await api.get(path)).json()
        assert found["status"] == "ok"
        assert set(found["scheduler"]) == {"last_tick_ts", "interval_sec", "lock_owner", "status"}
        assert (found["scheduler"]["status"], found["scheduler"]["lock_owner"]) == ("ok", "one")
        assert [(worker["worker"], worker["alive"], worker["leader"]) for worker in found["workers"]] == [
            ("one", True, True)
        ]
        assert found["problems"] == []
    brief = await api.get("/health")
    assert (brief.status_code, brief.json()["workers"], brief.json()["scheduler"]["status"]) == (200, 1, "ok")


@pytest.mark.spec("V8", "V9")
async def test_workers_are_listed_drained_and_resumed(api: Api) -> None:
    await api.job()
    await api.post("jobs/news/force-run")
    assert (await api.post("scheduler/drain")).json() == {"draining": True}
    assert (await api.get("scheduler/workers")).json()["draining"] is True
    assert (await api.post("scheduler/resume")).json() == {"draining": False}
    found = (await api.get("scheduler/metrics")).json()
    assert sum(found["queue_depth"].values()) == 1
    assert (found["last_day"]["total_executions"], found["draining"]) == (1, False)
    metrics = await api.get("/metrics")
    assert metrics.status_code == 200
    assert metrics.headers["content-type"].startswith("text/plain")


async def test_limits_are_set_shown_and_lifted(api: Api) -> None:
    assert (await api.delete("limits/host:a")).status_code == 404
    made = await api.put("limits/host:a%2Fb", json={"seconds": 600, "reason": "maintenance"})
    assert (made.json()["key"], made.json()["reason"]) == ("host:a/b", "maintenance")
    assert [row["key"] for row in (await api.get("limits")).json()["items"]] == ["host:a/b"]
    assert (await api.delete("limits/host:a%2Fb")).json()["reason"] == "maintenance"
    assert (await api.get("limits", params={"past": "true"})).json()["items"] == []
    assert (await api.put("limits/x", json={"seconds": 0, "reason": "no"})).status_code == 422


async def test_breakers_are_shown_and_closed(api: Api) -> None:
    breakers = Breakers(api.resources.database, api.resources.clock)
    until = api.resources.clock.now() + timedelta(minutes=5)
    await breakers.change("web:a", lambda _, now: Breaker(state=BreakerState.OPEN, open_until=until, trips=1))
    assert [row["state"] for row in (await api.get("breakers")).json()["items"]] == ["open"]
    assert (await api.post("breakers/web:a/reset")).json()["state"] == "open"
    assert [row["state"] for row in (await api.get("breakers")).json()["items"]] == ["closed"]
    assert (await api.post("breakers/web:b/reset")).status_code == 404


async def test_the_audit_tells_who_changed_what_by_request(api: Api) -> None:
    await api.post("jobs", json={"name": "a", "source": "python", "target": "a:b"}, headers={"X-Request-ID": "r-1"})
    await api.patch("jobs/a", json={"priority": 1}, headers={"X-Request-ID": "r-2"})
    found = (await api.get("audit", params={"what": "job:a", "limit": 1})).json()
    row = found["items"][0]
    assert (row["action"], row["request_id"], row["who"], row["via"]) == ("job.changed", "r-2", "local", "api")
    assert (row["before"], row["after"]) == ({"priority": 2}, {"priority": 1})
    rest = (await api.get("audit", params={"what": "job:a", "cursor": found["next"]})).json()
    assert [row["request_id"] for row in rest["items"]] == ["r-1"]
    assert (await api.get("accounts")).json() == {"items": [], "next": None}


async def test_a_job_is_explained_and_its_runs_are_foretold(light: Api) -> None:
    await light.job("night", cron_expression="30 2 * * *", interval_seconds=None, timezone="Europe/Berlin")
    assert (await light.get("jobs/night/explain")).json()["code"] == "no_leader"
    runs = (await light.get("jobs/night/next", params={"count": 400})).json()
    assert len(runs["runs"]) == 400
    assert {run["clock_change"] for run in runs["runs"]} == {None, "clocks went forward 1 h", "clocks went back 1 h"}

    typed = (await light.get("next", params={"cron": "0 6 * * *", "timezone": "Asia/Tokyo", "count": 2})).json()
    assert [run["local"][10:] for run in typed["runs"]] == ["T06:00:00+09:00"] * 2
    for query in ({"cron": "99 * * * *"}, {"cron": "* * * * *", "timezone": "Nowhere/Else"}):
        refused = await light.get("next", params=query)
        assert (refused.status_code, bool(refused.json()["hint"])) == (400, True)
    assert (await light.get("next")).status_code == 422
