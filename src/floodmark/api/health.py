"""`/health`, `/health/ready`, `/health/live` and `/metrics`, for processes without the rest of the API."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import structlog
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from floodmark.security.masking import mask_answer

SERVING = ("ok", "degraded")
NO_STORE = {"Cache-Control": "no-store"}
PUSHED = "Metrics are not served here: they are pushed (METRICS_MODE=push)"
HOW_TO_SERVE = "To have both, set METRICS_MODE=both"
LIVE = {"status": "ok"}

Health = Callable[[], Awaitable[dict[str, Any]]]


def health_app(render_metrics: Callable[[], bytes] | None, health: Health, ready: Health | None = None) -> Starlette:
    """Return an application whose /health and /health/ready answer 200 while `status` is ok or degraded, else 503.

    /health/live always answers 200 and does not use the database. Without `render_metrics` metrics are pushed, and
    /metrics says so. Without `ready` a process is ready when it is healthy.
    """

    def page(ask: Health) -> Callable[[Request], Awaitable[Response]]:
        async def get(_: Request) -> Response:
            report = await report_health(ask)
            code = 200 if report.get("status") in SERVING else 503
            body = msgspec.json.encode(mask_answer(report), enc_hook=str)
            return Response(body, code, headers=NO_STORE, media_type="application/json")

        return get

    async def live() -> dict[str, Any]:
        return LIVE

    async def get_metrics(_: Request) -> Response:
        if render_metrics is None:
            return PlainTextResponse(f"{PUSHED}. {HOW_TO_SERVE}.\n", 404, headers=NO_STORE)
        # In a thread: thousands of series take milliseconds, which would delay the renewal of leases.
        body = await asyncio.to_thread(render_metrics)
        return Response(body, headers=NO_STORE | {"Content-Type": CONTENT_TYPE_LATEST})

    return Starlette(
        routes=[
            Route("/health", page(health)),
            Route("/health/ready", page(ready or health)),
            Route("/health/live", page(live)),
            Route("/metrics", get_metrics),
        ]
    )


async def report_health(health: Health) -> dict[str, Any]:
    """Return the report of `health`; if it raises, the process is down."""
    try:
        return await health()
    except Exception as error:  # noqa: BLE001 - whatever it is, the answer is "down"; it is logged
        # The message stays in the log: it may name hosts and users, and this page is public.
        structlog.get_logger().exception("health check failed")
        return {"status": "down", "error": type(error).__name__}
