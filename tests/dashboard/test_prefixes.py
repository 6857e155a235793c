"""The dashboard where operators put it: behind proxies with a prefix, with TLS, and mounted in another application."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from aiohttp import web
from fastapi import FastAPI
from playwright.async_api import Browser, expect

from certificates import self_signed
from dashboard.conftest import Window
from dashboard.proxy import forwarded, proxied
from dashboard.site import csrf_in, serving_site
from floodmark import Floodmark, Settings
from floodmark.api.server import HttpServer
from floodmark.errors import Unavailable
from floodmark.testing.factories import Opened

pytest_plugins = ("backends",)
pytestmark = [pytest.mark.spec("B10"), pytest.mark.asyncio(loop_scope="session")]

PREFIX = "/tools/monitor"


def _named(request: web.Request) -> dict[str, str]:
    return {**forwarded(request), "X-Forwarded-Prefix": PREFIX}


# How a proxy can be set up: what the proxy does, and whether the operator has named the address.
ARRANGEMENTS: dict[str, tuple[dict[str, Any], bool]] = {
    "strips and names its prefix": ({"strips": True, "headers": _named}, False),
    "strips, and the operator names the prefix": ({"strips": True, "headers": forwarded}, True),
    "passes on the whole path": ({"headers": forwarded}, True),
    "passes on the whole path and its own host": ({"headers": forwarded, "keeps_host": False}, True),
}
# Each differs from another one in a single header.
SECOND_WAYS = ("passes on the whole path", "strips, and the operator names the prefix")


async def work_through(page: Any, url: str, token: str) -> None:
    """Sign in, read, act, and see it live: as a person would, at this address."""
    await page.goto(f"{url}/")
    await expect(page).to_have_url(f"{url}/sign-in")
    await page.get_by_label("Token", exact=True).fill(token)
    await page.get_by_role("button", name="Sign in").click()
    await expect(page).to_have_url(f"{url}/")
    await expect(page.locator("#live")).to_have_attribute("data-state", "on", timeout=60_000)
    await page.get_by_role("link", name="Jobs").first.click()
    await expect(page).to_have_url(f"{url}/jobs")
    await page.get_by_label("Choose news").check()
    await page.locator("#bulk").get_by_role("button", name="Pause").click()
    await page.get_by_role("button", name="Yes, do it").click()
    await expect(page.locator(".flash.done")).to_be_visible()
    await expect(page).to_have_url(f"{url}/jobs")
    await page.locator("details.user summary").click()
    await page.get_by_role("button", name="Sign out", exact=True).click()
    await expect(page).to_have_url(f"{url}/sign-in")


@asynccontextmanager
async def a_window(browser: Browser, url: str) -> AsyncIterator[Any]:
    context = await browser.new_context(viewport={"width": 1400, "height": 900}, ignore_https_errors=True)
    window = Window(await context.new_page(), url)
    try:
        yield window.page
    finally:
        await context.close()
    assert window.faults == []


# The last one is the third as well, with one more difference.
@pytest.mark.parametrize(
    "arrangement",
    [pytest.param(one, marks=[pytest.mark.release] if one in SECOND_WAYS else []) for one in ARRANGEMENTS],
)
@pytest.mark.thorough
async def test_it_works_behind_a_proxy_that(sqlite: Opened, browser: Browser, tmp_path: Path, arrangement: str) -> None:
    options, is_named = ARRANGEMENTS[arrangement]
    context, _ = self_signed(tmp_path, "localhost")
    # The proxy needs the port of the server, and the server the address of the proxy.
    settings = {"api_public_url": f"https://localhost{PREFIX}"} if is_named else {}
    async with (
        serving_site(sqlite, **settings) as site,
        proxied(site.url, prefix=PREFIX, tls=context, **options) as url,
        a_window(browser, url) as page,
    ):
        await site.job()
        await work_through(page, url, await site.token("admin"))
        assert (await site.operations.job("news")).paused


@pytest.mark.thorough
async def test_it_works_in_an_application_that_mounts_it(browser: Browser, tmp_path: Path) -> None:
    monitored = Floodmark(Settings(database_url=f"sqlite:///{tmp_path}/floodmark.db", floodmark_home=tmp_path))

    @monitored.collector(every="1h", key="id")
    def news(since: int | None) -> list[dict[str, int]]:
        return [{"id": (since or 0) + 1}]

    mounted = monitored.asgi()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with mounted.running():
            yield

    host = FastAPI(lifespan=lifespan)
    host.get("/hello")(lambda: "hello")
    host.mount(PREFIX, mounted)
    async with HttpServer(host) as server, a_window(browser, server.url) as page:
        async with httpx2.AsyncClient(base_url=server.url, timeout=120) as client:
            assert (await client.get("/hello")).json() == "hello"
            made = await client.post(f"{PREFIX}/api/v2/tokens", json={"name": "ada", "role": "admin"})
            assert made.status_code == 201, made.text
            token = made.json()["token"]
            bearer = {"Authorization": f"Bearer {token}"}
            forced = await client.post(f"{PREFIX}/api/v2/jobs/news/force-run", headers=bearer)
            assert forced.headers["location"].startswith(f"{PREFIX}/api/v2/executions/")
            assert (await client.get(forced.headers["location"], headers=bearer)).status_code == 200
            assert (await client.get(f"{PREFIX}/health/live")).status_code == 200
            assert (await client.get(PREFIX)).headers["location"].endswith(f"{PREFIX}/")
            # Untyped, as `curl -d` sends it.
            untyped = await client.post(
                f"{PREFIX}/api/v2/tokens", content='{"name": "bob", "role": "read"}', headers=bearer
            )
            assert untyped.status_code == 201
        await work_through(page, f"{server.url}{PREFIX}", token)


async def test_a_mounted_application_that_does_not_run_says_how_to_start_it(tmp_path: Path) -> None:
    mounted = Floodmark(Settings(database_url=f"sqlite:///{tmp_path}/floodmark.db", floodmark_home=tmp_path)).asgi()
    with pytest.raises(Unavailable, match="is not running") as refused:
        await mounted({"type": "http"}, None, None)  # type: ignore[arg-type]
    assert "mounted.running()" in refused.value.hint


@pytest.mark.thorough
async def test_it_can_be_served_directly_by_any_asgi_server(tmp_path: Path) -> None:
    app = Floodmark(Settings(database_url=f"sqlite:///{tmp_path}/floodmark.db", floodmark_home=tmp_path))
    async with HttpServer(app.asgi(worker=False)) as server, httpx2.AsyncClient(base_url=server.url) as client:
        assert "Overview" in (await client.get("/", timeout=120)).text
        assert csrf_in((await client.get("/sign-in", timeout=120)).text)
