"""The frame of the dashboard: access, forms, static files, live regions."""

import gzip
import re
import time
from collections.abc import Awaitable, Callable
from typing import Any

import httpx2
import pytest
from playwright.async_api import expect

from dashboard.conftest import Window
from dashboard.looks import look_at
from dashboard.site import Site, csrf_in, post_form
from floodmark.model.tokens import ROLES

pytest_plugins = ("backends",)
pytestmark = [pytest.mark.spec("B10"), pytest.mark.asyncio(loop_scope="session")]


async def eventually(
    ask: Callable[[], Awaitable[httpx2.Response]], is_good: Callable[[httpx2.Response], bool]
) -> httpx2.Response:
    """What a process knows of tokens is up to a second old."""
    deadline = time.monotonic() + 60
    while not is_good(answer := await ask()):
        assert time.monotonic() < deadline, answer.text
    return answer


async def test_on_this_machine_it_is_open_until_the_first_token(site: Site) -> None:
    async with site.client() as client:
        assert (await client.get("/")).status_code == 200
        text = await site.token("admin")
        sent = await eventually(lambda: client.get("/jobs?tag=news"), lambda answer: answer.status_code == 303)
        assert (sent.status_code, sent.headers["location"]) == (303, "/sign-in?to=/jobs%3Ftag%3Dnews")
        signed_in = await post_form(client, "/sign-in", "/sign-in", token=text, to="/jobs?tag=news")
        assert (signed_in.status_code, signed_in.headers["location"]) == (303, "/jobs?tag=news")
        cookie = next(one for one in signed_in.headers.get_list("set-cookie") if one.startswith("floodmark_session_"))
        assert "HttpOnly" in cookie
        assert "SameSite=lax" in cookie
        assert text not in cookie
        assert (await client.get("/jobs?tag=news")).status_code == 200
        assert (await client.get("/api/v2/whoami")).json() == {"who": "a-admin", "role": "admin"}


async def test_a_wrong_token_is_refused_and_guessing_is_limited(site: Site) -> None:
    await site.token("admin")
    async with site.client() as client:
        tries = [(await post_form(client, "/sign-in", "/sign-in", token="fm_x")).status_code for _ in range(12)]
    assert tries == [401] * 10 + [429] * 2


async def test_a_session_can_be_listed_ended_and_left(any_site: Site) -> None:
    text = await any_site.token("admin")
    async with any_site.client(text) as one, any_site.client(text) as other:
        sessions = (await any_site.operations.sessions()).items
        assert [session.token for session in sessions] == ["a-admin"] * 2
        assert (await post_form(one, "/", "/sign-out")).status_code == 303
        assert (await one.get("/")).status_code == 303
        assert (await other.get("/")).status_code == 200
        [left] = (await any_site.operations.sessions()).items
        assert (await other.delete(f"/api/v2/sessions/{left.session_id}")).status_code == 403, "no page of ours sent it"
        own = {"Origin": any_site.url}
        assert (await other.delete(f"/api/v2/sessions/{left.session_id}", headers=own)).status_code == 200
        assert (await other.get("/")).status_code == 303


async def test_a_session_ends_with_its_token(site: Site) -> None:
    text = await site.token("read")
    async with site.client(text) as client:
        assert (await client.get("/")).status_code == 200
        (await site.operations.revoke_token("a-read"))
        await eventually(lambda: client.get("/"), lambda answer: answer.status_code == 303)


@pytest.mark.parametrize("role", ROLES)
async def test_a_role_sees_only_what_it_may_do_and_the_server_refuses_the_rest(site: Site, role: Any) -> None:
    await site.job()
    text = await site.token(role)
    async with site.client(text) as client:
        shown = (await client.get("/jobs/news")).text
        assert ("pause_job" in shown) == (role != "read")
        [job] = (await site.operations.jobs()).items
        answer = await post_form(client, "/jobs", "/act/pause_job", job_id=job.job_id, back="/jobs")
        assert answer.status_code == (403 if role == "read" else 303)
        assert (await site.operations.job("news")).paused == (role != "read")


async def test_a_form_of_another_site_changes_nothing(site: Site) -> None:
    job_id = await site.job()
    async with site.client() as client:
        fields = {"job_id": job_id, "back": "/jobs"}
        assert (await client.post("/act/pause_job", data=fields)).status_code == 403
        assert (await client.post("/act/pause_job", data={**fields, "csrf": "x" * 44})).status_code == 403
        foreign = {"Origin": "https://elsewhere.example"}
        good = csrf_in((await client.get("/jobs")).text)
        assert (await client.post("/act/pause_job", data={**fields, "csrf": good}, headers=foreign)).status_code == 403
        assert not (await site.operations.job("news")).paused


