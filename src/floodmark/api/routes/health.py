"""`/health` and `/metrics`, for monitors, load balancers and Prometheus; outside of `/api/v2`."""

import asyncio
from typing import Annotated, Any, Literal

from fastapi import Depends, Request
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import BaseModel, Field
from starlette.responses import Response

from floodmark.api.access import require, resources_of
from floodmark.api.addresses import is_local
from floodmark.api.health import HOW_TO_SERVE, LIVE, PUSHED, SERVING, report_health
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

# Probes on this machine need no token.
Prober = Annotated[Actor, Depends(require("read", unless_local=True))]
_NOT_COLLECTING = "Something that is due is not collected; see `problems`."
_DOWN: dict[int | str, dict[str, Any]] = {503: {"model": HealthOut, "description": _NOT_COLLECTING}}


class BriefHealthOut(BaseModel):
    """The health in brief; other machines get only the status."""

    status: Literal["ok", "degraded", "down"]
    instance: str | None = Field(default=None, description="The process that answers.")
    database: str | None = None
    redis: str | None = None
    leader: str | None = Field(default=None, description="The process that schedules.")
    workers: int | None = Field(default=None, description="The number of live workers.")
    scheduler: SchedulerOut | None = None
    problems: list[str] | None = Field(default=None, description="What is wrong, one sentence each.")
    error: str | None = Field(default=None, description="The error that prevented the check.")


@health.get(
    "/health",
    response_model=BriefHealthOut,
    responses={503: {"model": BriefHealthOut, "description": _NOT_COLLECTING}},
    summary="Show the health in brief",
)
async def show_health(request: Request) -> Response:
    """Answer 200 while everything that is due is collected, else 503: without a writable database, a scheduler or a
    worker. No token is needed."""
    report = await report_health(lambda: health_of(resources_of(request)))
    code = 200 if report["status"] in SERVING else 503
    return answer(report if is_local(request) else {"status": report["status"]}, code)


class ProbeOut(BaseModel):
    """The answer to a probe."""

    status: Literal["ok", "down"]


@health.get(
    "/health/ready",
    response_model=ProbeOut,
    responses={503: {"model": ProbeOut, "description": "The database does not answer."}},
    summary="Check readiness",
)
async def show_readiness(request: Request) -> Response:
    """Answer 200 while the database answers, whatever the state of the fleet. For load balancers, without a token."""
    report = await report_health(lambda: readiness_of(resources_of(request)))
    return answer({"status": report["status"]}, 200 if report["status"] in SERVING else 503)


@health.get("/health/live", response_model=ProbeOut, summary="Check liveness")
async def show_liveness() -> Response:
    """Always answer 200: a restart would not repair a database. For process supervisors, without a token."""
    return answer(LIVE)


@health.get("/health/details", response_model=HealthOut, responses=_DOWN, summary="Show the health in detail")
async def show_health_details(request: Request, _: Prober) -> Response:
    """Show database, Redis, scheduler and every process of the fleet. This machine needs no token."""
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
async def show_metrics(request: Request, _: Prober) -> Response:
    """Show metrics in the text format of Prometheus. This machine needs no token."""
    if not is_scraped(resources_of(request).settings):
        raise NotFound(PUSHED, hint=HOW_TO_SERVE)
    # In a thread: thousands of series take milliseconds, which would delay the renewal of leases.
    body = await asyncio.to_thread(render, resources_of(request).registry)
    return Response(body, headers={"Content-Type": CONTENT_TYPE_LATEST})
