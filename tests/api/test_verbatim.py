"""Requests as people bring them along: `curl -d` says nothing of JSON, and no web page can pass for curl."""

from typing import Any

import pytest

from api.serving import Api

# What curl sends along with -d.
CURL = {"Content-Type": "application/x-www-form-urlencoded", "User-Agent": "curl/8.5.0", "Accept": "*/*"}
JOB = '{"source_id":"uuid","url":"https://example.com","schedule_type":"cron","cron_expression":"0 */6 * * *"}'


@pytest.mark.spec("V8", "V13")
@pytest.mark.thorough
async def test_curl_makes_a_job_without_naming_a_type(api: Api) -> None:
    made = await api.post("jobs", content=JOB, headers=CURL)
    assert made.status_code == 201, made.text
    job = made.json()
    told = (job["source_id"], job["url"], job["source"], job["cron_expression"], job["scheduler_version"])
    assert told == ("uuid", "https://example.com", "web", "0 */6 * * *", 2)
    whole = {
        "source_id": "uuid",
        "url": "https://example.com",
        "schedule_type": "cron",
        "cron_expression": "0 */6 * * *",
        "priority": 1,
        "timeout_seconds": 7200,
        "depends_on": [job["job_id"]],
        "trigger_webhook": "/sources/*/crawl",
        "trigger_channel": "content:new",
        "schedule_enabled": True,
    }
    assert (await api.post("jobs", json=whole)).status_code == 201
    for verb in ("pause", "resume", "force-run", "cancel"):
        assert (await api.post(f"jobs/{job['job_id']}/{verb}", headers=CURL)).is_success
    for name in ("health", "workers", "metrics"):
        assert (await api.get(f"scheduler/{name}")).is_success
    for name, pattern in (("webhooks", "/sources/*/crawl"), ("channels", "content:new")):
        listed = (await api.get(f"triggers/{name}")).json()
        assert [(row["pattern"], row["jobs"]) for row in listed["of_jobs"]] == [(pattern, 1)]
    fired = await api.client.post("/api/v2/triggers/webhook/sources/42/crawl", content="a=b&c=d", headers=CURL)
    assert (fired.status_code, fired.json()["matched"]) == (202, 1)


@pytest.mark.spec("V13", "G9")
@pytest.mark.parametrize(
    "page",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors"},
        {"Referer": "https://evil.example/page"},
        {"Referer": "https://127.0.0.1.evil.example/"},
        {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site", "Referer": "https://evil.example/"},
    ],
)
@pytest.mark.parametrize("kind", [CURL["Content-Type"], "application/json", ""])
async def test_a_web_page_cannot_pass_for_curl(light: Api, page: dict[str, Any], kind: str) -> None:
    headers = page | ({"Content-Type": kind} if kind else {})
    assert (await light.post("jobs", content=JOB, headers=headers)).status_code == 403
    assert (await light.get("jobs")).json()["items"] == []


@pytest.mark.spec("V13")
async def test_our_own_pages_name_the_type_of_what_they_send(light: Api) -> None:
    """A form of our own origin is no JSON either: there is none, and a page that was led astray must not make one."""
    own = {"Origin": light.base, "Sec-Fetch-Site": "same-origin"}
    assert (await light.post("jobs", content=JOB, headers=CURL | own)).status_code == 422
    assert (
        await light.post("jobs", content=JOB, headers=own | {"Content-Type": "application/json"})
    ).status_code == 201
    refused = await light.post("jobs", content="a=b", headers=CURL)
    assert (refused.status_code, "not JSON" in refused.text) == (422, True)
