"""All routes of the dashboard."""

from collections.abc import Sequence
from functools import cache

from starlette.routing import BaseRoute, Route

from . import actions, signing_in
from .assets import serve_asset
from .page import DashboardPage, route_of
from .pages import jobs, overview

PAGES: tuple[DashboardPage, ...] = (*overview.PAGES, *jobs.PAGES)


@cache
def dashboard_routes() -> Sequence[BaseRoute]:
    """Return the routes: pages, actions, sign-in and static files."""
    return (
        *map(route_of, PAGES),
        *signing_in.ROUTES,
        actions.ROUTE,
        Route("/static/{name}", serve_asset, methods=["GET"], include_in_schema=False),
    )
