"""All routes of the dashboard."""

from collections.abc import Sequence
from functools import cache

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from floodmark.api.addresses import route_path
from floodmark.api.routing import PREFIX
from floodmark.errors import NotFound

from . import actions, signing_in
from .assets import serve_asset
from .page import DashboardPage, answer_page, route_of
from .pages import (
    accounts,
    add,
    audit,
    budgets,
    collected,
    dead_letters,
    docs,
    executions,
    export,
    find,
    installation,
    item,
    job,
    job_edit,
    jobs,
    limits,
    media,
    migration,
    overview,
    portfolio,
    secrets,
    sinks,
    tokens,
    triggers,
    watches,
    workers,
)

PAGES: tuple[DashboardPage, ...] = (
    *overview.PAGES,
    *add.PAGES,
    # Before `job`, whose path has a place for any name.
    *jobs.PAGES,
    *job_edit.PAGES,
    *job.PAGES,
    *collected.PAGES,
    *item.PAGES,
    *media.PAGES,
    *export.PAGES,
    *portfolio.PAGES,
    *executions.PAGES,
    *dead_letters.PAGES,
    *find.PAGES,
    # Delivery
    *watches.PAGES,
    *sinks.PAGES,
    # Operation
    *workers.PAGES,
    *limits.PAGES,
    *budgets.PAGES,
    *installation.PAGES,
    # Administration
    *accounts.PAGES,
    *triggers.PAGES,
    *tokens.PAGES,
    *secrets.PAGES,
    *migration.PAGES,
    *audit.PAGES,
    *docs.PAGES,
)


@cache
def dashboard_routes() -> Sequence[BaseRoute]:
    """Return the routes: pages, actions, sign-in and static files."""
    return (
        *map(route_of, PAGES),
        *signing_in.ROUTES,
        actions.ROUTE,
        Route("/static/{name}", serve_asset, methods=["GET"], include_in_schema=False),
        Route("/{path:path}", _refuse, methods=["GET"], include_in_schema=False),
    )


async def _refuse(request: Request) -> Response:
    """Answer 404: with a page for browsers, else as the API does."""
    if route_path(request.scope).startswith(PREFIX) or "text/html" not in request.headers.get("accept", ""):
        raise HTTPException(404)

    async def work() -> Response:
        raise NotFound("there is no such page", hint="use the menu, or search for it")

    return await answer_page(request, work)