@pytest.mark.parametrize("back", ["https://elsewhere.example/", "//elsewhere.example/", "/\\elsewhere.example", "x"])
async def test_an_action_returns_only_to_pages_of_the_dashboard(site: Site, back: str) -> None:
    job_id = await site.job()
    async with site.client() as client:
        answer = await post_form(client, "/jobs", "/act/pause_job", job_id=job_id, back=back)
        assert answer.headers["location"] == "/"


async def test_a_refused_action_says_why_and_what_to_do(site: Site) -> None:
    await site.job()
    async with site.client() as client:
        await post_form(client, "/jobs", "/act/pause_job", job_id="newz", back="/jobs")
        shown = (await client.get("/jobs")).text
        assert "there is no job" in shown
        assert "did you mean news?" in shown
        assert "there is no job" not in (await client.get("/jobs")).text


async def test_static_files_are_kept_for_good_and_small(site: Site) -> None:
    async with site.client() as client:
        names = re.findall(r'(?:href|src)="(/static/[^"]+)"', (await client.get("/")).text)
        assert len(names) == 3
        total = 0
        for name in names:
            answer = await client.get(name)
            assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
            total += len(gzip.compress(answer.content))
        assert total < 350_000
        assert (await client.get("/static/app.00000000.css")).status_code == 404


async def test_the_policy_allows_no_inline_script(site: Site) -> None:
    async with site.client() as client:
        for path in ("/", "/sign-in"):
            answer = await client.get(path)
            policy = answer.headers["content-security-policy"]
            assert "script-src 'self';" in policy
            assert "unsafe" not in policy
            assert "<script>" not in answer.text
            assert " style=" not in answer.text


@pytest.mark.parametrize("header", ["/monitor", "/a/b"])
async def test_links_have_the_prefix_of_a_proxy(site: Site, header: str) -> None:
    async with site.client(headers={"X-Forwarded-Prefix": header}) as client:
        shown = (await client.get("/")).text
        assert set(re.findall(r'(?:href|src|action)="(/[^"]*)"', shown)) == set(
            re.findall(rf'(?:href|src|action)="({header}/[^"]*)"', shown)
        )
        assert f'data-root="{header}"' in shown


@pytest.mark.parametrize("header", ["https://elsewhere.example", "//elsewhere.example", '/"><script>', "/a/../b c"])
async def test_a_prefix_that_is_no_path_is_ignored(site: Site, header: str) -> None:
    async with site.client(headers={"X-Forwarded-Prefix": header}) as client:
        assert 'data-root=""' in (await client.get("/")).text


@pytest.mark.thorough
async def test_a_page_becomes_live_and_follows_what_happens(site: Site, window: Window) -> None:
    page = await window.open("/jobs")
    await expect(page.locator("#live")).to_have_attribute("data-state", "on", timeout=60_000)
    await expect(page.locator("main")).to_contain_text("No jobs")
    await site.job()
    (await site.operations.run_job("news"))
    await expect(page.locator("main")).to_contain_text("news", timeout=60_000)


@pytest.mark.thorough
async def test_a_very_large_screen_is_used(site: Site, window: Window) -> None:
    await site.job()
    page = await window.open("/jobs")
    size_of_text = "parseFloat(getComputedStyle(document.querySelector('main')).fontSize)"
    sizes = []
    for width, height in ((1400, 900), (2560, 1440), (3840, 2160)):
        await page.set_viewport_size({"width": width, "height": height})
        shown = await page.evaluate("document.querySelector('main').getBoundingClientRect().width")
        assert shown >= 0.8 * width, f"{shown} of {width} px"
        assert await page.evaluate("document.documentElement.scrollWidth - window.innerWidth") <= 0
        sizes.append(await page.evaluate(size_of_text))
    assert sizes == sorted(set(sizes)), "a larger screen has larger text"


async def test_an_action_works_with_and_without_script(site: Site, window: Window) -> None:
    await site.job()
    page = await window.open("/jobs/news")
    await page.locator("#j-pause summary").click()
    await page.locator("#j-pause").get_by_role("button", name="Pause").click()
    await expect(page.locator(".flash.done")).to_be_visible()
    await expect(page.get_by_role("button", name="Resume")).to_be_visible()
    assert (await site.operations.job("news")).paused


@pytest.mark.release
async def test_pages_for_everyone_can_be_read_by_everyone(site: Site, window: Window) -> None:
    for path in ("/", "/sign-in", "/nowhere"):
        await look_at(await window.open(path))
