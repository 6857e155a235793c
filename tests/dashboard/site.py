"""The dashboard of an open process on a real port."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2

from api.serving import served
from floodmark.api.live import Live
from floodmark.dashboard.routes import dashboard_routes
from floodmark.model.audit import Actor
from floodmark.model.tokens import Role
from floodmark.operations.local import LocalOperations
from floodmark.operations.stored_tokens import Tokens
from floodmark.testing.factories import Opened
from floodmark.wiring.resources import Resources


class Site:
    """A running dashboard."""

    def __init__(self, resources: Resources, url: str, live: Live) -> None:
        self.resources, self.url, self.live = resources, url, live
        # Everything a person can do, as the tests do it.
        self.operations = LocalOperations(resources, Actor(who="tests"))

    async def token(self, role: Role, name: str | None = None) -> str:
        """A new token; from the first one on everyone has to sign in."""
        tokens = Tokens(self.resources.database, self.resources.clock)
        return (await tokens.add(name or f"a-{role}", role)).text

    async def job(self, name: str = "news", **columns: Any) -> str:
        """Add a job that nothing runs; return its id."""
        given = {"name": name, "source": "python", "target": f"feeds:{name}", "interval_seconds": 900, **columns}
        async with self.client() as client:
            made = await client.post("/api/v2/jobs", json=given)
        assert made.status_code == 201, made.text
        return str(made.json()["job_id"])

    @asynccontextmanager
    async def client(self, token: str | None = None, **options: Any) -> AsyncIterator[httpx2.AsyncClient]:
        """A client without a browser; with a token it signs in first."""
        usual: dict[str, Any] = {"base_url": self.url, "timeout": 120, "trust_env": False, "verify": False}
        async with httpx2.AsyncClient(**{**usual, **options}) as client:
            if token is not None:
                signed_in = await post_form(client, "/sign-in", "/sign-in", token=token)
                assert signed_in.status_code == 303, signed_in.text
            yield client


async def post_form(client: httpx2.AsyncClient, page: str, action: str, **fields: Any) -> httpx2.Response:
    """Send a form as the page would, with its proof."""
    return await client.post(action, data={"csrf": csrf_in((await client.get(page)).text), **fields})


def csrf_in(page: str) -> str:
    """The proof in the first form of a page."""
    return page.partition('name="csrf" value="')[2].partition('"')[0]


@asynccontextmanager
async def serving_site(opened: Opened, **settings: Any) -> AsyncIterator[Site]:
    """Serve the dashboard of a new process."""
    async with opened(**settings) as resources, served(resources, pages=dashboard_routes()) as api:
        yield Site(resources, api.base, api.app.state.live)
