"""The endpoints that were asked for by name: each is documented, and each does what its name says."""

from typing import Any

import pytest
from msgspec import Struct

from api.serving import Api, document
from floodmark.settings import Settings

JOB = {"name": "tides", "source": "python", "target": "feeds:tides", "interval_seconds": 900}


class Endpoint(Struct, frozen=True):
    """One that was asked for, how it is asked, and what the answer has to say."""

    name: str
    status: int
    says: dict[str, Any]
    body: Any = None

    @property
    def method(self) -> str:
        return self.name.partition(" ")[0]

    @property
    def path(self) -> str:
        """As the document writes it."""
        return self.name.partition(" ")[2].replace(":id", "{job_id}").replace(":path", "{path}")

    @property
    def url(self) -> str:
        """Where it is asked: of a job that is there."""
        return self.name.partition(" ")[2].replace(":id", "news").replace(":path", "tides")


ENDPOINTS = [
    Endpoint("POST /api/v2/jobs", 201, {"name": "tides", "schedule_type": "interval"}, JOB),
    Endpoint("GET /api/v2/jobs", 200, {"next": None}),
    Endpoint("GET /api/v2/jobs/:id", 200, {"name": "news", "paused": False}),
    Endpoint("PUT /api/v2/jobs/:id", 200, {"name": "tides", "target": "feeds:tides", "version": 2}, JOB),
    Endpoint("DELETE /api/v2/jobs/:id", 200, {"name": "news"}),
    Endpoint("POST /api/v2/jobs/:id/pause", 200, {"paused": True, "pause_reason": "storm"}, {"reason": "storm"}),
    Endpoint("POST /api/v2/jobs/:id/resume", 200, {"paused": False}),
    Endpoint("POST /api/v2/jobs/:id/cancel", 200, {"cancelled": 1}),
    Endpoint("POST /api/v2/jobs/:id/force-run", 202, {"reason": None}),
    Endpoint("GET /api/v2/scheduler/health", 200, {"status": "down", "database": "ok"}),
    Endpoint("GET /api/v2/scheduler/workers", 200, {"draining": False, "workers": []}),
    Endpoint("GET /api/v2/scheduler/metrics", 200, {"queue_depth": {"high": 0, "normal": 1, "low": 0}}),
    Endpoint("POST /api/v2/scheduler/drain", 200, {"draining": True}),
    Endpoint("POST /api/v2/scheduler/resume", 200, {"draining": False}),
    Endpoint("POST /api/v2/triggers/webhook", 202, {"matched": 1}, {"path": "/tides"}),
    Endpoint("POST /api/v2/triggers/webhook/:path", 202, {"matched": 1}),
    Endpoint("GET /api/v2/triggers/status", 200, {"triggers": []}),
    Endpoint("GET /api/v2/triggers/webhooks", 200, {"items": [], "next": None}),
    Endpoint("GET /api/v2/triggers/channels", 200, {"items": [], "next": None}),
    Endpoint("POST /api/v2/triggers/webhooks", 201, {"kind": "webhook", "pattern": "/a/*"}, {"pattern": "/a/*"}),
    Endpoint("POST /api/v2/triggers/channels", 201, {"kind": "channel", "pattern": "a:*"}, {"pattern": "a:*"}),
]


@pytest.mark.spec("V8")
@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=[endpoint.name for endpoint in ENDPOINTS])
@pytest.mark.thorough
async def test_the_endpoint_is_there_and_does_what_it_should(api: Api, endpoint: Endpoint) -> None:
    operation = document()["paths"].get(endpoint.path, {}).get(endpoint.method.lower())
    assert operation is not None, f"{endpoint.method} {endpoint.path} is not in the document"
    assert str(endpoint.status) in operation["responses"]

    await api.job(trigger_webhook="/tides")
    if not endpoint.name.endswith("force-run"):
        await api.post("jobs/news/force-run")
    found = await api.ask(endpoint.method, endpoint.url, json=endpoint.body)
    told = found.json()
    assert found.status_code == endpoint.status, told
    assert {name: told[name] for name in endpoint.says} == endpoint.says


@pytest.mark.spec("V8")
def test_the_default_port_is_the_one_that_was_asked_for() -> None:
    assert Settings().port == 8060
