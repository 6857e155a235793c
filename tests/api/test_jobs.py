"""Jobs over HTTP, by the names of the requirements."""

import asyncio

import pytest

from api.serving import Api


@pytest.mark.spec("V8", "V7")
async def test_a_job_is_made_shown_replaced_and_removed(api: Api) -> None:
    made = await api.post(
        "jobs",
        json={
            "name": "news",
            "source": "python",
            "target": "feeds:news",
            "schedule_type": "cron",
            "cron_expression": "*/15 * * * *",
            "priority": 1,
            "timeout_seconds": 60,
            "source_id": "src-4",
            "url": "https://example.org/news",
            "trigger_webhook": "/sources/*/crawl",
            "trigger_channel": "content:new",
            "schedule_enabled": True,
        },
    )
    assert made.status_code == 201
    job = made.json()
    assert (job["name"], job["priority"], job["cron_expression"]) == ("news", 1, "*/15 * * * *")
    assert made.headers["location"] == f"/api/v2/jobs/{job['job_id']}"
    assert made.headers["etag"] == '"1"'

    shown = await api.get(f"jobs/{job['job_id']}")
    assert (shown.status_code, shown.json()["name"]) == (200, "news")
    assert (await api.get("jobs/news")).json()["job_id"] == job["job_id"]

    replaced = await api.put("jobs/news", json={"source": "python", "target": "feeds:news", "interval_seconds": 60})
    assert replaced.status_code == 200
    after = replaced.json()
    assert (after["name"], after["schedule_type"], after["interval_seconds"]) == ("news", "interval", 60)
    assert (after["priority"], after["source_id"], after["cron_expression"]) == (2, None, None)

    gone = await api.delete("jobs/news")
    assert (gone.status_code, gone.json()["job_id"]) == (200, job["job_id"])
    assert (await api.get("jobs/news")).status_code == 404


@pytest.mark.spec("V8", "T13")
async def test_a_job_is_paused_resumed_run_and_cancelled(api: Api) -> None:
    await api.job()
    paused = await api.post("jobs/news/pause", json={"reason": "too loud"})
    assert (paused.json()["paused"], paused.json()["pause_reason"]) == (True, "too loud")
    assert (await api.post("jobs/news/pause")).json()["pause_reason"] is None
    assert (await api.post("jobs/news/resume")).json()["paused"] is False

    ran = await api.post("jobs/news/force-run", json={"params": {"depth": 2}})
    assert ran.status_code == 202
    assert ran.headers["location"] == f"/api/v2/executions/{ran.json()['execution_id']}"
    assert "waits for execution" in (await api.post("jobs/news/force-run")).json()["reason"]
    assert (await api.post("jobs/news/cancel")).json() == {"cancelled": 2}


async def test_part_of_a_job_is_changed_and_the_rest_stays(api: Api) -> None:
    await api.job(tags=["a"], domain="example.org")
    changed = await api.patch("jobs/news", json={"priority": 1, "domain": None})
    assert changed.status_code == 200
    job = changed.json()
    assert (job["priority"], job["domain"], job["tags"], job["interval_seconds"]) == (1, None, ["a"], 900)
    other = (await api.patch("jobs/news", json={"cron_expression": "0 6 * * *"})).json()
    assert (other["schedule_type"], other["interval_seconds"]) == ("cron", None)


@pytest.mark.spec("G9")
async def test_a_change_of_something_that_was_changed_is_refused(api: Api) -> None:
    job = await api.job()
    first = await api.patch("jobs/news", json={"priority": 1}, headers={"If-Match": '"1"'})
    assert (first.status_code, first.headers["etag"]) == (200, '"2"')

    for method, body in (("PATCH", {"priority": 3}), ("PUT", {"source": "python", "target": "x"}), ("DELETE", None)):
        stale = await api.ask(method, "jobs/news", json=body, headers={"If-Match": '"1"'})
        assert stale.status_code == 412
        assert stale.json()["type"] == "urn:floodmark:stale"
    assert (await api.get("jobs/news")).json()["priority"] == 1

    assert (await api.delete("jobs/news", headers={"If-Match": '"7", "2"'})).status_code == 200
    assert job["version"] == 1


