"""The HTTP API: one FastAPI application over an open process."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

from fastapi import APIRouter, FastAPI
from msgspec.structs import replace
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import BaseRoute

from floodmark.observability.tracing import Tracing
from floodmark.operations.declared import Operations
from floodmark.settings import Settings
from floodmark.sources.port import Source
from floodmark.sources.validation import Validation
from floodmark.version import __version__
from floodmark.wiring.resources import Resources

from . import problems
from .derived import routes_of
from .document import TAGS, document
from .edge import Edge
from .live import Live
from .routes.health import health
from .routes.live import live
from .routes.webhooks import flush_refusals, webhooks
from .routes.websub import websub
from .routing import PREFIX
from .traced import Traced
from .turnstile import ALONE, Admission, Turns

# Responses without an end, and downloads that take as long as they take.
_ENDLESS = (f"{PREFIX}/live", "/export/file", "/media/file")
# Paths for supervisors, load balancers and Prometheus.
PROBED = ("/health", "/health/ready", "/health/live", "/health/details", "/metrics")
# In the order in which the document lists them.
_ROUTERS: tuple[APIRouter, ...] = (routes_of(Operations), webhooks, live, websub, health)
# Their routes are tried first: programs send webhooks and probes most often.
_FREQUENT: tuple[APIRouter, ...] = (webhooks, health)


def create_app(
    resources: Resources | None,
    *,
    settings: Settings | None = None,
    sources: Mapping[str, Source] | None = None,
    turns: Turns = ALONE,
    pages: Sequence[BaseRoute] = (),
) -> FastAPI:
    """Return the API of an open process. Without `resources` it only has the OpenAPI document.

    `sources` validate jobs and params instead of those that `resources` were opened with. `turns`: the number of
    requests in progress. `pages`: the routes of the dashboard, which are not part of the document.
    """
    app = FastAPI(
        title="Floodmark",
        version=__version__,
        summary="Schedules and runs incremental collection: every item once.",
        description=_ABOUT.strip(),
        openapi_url=f"{PREFIX}/openapi.json",
        openapi_tags=TAGS,
        # These pages load scripts from elsewhere; ours work offline.
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan_of,
    )
    if resources is not None and sources is not None:
        resources = replace(resources, validation=Validation(lambda: sources))
    app.state.resources = resources
    app.state.live = None if resources is None else Live(resources)
    problems.install(app)
    app.router.routes.extend([*_in_turn(), *pages])
    app.openapi = lambda: document(app, _routes())  # type: ignore[method-assign] # the way FastAPI has for it
    used = settings or (resources.settings if resources is not None else Settings())
    _add_layers(app, used, None if resources is None else resources.tracing, turns)
    return app


@cache
def _routes() -> Sequence[BaseRoute]:
    """Return the routes. They are built once per process: reading a hundred signatures takes a while."""
    return [route for router in _ROUTERS for route in router.routes]


def _in_turn() -> Sequence[BaseRoute]:
    """Return the routes in the order in which a request is compared with them."""
    frequent = [route for router in _FREQUENT for route in router.routes]
    return [*frequent, *(route for route in _routes() if route not in frequent)]


@asynccontextmanager
async def lifespan_of(app: FastAPI) -> AsyncIterator[None]:
    """Run what the application does besides answering requests, until the block ends."""
    async with flush_refusals(app):
        yield
    if app.state.live is not None:
        await app.state.live.wait_closed()


def _add_layers(app: FastAPI, settings: Settings, tracing: Tracing | None, turns: Turns) -> None:
    """Add the layers around the application; the last one added is the outermost."""
    origins = tuple(word.strip() for word in (settings.api_cors_origins or "").split(",") if word.strip())
    if origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(origins),
            allow_methods=["GET", "POST", "PUT", "PATCH", "DELETE"],
            allow_headers=["Authorization", "Content-Type", "If-Match", "Idempotency-Key", "X-Request-ID"],
            expose_headers=["ETag", "Location", "X-Request-ID", "Idempotency-Replayed"],
        )
    if tracing is not None:
        traced: Any = Traced
        app.add_middleware(traced, tracing=tracing, prefix=PREFIX, endless=_ENDLESS)
    admission: Any = Admission
    app.add_middleware(admission, turns=turns, probes=PROBED)
    edge: Any = Edge
    public_url = settings.api_public_url
    app.add_middleware(edge, body_max=settings.api_body_max, origins=origins, endless=_ENDLESS, public_url=public_url)


_ABOUT = """
The operations of Floodmark, for operators and other programs.

**Lists** come in pages: `{"items": [...], "next": "..."}`. Send `next` as `cursor` to get the next page.

**Errors** are `application/problem+json` and say what to change. Nothing is changed by a request that is refused.

**Changes** of a job can be guarded: send its `ETag` as `If-Match`, and you get 412 if the job was changed since.
Creation can be repeated safely: send the same `Idempotency-Key`.

**Tokens** go into `Authorization: Bearer ...`. The machine itself needs none until the first one is made.
Roles: `read` may read, `operate` may also pause, run, retry and set limits, `admin` may do everything.
"""
