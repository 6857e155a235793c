"""The list of jobs: filters, bulk actions, keyboard."""

import re
from typing import Any

import pytest
from playwright.async_api import expect

from dashboard.conftest import Window
from dashboard.given import given_execution, given_jobs
from dashboard.site import Site, post_form

pytest_plugins = ("backends",)
pytestmark = [pytest.mark.spec("B10"), pytest.mark.asyncio(loop_scope="session")]


async def test_jobs_are_found_by_filters_in_the_url(any_site: Site) -> None:
    first = await any_site.job("alpha", tags=["news"], priority=1)
    await any_site.job("beta")
    await any_site.operations.pause_job("beta")
    await given_execution(any_site, first, items_new=7)
    async with any_site.client() as client:

        async def names(query: str) -> list[str]:
            answer = await client.get(f"/jobs{query}")
            assert answer.status_code == 200, answer.text
            return re.findall(r"<b>(alpha|beta)</b>", answer.text)

        assert await names("") == ["alpha", "beta"]
        assert await names("?state=paused") == ["beta"]
        assert await names("?state=active") == ["alpha"]
        assert await names("?tag=news") == ["alpha"]
        assert await names("?priority=1") == ["alpha"]
        assert await names("?kind=python&text=BET") == ["beta"]
        assert await names("?stale=yes") == []
        shown = (await client.get("/jobs?tag=nothing")).text
        assert "No jobs match" in shown
        assert 'value="nothing"' in shown
        for wrong in ("state=perhaps", "priority=9", "cursor=nonsense"):
            assert (await client.get(f"/jobs?{wrong}")).status_code == 400
        assert (await client.get(f"/jobs?text={'x' * 5000}")).status_code == 200
        listed = (await client.get("/jobs")).text
        assert 'data-label="Items" class="num">7<' in listed


async def test_a_long_list_has_pages(site: Site) -> None:
    await given_jobs(site, 60)
    async with site.client() as client:
        first = (await client.get("/jobs")).text
        assert ("job-049<" in first, "job-050<" in first) == (True, False)
        following = re.findall(r'rel="next" href="([^"]+)"', first)[0].replace("&amp;", "&")
        assert "job-050<" in (await client.get(following)).text


@pytest.mark.thorough
async def test_several_jobs_are_acted_on_at_once(site: Site, window: Window) -> None:
    for name in ("alpha", "beta", "gamma"):
        await site.job(name)
    page = await window.open("/jobs")
    bar = page.locator("#bulk")
    await expect(bar).to_be_hidden()

    async def act(label: str, *names: str, tag: str = "") -> None:
        for name in names:
            await page.get_by_role("checkbox", name=f"Choose {name}").check()
        await expect(bar).to_contain_text(f"{len(names)} chosen")
        if tag:
            await bar.get_by_label("Tag").fill(tag)
        await bar.get_by_role("button", name=label, exact=True).click()
        await expect(page.locator("#ask-text")).to_contain_text(f"({len(names)})")
        # The message of the action before may still be there.
        async with page.expect_navigation():
            await page.get_by_role("button", name="Yes, do it").click()
        await expect(page.locator(".flash.done")).to_be_visible()

    await act("Pause", "alpha", "beta")
    assert [(await site.operations.job(name)).paused for name in ("alpha", "beta", "gamma")] == [True, True, False]
    await expect(page.locator(".flash.done")).to_have_text("Paused 2 jobs.")
    await act("Resume", "alpha")
    assert not (await site.operations.job("alpha")).paused
    await act("Add tag", "alpha", "gamma", tag="daily")
    assert (await site.operations.job("gamma")).tags == ("daily",)
    await act("Remove tag", "gamma", tag="daily")
    assert (await site.operations.job("gamma")).tags == ()
    await act("Run", "gamma")
    assert len((await site.operations.executions(job="gamma")).items) == 1
    await act("Remove jobs", "alpha", "beta")
    assert [job.name for job in (await site.operations.jobs()).items] == ["gamma"]


@pytest.mark.thorough
async def test_a_bulk_action_can_be_stopped_and_needs_no_script(site: Site, window: Window) -> None:
    job_id = await site.job()
    page = await window.open("/jobs")
    await page.get_by_label("Choose all").check()
    await page.locator("#bulk").get_by_role("button", name="Pause").click()
    await page.get_by_role("button", name="Cancel").click()
    assert not (await site.operations.job("news")).paused
    async with site.client() as client:
        asked = await post_form(client, "/jobs", "/jobs/bulk", job=job_id, do="pause", back="/jobs")
        assert "Pause 1 job?" in asked.text
        assert not (await site.operations.job("news")).paused
        done = await post_form(client, "/jobs", "/jobs/bulk", job=job_id, do="pause", back="/jobs", sure="yes")
        assert done.status_code == 303
        assert (await site.operations.job("news")).paused


async def test_what_fails_is_shown_for_each_job(site: Site) -> None:
    job_id = await site.job()
    async with site.client() as client:

        async def act(**fields: Any) -> Any:
            return await post_form(client, "/jobs", "/jobs/bulk", back="/jobs", sure="yes", **fields)

        mixed = await act(job=[job_id, "f" * 32], do="pause")
        assert "1 of 2 failed" in mixed.text
        assert "there is no job" in mixed.text
        assert (await site.operations.job("news")).paused
        assert "the tag is missing" in (await act(job=job_id, do="tag")).text
        assert (await act(job=job_id, do="explode")).status_code == 400
        assert (await act(do="pause")).status_code == 400
        assert "choose at most 200" in (await act(job=[f"{n:032x}" for n in range(201)], do="pause")).text


@pytest.mark.parametrize("role", ["read", "operate"])
async def test_a_role_sees_only_its_bulk_actions(site: Site, role: Any) -> None:
    job_id = await site.job()
    async with site.client(await site.token(role)) as client:
        shown = (await client.get("/jobs")).text
        assert ('value="pause"' in shown) == (role == "operate")
        assert 'value="remove"' not in shown
        assert "Add tag" not in shown
        assert 'href="/add"' not in shown
        for do in ("pause", "remove"):
            await post_form(client, "/", "/jobs/bulk", job=job_id, do=do, back="/jobs", sure="yes")
        assert (await site.operations.job("news")).paused == (role == "operate")


@pytest.mark.thorough
async def test_rows_are_reached_by_keyboard(site: Site, window: Window) -> None:
    await site.job("alpha")
    beta = await site.job("beta")
    page = await window.open("/jobs")
    await page.keyboard.press("j")
    await page.keyboard.press("j")
    await page.keyboard.press("k")
    await page.keyboard.press("j")
    await page.keyboard.press("Enter")
    await page.wait_for_url(f"**/jobs/{beta}")
    await page.keyboard.press("g")
    await page.keyboard.press("e")
    await page.wait_for_url("**/executions")