async def test_of_many_guarded_changes_at_once_one_wins(api: Api) -> None:
    await api.job()
    answers = await asyncio.gather(
        *(api.patch("jobs/news", json={"retry_max": n}, headers={"If-Match": '"1"'}) for n in range(10, 20))
    )
    assert sorted(answer.status_code for answer in answers) == [200] + [412] * 9


@pytest.mark.spec("E3", "V8")
@pytest.mark.thorough
async def test_jobs_are_listed_in_pages_and_by_filter(api: Api) -> None:
    for number in range(5):
        await api.job(f"job-{number}", domain="a.org" if number % 2 else "b.org", priority=number % 3 + 1, tags=["t"])
    await api.job("paused", domain_config_id="cfg-1")
    await api.post("jobs/paused/pause")
    await api.job("disabled", schedule_enabled=False, url="https://example.org/deep")

    async def names(**query: object) -> list[str]:
        found = await api.get("jobs", params=query)
        assert found.status_code == 200
        return [job["name"] for job in found.json()["items"]]

    first = (await api.get("jobs", params={"limit": 3})).json()
    second = (await api.get("jobs", params={"limit": 3, "cursor": first["next"]})).json()
    third = (await api.get("jobs", params={"limit": 3, "cursor": second["next"]})).json()
    assert [job["name"] for part in (first, second, third) for job in part["items"]] == await names()
    assert third["next"] is None
    assert await names(domain="a.org") == ["job-1", "job-3"]
    assert await names(priority=3, tag="t") == ["job-2"]
    assert await names(domain_config_id="cfg-1") == ["paused"] == await names(state="paused")
    assert await names(state="disabled") == ["disabled"] == await names(text="DEEP")
    assert len(await names(state="active", kind="python")) == 5
    assert await names(kind="telegram") == []
    assert await names(enabled="false") == ["disabled"]
    assert await names(paused="false", enabled="false") == ["disabled"]
    assert "paused" not in await names(paused="false")
    assert await names(stale="true", kind="python") == []
    assert await names(stale="false", enabled="false") == ["disabled"]
    contradiction = await api.get("jobs", params={"state": "active", "paused": "true"})
    assert contradiction.status_code == 400


@pytest.mark.spec("G9")
@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("limit=0", "query.limit"),
        ("priority=9", "query.priority"),
        ("stat=paused", "query.stat"),
        ("state=", "query.state"),
    ],
)
async def test_a_filter_that_makes_no_sense_is_refused(light: Api, query: str, field: str) -> None:
    refused = await light.get(f"jobs?{query}")
    assert refused.status_code == 422
    assert refused.headers["content-type"] == "application/problem+json"
    assert [error["field"] for error in refused.json()["errors"]] == [field]


@pytest.mark.spec("G9")
@pytest.mark.parametrize("cursor", ["x", "!!", "WyJqb2JzIl0", "bnVsbA", "WyJpdGVtcyIsImEiXQ"])
async def test_a_cursor_that_is_none_is_refused(light: Api, cursor: str) -> None:
    refused = await light.get("jobs", params={"cursor": cursor})
    assert refused.status_code == 400
    assert "cursor" in refused.json()["detail"]


@pytest.mark.spec("G9")
@pytest.mark.thorough
async def test_sql_in_names_and_filters_is_only_text(api: Api) -> None:
    """Whatever is said finds what is called so, changes nothing else, and is never part of a statement."""
    await api.job("bystander", domain="a.org", tags=["t"])
    texts = [
        "' OR '1'='1",
        "'; DROP TABLE jobs; --",
        '" OR ""="',
        "%' OR 1=1 --",
        "x') UNION SELECT 1 --",
        "{0} $1 :a ?",
    ]
    for text in texts:
        await api.job(text, domain=text.replace("/", ""), tags=[text], target="feeds:news")
    for text in texts:
        for name in ("tag", "domain", "text"):
            found = await api.get("jobs", params={name: text})
            assert found.status_code == 200
            assert [job["name"] for job in found.json()["items"]] == [text], (name, text)
        for name in ("kind", "domain_config_id", "cursor", "state", "priority", "limit"):
            found = await api.get("jobs", params={name: text})
            assert found.status_code in {400, 422} or found.json()["items"] == [], (name, text)
    assert len((await api.get("jobs")).json()["items"]) == len(texts) + 1
