"""A second process refreshes open dashboards: it answers as the first one does, and either of them may die."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from command_line import CommandLine
from dashboard.site import Site, post_form
from floodmark.api.app import create_app
from floodmark.api.server import HttpServer
from floodmark.dashboard.routes import dashboard_routes
from floodmark.runtime.page_server import OffloadRefreshes, PageServer
from floodmark.testing.eventually import eventually
from floodmark.testing.factories import Opened
from servers import free_port

pytestmark = [
    pytest.mark.spec("B10"),
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.skipif(os.name != "posix", reason="the second process inherits a socket"),
]

REFRESH = {"X-Floodmark-Live": "1"}
# What differs from request to request.
_OWN_HEADERS = {"date", "server", "x-request-id"}


class OpenPages:
    """Listens to the live feed as open pages do, and refreshes them."""

    def __init__(self, client: httpx2.AsyncClient) -> None:
        self.client = client

    async def refresh(self, path: str) -> httpx2.Response:
        return await self.client.get(path, headers=REFRESH)


@asynccontextmanager
async def open_pages(site_url: str, count: int, **options: Any) -> AsyncIterator[OpenPages]:
    async with AsyncExitStack() as stack:
        usual = {"base_url": site_url, "timeout": 120, "trust_env": False, "verify": False, **options}
        client = await stack.enter_async_context(httpx2.AsyncClient(**usual))
        for _ in range(count):
            feed = await stack.enter_async_context(client.stream("GET", "/api/v2/live?beats=true"))
            assert feed.status_code == 200
        yield OpenPages(client)


@asynccontextmanager
async def offloaded(
    opened: Opened, *, idle: float = 600.0, pause: float = 600.0
) -> AsyncIterator[tuple[Site, PageServer]]:
    """A dashboard whose open pages are refreshed by a second process from two of them on."""
    async with opened(dashboard_process_from=2) as resources:
        app = create_app(resources, pages=dashboard_routes())
        pages = PageServer(resources.name, resources.settings, app.state.live, idle=idle, pause=pause)
        async with HttpServer(OffloadRefreshes(app, pages), leaving=app.state.live.close) as server:
            yield Site(resources, server.url, app.state.live), pages


async def until_it_answers(pages: PageServer, opened: OpenPages) -> None:
    """Refresh until the second process has started."""

    async def answers() -> bool:
        await opened.refresh("/jobs")
        return pages.is_answering

    await eventually(answers)


async def test_both_processes_answer_alike_and_one_is_enough_for_few_pages(any_opened: Opened) -> None:
    async with offloaded(any_opened) as (site, pages):
        await site.job("first")
        async with open_pages(site.url, 1) as opened:
            assert "first" in (await opened.refresh("/jobs")).text
            assert children_of(os.getpid()) == [], "for one page none is started"
        async with open_pages(site.url, 2) as opened:
            # The first visit gets a cookie.
            await opened.client.get("/jobs")
            ours = {path: await opened.refresh(path) for path in ("/settings?_=1", "/workers?_=1", "/nowhere?_=1")}
            await until_it_answers(pages, opened)
            answered = pages.answered
            for path, expected in ours.items():
                found = await opened.refresh(path)
                assert found.status_code == expected.status_code
                assert set(found.headers) | _OWN_HEADERS == set(expected.headers) | _OWN_HEADERS
                # The settings name the process.
                assert site.resources.name in found.text or "/settings" not in path
            assert pages.answered == answered + len(ours)
            # A first visit is answered here.
            await opened.client.get("/jobs")
            assert pages.answered == answered + len(ours)
        pid = pages.pid
        assert pid is not None
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.thorough
async def test_a_page_never_shows_less_than_the_person_has_done(sqlite: Opened) -> None:
    async with offloaded(sqlite) as (site, pages):
        await site.job("news")
        async with open_pages(site.url, 2) as opened:
            await until_it_answers(pages, opened)
            for action, offered in (("pause_job", "resume_job"), ("resume_job", "pause_job")) * 2:
                form = {"job_id": "news", "back": "/jobs"}
                assert (await post_form(opened.client, "/jobs", f"/act/{action}", **form)).status_code == 303
                page = (await opened.refresh("/jobs/news")).text
                assert f"/act/{offered}" in page
                assert f"/act/{action}" not in page


@pytest.mark.thorough
async def test_only_those_who_may_read_see_a_refreshed_page(sqlite: Opened) -> None:
    async with offloaded(sqlite) as (site, pages):
        await site.job("secretive")
        token = await site.token("read")
        async with site.client(token) as client:
            cookies = dict(client.cookies)
            async with open_pages(site.url, 2, cookies=cookies) as opened:
                await until_it_answers(pages, opened)
                assert "secretive" in (await opened.refresh("/jobs?_=1")).text
                answered = pages.answered
                async with site.client() as stranger:
                    refused = await stranger.get("/jobs?_=2", headers=REFRESH)
                assert pages.answered == answered + 1
                assert refused.status_code in (303, 401)
                assert "secretive" not in refused.text


@pytest.mark.thorough
async def test_a_killed_second_process_is_replaced_and_ends_when_nobody_asks(sqlite: Opened) -> None:
    async with offloaded(sqlite, idle=2.0, pause=0.0) as (site, pages):
        async with open_pages(site.url, 2) as opened:
            await until_it_answers(pages, opened)
            first = pages.pid
            assert first is not None
            os.kill(first, signal.SIGKILL)
            # Requests on their way to it are answered here.
            answers = await asyncio.gather(*(opened.refresh(f"/jobs?_={number}") for number in range(5)))
            assert [answer.status_code for answer in answers] == [200] * 5
            await eventually(lambda: pages.pid != first)
            await until_it_answers(pages, opened)
        await eventually(lambda: pages.pid is None)


async def test_after_a_failure_this_process_answers(sqlite: Opened) -> None:
    async with offloaded(sqlite) as (site, pages), open_pages(site.url, 2) as opened:
        await until_it_answers(pages, opened)
        assert pages.pid is not None
        os.kill(pages.pid, signal.SIGKILL)
        await eventually(lambda: pages.pid is None)
        answered = pages.answered
        assert [(await opened.refresh("/jobs")).status_code for _ in range(3)] == [200] * 3
        assert pages.answered == answered
        assert children_of(os.getpid()) == []


@pytest.mark.thorough
async def test_the_second_process_ends_with_the_first(tmp_path: Path) -> None:
    cli = CommandLine(tmp_path, DASHBOARD_PROCESS_FROM="1")
    port = free_port()
    with cli.running("up", "--port", str(port)) as up:
        async with open_pages(f"http://127.0.0.1:{port}", 0) as opened:

            async def is_up() -> bool:
                try:
                    return (await opened.client.get("/jobs")).status_code == 200
                except httpx2.TransportError:
                    return False

            await eventually(is_up)
        async with open_pages(f"http://127.0.0.1:{port}", 1) as opened:

            async def started() -> list[int]:
                await opened.refresh("/jobs")
                return children_of(up.pid)

            children = await eventually(started)
            up.kill()
    await eventually(lambda: not any(Path(f"/proc/{child}").exists() for child in children))


def children_of(pid: int) -> list[int]:
    """The page servers that a process has started."""
    found = [int(number) for number in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [child for child in found if "page_process" in Path(f"/proc/{child}/cmdline").read_text()]
