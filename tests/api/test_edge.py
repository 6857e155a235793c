"""What every request meets: an id, bounds, a look at where it comes from, and problems that say what to change."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from sqlalchemy import text
from structlog.testing import capture_logs

from api.serving import Api, served, serving
from floodmark.api.edge import Edge
from floodmark.api.server import HttpServer
from floodmark.testing.factories import Opened

JSON = {"Content-Type": "application/json"}


@pytest.mark.spec("G9")
async def test_a_request_keeps_its_id_if_that_is_sane(light: Api) -> None:
    with capture_logs() as logs:
        kept = await light.get("jobs", headers={"X-Request-ID": "deploy-17.4"})
    assert kept.headers["x-request-id"] == "deploy-17.4"
    assert [line["path"] for line in logs if line["event"] == "request"] == ["/api/v2/jobs"]
    for odd in ("a b", "x" * 65, 'id"; drop'):
        made = (await light.get("jobs", headers={"X-Request-ID": odd})).headers["x-request-id"]
        assert made != odd
        assert len(made) == 16
    refused = await light.get("jobs/none", headers={"X-Request-ID": "r-1"})
    assert refused.json()["request_id"] == "r-1"


@pytest.mark.spec("G9")
@pytest.mark.parametrize(
    ("body", "field", "told"),
    [
        (b"{", "body", "not JSON"),
        (b'{"name": NaN}', "body", "not JSON"),
        (b'{"name": "\\ud800"}', "body", "not JSON"),
        (b'{"params": {"a": ["\\u0000"]}}', "body", "NUL"),
        (b'{"params": ' + b"[" * 100_000, "body", "nested too deeply"),
        (b'{"params": {"a": ' + b"[" * 500 + b"]" * 500 + b"}}", "body", "nested too deeply"),
        (b'{"params": {"a": ' + b"[" * 31 + b"]" * 31 + b"}}", "body", "nested too deeply"),
        (b"[]", "body", "object"),
        (b'{"priority": "1"}', "body.priority", "1, 2 or 3"),
        (b'{"priority": true}', "body.priority", "1, 2 or 3"),
        (b'{"nmae": "a"}', "body.nmae", "no such field"),
        (b'{"retry_max": -1}', "body.retry_max", "greater than or equal to 0"),
        (b'{"name": ""}', "body.name", "at least 1 character"),
    ],
)
async def test_a_body_that_makes_no_sense_is_refused_by_field(light: Api, body: bytes, field: str, told: str) -> None:
    refused = await light.post("jobs", content=body, headers=JSON)
    assert refused.status_code == 422
    assert refused.headers["content-type"] == "application/problem+json"
    problem = refused.json()
    assert problem["errors"][0]["field"] == field
    assert told in problem["detail"]


@pytest.mark.spec("G9")
@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"source": "python"}, "target is missing"),
        ({"interval_seconds": 60}, "source is missing"),
        ({"source": "python", "target": "a:b", "cron_expression": "x"}, "cron"),
        (
            {"source": "python", "target": "a:b", "cron_expression": "* * * * *", "interval_seconds": 5},
            "cron or interval",
        ),
        ({"source": "python", "target": "a:b", "schedule_type": "calendar"}, "frequency is missing"),
        ({"source": "python", "target": "a:b", "timezone": "Mars/Base"}, "Mars/Base"),
        ({"source": "python", "target": "a:b", "tenant_id": " a"}, "space"),
        ({"source": "telegram", "target": "???"}, "???"),
    ],
)
async def test_a_job_that_makes_no_sense_is_refused_with_a_hint(light: Api, body: Any, told: str) -> None:
    refused = await light.post("jobs", json=body)
    assert refused.status_code == 400
    assert told in refused.json()["detail"]
    assert refused.json()["hint"]
    assert (await light.get("jobs")).json()["items"] == []


@pytest.mark.spec("G9")
@pytest.mark.thorough
async def test_whatever_is_not_there_is_told_as_a_problem(light: Api) -> None:
    for path in ("/nowhere", "nothing", "jobs/", "//api/v2/jobs"):
        missing = await light.get(path)
        assert (missing.status_code, missing.json()["type"]) == (404, "urn:floodmark:not-found")
    wrong = await light.patch("jobs")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "GET, POST")
    assert wrong.json()["hint"] == "use GET, POST"
    await light.job("news")
    close = await light.get("jobs/newz")
    assert (close.status_code, "news" in close.json()["hint"]) == (404, True)
    for path in ("jobs/%00", "jobs?text=%00"):
        assert (await light.get(path)).status_code == 400
    await light.job("news-2")
    assert (await light.get("jobs/new")).status_code == 400
    plain = await light.post("jobs", content=b"{}", headers={"Content-Type": "application/xml"})
    assert (plain.status_code, "Content-Type" in plain.json()["detail"]) == (422, True)


@pytest.mark.spec("G9")
async def test_a_body_is_bounded_whether_it_tells_its_length_or_not(sqlite: Opened) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(64):
            yield b" " * 1024

    async with serving(sqlite, api_body_max=10_000) as api:
        told = await api.post("jobs", content=b" " * 10_001, headers=JSON)
        chunked = await api.post("jobs", content=chunks(), headers=JSON)
        assert (told.status_code, chunked.status_code) == (413, 413)
        assert told.json()["type"] == chunked.json()["type"] == "urn:floodmark:too-large"
        assert (await api.get("jobs")).status_code == 200


async def test_a_request_that_takes_too_long_is_ended() -> None:
    async def never(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await asyncio.Event().wait()

    edge = Edge(never, body_max=100, seconds=0.01)
    async with (
        HttpServer(edge) as server,
        httpx2.AsyncClient(base_url=server.url, timeout=120, trust_env=False, verify=False) as client,
    ):
        answer = await client.get("/api/v2/jobs")
    assert (answer.status_code, answer.json()["type"]) == (503, "urn:floodmark:too-slow")


async def test_what_nobody_expected_is_told_without_its_secrets() -> None:
    async def broken(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            raise RuntimeError("postgresql://user:hunter2@host")

    async with (
        HttpServer(Edge(broken, body_max=100)) as server,
        httpx2.AsyncClient(base_url=server.url, timeout=120, trust_env=False, verify=False) as client,
    ):
        with capture_logs() as logs:
            answer = await client.get("/x", headers={"X-Request-ID": "r-9"})
    assert (answer.status_code, answer.json()["request_id"]) == (500, "r-9")
    assert "hunter2" not in answer.text
    assert "request failed" in [line["event"] for line in logs]


@pytest.mark.spec("G9")
async def test_a_web_page_of_another_origin_can_change_nothing(light: Api) -> None:
    await light.job()
    for headers in ({"Origin": "https://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}):
        refused = await light.post("jobs/news/force-run", headers=headers)
        assert refused.status_code == 403
    assert (await light.get("executions")).json()["items"] == []
    own = await light.post("jobs/news/force-run", headers={"Origin": light.base, "Sec-Fetch-Site": "same-origin"})
    assert own.status_code == 202
    assert (
        "access-control-allow-origin" not in (await light.get("jobs", headers={"Origin": "https://a.example"})).headers
    )


async def test_origins_that_are_named_may_use_the_api(sqlite: Opened) -> None:
    async with serving(sqlite, api_cors_origins="https://a.example, https://b.example") as api:
        await api.job()
        headers = {"Origin": "https://b.example"}
        allowed = await api.post("jobs/news/pause", headers=headers)
        assert allowed.status_code == 200
        assert allowed.headers["access-control-allow-origin"] == "https://b.example"
        asked = {**headers, "Access-Control-Request-Method": "PATCH", "Access-Control-Request-Headers": "If-Match"}
        preflight = await api.client.options("/api/v2/jobs/news", headers=asked)
        assert preflight.status_code == 200
        assert (await api.post("jobs/news/pause", headers={"Origin": "https://c.example"})).status_code == 403


async def test_every_answer_has_the_headers_that_keep_browsers_in_check(light: Api) -> None:
    for path in ("jobs", "nothing", "/health"):
        headers = (await light.get(path)).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "server" not in headers


@pytest.mark.spec("G9")
async def test_a_database_that_fails_is_told_as_unavailable(sqlite: Opened) -> None:
    async with sqlite() as resources, served(resources) as api:
        async with resources.database.writing() as connection:
            await connection.execute(text("ALTER TABLE limits RENAME TO gone"))
        failed = await api.get("limits")
        assert (failed.status_code, failed.json()["type"]) == (503, "urn:floodmark:unavailable")
        assert "gone" not in failed.text
        assert (await api.get("/health/ready")).status_code == 200


async def test_what_can_be_read_can_be_asked_for_without_its_body(light: Api) -> None:
    for path in ("/health/live", "/api/v2/jobs"):
        found = await light.client.head(path)
        assert (found.status_code, found.content) == (200, b"")
        assert int(found.headers["content-length"]) > 0


async def test_names_may_hold_slashes_and_per_cent_signs(api: Api) -> None:
    made = await api.job("a/b%2Fc d")
    assert (await api.get("jobs/a%2Fb%252Fc%20d")).json()["job_id"] == made["job_id"]
    assert (await api.post("jobs/a%2Fb%252Fc%20d/pause")).json()["paused"] is True
