"""`/health` with its siblings and `/metrics`, for monitors, load balancers and Prometheus; outside of `/api/v2`."""

import asyncio
from typing import Annotated, Any, Literal

from fastapi import Depends, Request
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import BaseModel, Field
from starlette.responses import Response

from floodmark.api.access import is_local, require, resources_of
from floodmark.api.health import HOW_TO_SERVE, LIVE, PUSHED, SERVING, reported
from floodmark.api.problems import Problem
from floodmark.api.routing import answer, router
from floodmark.api.schemas import struct_model
from floodmark.errors import NotFound
from floodmark.model.audit import Actor
from floodmark.model.fleet import Health, SchedulerHealth
from floodmark.observability.metrics import render
from floodmark.operations.health import health_details, health_of, readiness_of
from floodmark.outbound.push import is_scraped

HealthOut: Any = struct_model(Health)
SchedulerOut: Any = struct_model(SchedulerHealth)
health = router(tag="Health")

# This machine may always look, also when there are tokens: a probe has none.
Looking = Annotated[Actor, Depends(require("read", unless_local=True))]
_NOT_COLLECTING = "Something that is due is not collected; `problems` says why."
_DOWN: dict[int | str, dict[str, Any]] = {503: {"model": HealthOut, "description": _NOT_COLLECTING}}


class BriefHealthOut(BaseModel):
    """Whether everything is well. Those who do not ask from this machine get no more than the status."""

    status: Literal["ok", "degraded", "down"]
    instance: str | None = Field(default=None, description="The process that answers.")
    database: str | None = None
    redis: str | None = None
    leader: str | None = Field(default=None, description="Who schedules.")
    workers: int | None = Field(default=None, description="Workers that are alive.")
    scheduler: SchedulerOut | None = None
    problems: list[str] | None = Field(default=None, description="What is wrong, a sentence each.")
    error: str | None = Field(default=None, description="Why not even that could be told.")


@health.get(
    "/health",
    response_model=BriefHealthOut,
    responses={503: {"model": BriefHealthOut, "description": _NOT_COLLECTING}},
    summary="Is it well?",
)
async def show_health(request: Request) -> Response:
    """200 while everything that is due is collected, else 503: without a database that can be written, without a
    scheduler, or without a worker. No token is needed."""
    report = await reported(lambda: health_of(resources_of(request)))
    code = 200 if report["status"] in SERVING else 503
    return answer(report if is_local(request) else {"status": report["status"]}, code)


class ProbeOut(BaseModel):
    """The answer to a probe."""

    status: Literal["ok", "down"]


@health.get(
    "/health/ready",
    response_model=ProbeOut,
    responses={503: {"model": ProbeOut, "description": "The database does not answer."}},
    summary="Can this process answer requests?",
)
async def show_readiness(request: Request) -> Response:
    """For load balancers: 200 while the database answers, whatever the rest of the fleet does. No token is needed."""
    report = await reported(lambda: readiness_of(resources_of(request)))
    return answer({"status": report["status"]}, 200 if report["status"] in SERVING else 503)


@health.get("/health/live", response_model=ProbeOut, summary="Does this process answer at all?")
async def show_liveness() -> Response:
    """For process supervisors: always 200. A restart would not bring back a database. No token is needed."""
    return answer(LIVE)


@health.get(
    "/health/details", response_model=HealthOut, responses=_DOWN, summary="Is it well, and if not, what is not?"
)
async def show_health_details(request: Request, _: Looking) -> Response:
    """Database, Redis, the scheduler by its last tick, and every process of the fleet. No token from this machine."""
    report = await health_details(resources_of(request))
    return answer(report, 200 if report["status"] in SERVING else 503)


@health.get(
    "/metrics",
    response_class=Response,
    responses={
        200: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "For Prometheus."},
        404: {"model": Problem, "description": "They are pushed instead (METRICS_MODE=push)."},
    },
    summary="Show the metrics of this process",
)
async def show_metrics(request: Request, _: Looking) -> Response:
    """In the text format of Prometheus. No token from this machine."""
    if not is_scraped(resources_of(request).settings):
        raise NotFound(PUSHED, hint=HOW_TO_SERVE)
    # In a thread: thousands of series take milliseconds, in which leases would not be renewed.
    body = await asyncio.to_thread(render, resources_of(request).registry)
    return Response(body, headers={"Content-Type": CONTENT_TYPE_LATEST})
