"""Budgets and adaptive jobs over HTTP, and as a row that was written with SQL."""

import pytest
from sqlalchemy import insert

from api.serving import Api
from floodmark.client import Client
from floodmark.store.tables import jobs


@pytest.mark.spec("B2", "V8")
@pytest.mark.thorough
async def test_a_budget_is_set_shown_listed_and_removed(api: Api) -> None:
    made = await api.put("budgets/news", json={"requests": 30, "max_delay_seconds": 3600})
    assert made.status_code == 200
    row = made.json()
    assert (row["requests"], row["period"], row["max_delay_seconds"], row["version"]) == (30, "minute", 3600, 1)
    assert (await api.get("budgets/news")).json() == row
    changed = (await api.put("budgets/news", json={"requests": 9000, "period": "week", "fairness": 0.5})).json()
    assert (changed["period"], changed["max_delay_seconds"], changed["fairness"]) == ("week", None, 0.5)
    await api.put("budgets/alarms", json={"requests": 1})
    first = (await api.get("budgets", params={"limit": 1})).json()
    assert [one["name"] for one in first["items"]] == ["alarms"]
    rest = (await api.get("budgets", params={"cursor": first["next"]})).json()
    assert [one["name"] for one in rest["items"]] == ["news"]

    assert (await api.delete("budgets/news")).json()["version"] == 2
    assert (await api.get("budgets/news")).status_code == 404
    audit = (await api.get("audit")).json()["items"]
    assert [entry["action"] for entry in reversed(audit)] == ["budget.set"] * 3 + ["budget.removed"]
    assert audit[2]["before"]["requests"] == 30
    assert audit[2]["after"]["requests"] == 9000


@pytest.mark.spec("B2", "G9")
async def test_bad_budgets_are_refused(light: Api) -> None:
    bodies = [{}, {"requests": 0}, {"requests": 5e-324}, {"requests": 1_000_001}, {"requests": 1, "period": "day"}]
    bodies += [{"requests": 1, "fairness": 2}, {"requests": 1, "max_delay_seconds": 0}, {"requests": 1, "burst": 2}]
    for body in bodies:
        assert (await light.put("budgets/news", json=body)).status_code == 422, body
    assert (await light.put("budgets/a%20b", json={"requests": 1})).status_code == 400
    assert (await light.get("budgets")).json()["items"] == []


@pytest.mark.spec("B1", "T14", "V8")
@pytest.mark.thorough
async def test_a_job_becomes_adaptive_and_an_interval_job_again(api: Api) -> None:
    made = await api.job(schedule_type="adaptive", interval_seconds=None, max_delay_seconds=3600, weight=2)
    assert (made["schedule_type"], made["budget"], made["max_delay_seconds"], made["weight"]) == (
        "adaptive",
        "default",
        3600,
        2,
    )
    back = (await api.patch("jobs/news", json={"interval_seconds": 60})).json()
    assert (back["schedule_type"], back["interval_seconds"], back["budget"]) == ("interval", 60, None)
    again = (await api.patch("jobs/news", json={"schedule_type": "adaptive"})).json()
    assert (again["schedule_type"], again["interval_seconds"], again["budget"]) == ("adaptive", None, "default")
    assert (await api.get("jobs/news/next")).json()["runs"] == []

    refused = await api.patch("jobs/news", json={"budget": "news"})
    assert (refused.status_code, refused.json()["detail"]) == (400, "there is no budget 'news'")
    await api.put("budgets/news", json={"requests": 30})
    assert (await api.patch("jobs/news", json={"budget": "news"})).json()["budget"] == "news"
    used = await api.delete("budgets/news")
    assert (used.status_code, used.json()["detail"]) == (409, "the budget news is used by news")


@pytest.mark.spec("B1", "T14")
async def test_an_adaptive_row_of_sql_is_a_job(api: Api) -> None:
    row = {"name": "by-hand", "source": "python", "target": "feeds:news", "schedule_type": "adaptive"}
    async with api.resources.database.writing() as connection:
        await connection.execute(insert(jobs).values(row))
    job = (await api.get("jobs/by-hand")).json()
    assert (job["schedule_type"], job["weight"], job["invalid_reason"]) == ("adaptive", 1, None)
    changed = (await api.patch("jobs/by-hand", json={"weight": 3})).json()
    assert (changed["weight"], changed["budget"]) == (3, "default")


@pytest.mark.spec("B1", "B2")
async def test_an_imported_job_may_be_adaptive(light: Api) -> None:
    job = {"name": "moved", "source": "python", "target": "feeds:news", "schedule_type": "adaptive"}
    refused = await light.post("import-jobs", json={"jobs": [{"job": {**job, "budget": "news"}}], "dry_run": True})
    assert (refused.status_code, refused.json()["detail"]) == (400, "there is no budget 'news'")
    assert (await light.post("import-jobs", json={"jobs": [{"job": job}], "dry_run": True})).status_code == 200
    assert (await light.get("budgets")).json()["items"] == []
    assert (await light.post("import-jobs", json={"jobs": [{"job": job}]})).status_code == 200
    assert (await light.get("jobs/moved")).json()["budget"] == "default"
    assert [row["name"] for row in (await light.get("budgets")).json()["items"]] == ["default"]


@pytest.mark.spec("B2", "V8")
async def test_the_client_sets_budgets(light: Api) -> None:
    async with Client(light.base) as client:
        row = await client.set_budget("news", 100, "week")
        assert [found async for found in client.each_budget()] == [row]
        assert await client.budget("news") == row
        assert (await client.remove_budget("news")).requests == 100


@pytest.mark.spec("B4", "V8")
async def test_freshness_is_read_over_http(light: Api) -> None:
    await light.put("budgets/news", json={"requests": 30})
    await light.job(schedule_type="adaptive", interval_seconds=None, budget="news")
    found = (await light.get("freshness", params={"budget": "news"})).json()
    assert [(one["name"], one["last_poll"]) for one in found["sources"]] == [("news", None)]
    assert [(one["sources"], one["never_polled"], one["gain"]) for one in found["budgets"]] == [(1, 1, None)]
    assert found["next"] is None
    assert (await light.get("freshness", params={"budget": "nwes"})).status_code == 404
    assert (await light.get("freshness", params={"limit": 0})).status_code == 422
