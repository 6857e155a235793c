"""The OpenAPI document, and the processes that serve what it tells of."""

import json
from pathlib import Path
from typing import Any

import httpx2
import pytest
from typer.testing import CliRunner

from api.serving import document
from floodmark.app import Floodmark
from floodmark.cli import app as cli
from floodmark.errors import InvalidInput
from floodmark.settings import Settings
from floodmark.testing.serving import served

V8 = {
    "/api/v2/jobs": {"get", "post"},
    "/api/v2/jobs/{job_id}": {"get", "put", "patch", "delete"},
    "/api/v2/jobs/{job_id}/pause": {"post"},
    "/api/v2/jobs/{job_id}/resume": {"post"},
    "/api/v2/jobs/{job_id}/cancel": {"post"},
    "/api/v2/jobs/{job_id}/force-run": {"post"},
    "/api/v2/scheduler/health": {"get"},
    "/api/v2/scheduler/workers": {"get"},
    "/api/v2/scheduler/metrics": {"get"},
    "/api/v2/scheduler/drain": {"post"},
    "/api/v2/scheduler/resume": {"post"},
}


@pytest.mark.spec("V8")
def test_everything_that_was_asked_for_is_there() -> None:
    paths = document()["paths"]
    assert {path: set(paths[path]) for path in V8} == V8


def test_every_operation_is_described(subtests: pytest.Subtests) -> None:
    # Not parametrized: every process of a run would have to build the document in order to collect the tests.
    for path, operations in document()["paths"].items():
        for method, operation in operations.items():
            with subtests.test(f"{method.upper()} {path}"):
                check_description(operation)


def check_description(operation: dict[str, Any]) -> None:
    assert operation["summary"]
    assert operation["description"]
    assert operation["tags"]
    good = [told for status, told in operation["responses"].items() if status < "300"]
    assert all(told["content"] for told in good)
    assert {"400", "401", "500", "503"} <= operation["responses"].keys()
    for parameter in operation.get("parameters", ()):
        assert parameter["description"], parameter["name"]


@pytest.mark.thorough
def test_the_document_is_printed_without_a_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    printed = CliRunner().invoke(cli, ["openapi"])
    assert printed.exit_code == 0
    assert json.loads(printed.stdout) == json.loads(json.dumps(document()))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.spec("V8", "T8")
@pytest.mark.parametrize(
    ("scheduler", "worker", "has_api"), [(True, True, True), (False, False, True), (True, False, False)]
)
async def test_each_role_serves_what_it_should(sqlite_url: str, scheduler: bool, worker: bool, has_api: bool) -> None:
    app = Floodmark(Settings(database_url=sqlite_url, host="127.0.0.1"))
    async with (
        served(app, scheduler=scheduler, worker=worker) as (_, url),
        httpx2.AsyncClient(base_url=url, timeout=120, trust_env=False, verify=False) as client,
    ):
        assert (await client.get("/api/v2/jobs")).status_code == (200 if has_api else 404)
        assert (await client.get("/health/ready")).status_code == 200
        assert (await client.get("/health/live")).json() == {"status": "ok"}
        assert (await client.get("/metrics")).status_code == 200


@pytest.mark.spec("G9")
async def test_the_api_is_not_served_to_others_without_a_token(sqlite_url: str) -> None:
    app = Floodmark(Settings(database_url=sqlite_url, host="0.0.0.0"))
    with pytest.raises(InvalidInput, match="without a token"):
        await app.serve(scheduler=False, worker=False, port=0)
