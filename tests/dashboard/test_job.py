"""One job: what it shows, and everything that can be done with it."""

import json
from typing import Any

import pytest
from playwright.async_api import expect

from dashboard.conftest import Window
from dashboard.given import given_execution
from dashboard.site import Site, post_form
from floodmark.model.execution import State
from floodmark.store.tables import completeness, watermarks

pytest_plugins = ("backends",)
pytestmark = [pytest.mark.spec("B10"), pytest.mark.asyncio(loop_scope="session")]


async def given_watermark(site: Site, stream: str, **columns: Any) -> None:
    async with site.resources.database.writing() as connection:
        await connection.execute(watermarks.insert().values(stream=stream, value={"since": 4812}, **columns))


async def test_a_job_shows_its_runs_its_watermark_and_its_changes(any_site: Site) -> None:
    job_id = await any_site.job(tags=["harbour"], timezone="Europe/Berlin")
    details = [{"at": "2026-06-01T12:00:00Z", "attempt": 1, "worker": "w", "error": "ValueError: boom"}]
    dead = await given_execution(any_site, job_id, "dead", error_message="ValueError: boom", error_details=details)
    done = await given_execution(any_site, job_id, items_new=3, items_changed=2)
    await given_watermark(any_site, "python:feeds:news")
    gap = {
        "kind": "unseen",
        "first": 7,
        "last": 9,
        "count": 3,
        "since": "2026-05-01T12:00:00Z",
        "reason": "not returned",
    }
    async with any_site.resources.database.writing() as connection:
        values = {"stream": "python:feeds:news", "source": "python", "value": {"gaps": [gap]}, "gaps": 1}
        await connection.execute(completeness.insert().values(**values))
    async with any_site.resources.database.writing() as connection:
        await connection.exec_driver_sql("UPDATE jobs SET last_run = created_at")
    await any_site.operations.change_job("news", {"priority": 1})
    async with any_site.client() as client:
        shown = (await client.get(f"/jobs/{job_id}")).text
        assert (await client.get("/jobs/news")).status_code == 200
    assert "every 15 min" in shown
    for execution in (dead, done):
        assert shown.count(f"/executions/{execution}") >= 3, "both strips, the list and the log lead there"
    assert "ValueError: boom" in shown
    assert "3 new, 2 changed" in shown
    assert "4812" in shown
    assert "1 gap: 1 unseen" in shown
    assert "7 to 9" in shown
    assert "Fill gaps" in shown
    assert "job.changed" in shown
    assert "<del>2</del> <ins>1</ins>" in shown
    assert "Last 2 runs" in shown
    assert "50.0 %" in shown


async def test_a_job_that_never_ran_says_what_to_do(site: Site) -> None:
    await site.job()
    async with site.client() as client:
        shown = (await client.get("/jobs/news")).text
        assert "It has not run yet" in shown
        assert "Nothing has been collected yet" in shown
        missing = await client.get("/jobs/newz")
        assert missing.status_code == 404
        assert "did you mean news?" in missing.text


async def test_everything_can_be_done_with_a_job(site: Site, window: Window) -> None:
    job_id = await site.job()
    page = await window.open(f"/jobs/{job_id}")
    said = page.locator(".flash.done")

    await page.get_by_role("button", name="Run now").click()
    await expect(said).to_have_text("It runs now.")
    assert len((await site.operations.executions(job=job_id)).items) == 1
    await page.get_by_role("button", name="Cancel its runs").click()
    await page.get_by_role("button", name="Yes, do it").click()
    await expect(said).to_have_text("Cancelled 1 runs.")

    await page.locator("#j-pause summary").click()
    await page.get_by_label("Reason").fill("the site is being rebuilt")
    await page.locator("#j-pause").get_by_role("button", name="Pause").click()
    await expect(page.locator(".lead")).to_contain_text("the site is being rebuilt")
    await page.get_by_role("button", name="Resume").click()
    await expect(said).to_have_text("Resumed.")

    await page.get_by_role("button", name="Disable").click()
    await expect(page.locator("#j-head .badge")).to_have_text("disabled")
    await page.get_by_role("button", name="Enable").click()
    await expect(page.locator("#j-head .badge")).to_have_text("active")

    await page.get_by_role("button", name="Remove").click()
    await expect(page.locator("#ask-text")).to_contain_text("Remove news for good?")
    await page.get_by_role("button", name="Yes, do it").click()
    await page.wait_for_url("**/jobs")
    assert (await site.operations.jobs()).items == []


@pytest.mark.release
async def test_a_run_gets_params_and_keeps_them_when_they_are_refused(site: Site, window: Window) -> None:
    await site.job(source="telegram", target="@example_news", params={"history": 50})
    page = await window.open("/jobs/news/run")
    await expect(page.locator("pre")).to_contain_text('"history": 50')
    await page.get_by_label("History").fill("many")
    await page.get_by_label("Other params").fill('{"day": "2026-01-31"}')
    await page.get_by_role("button", name="Run now").click()
    await expect(page.locator(".field.wrong")).to_contain_text("history 'many' is not a number of posts")
    await expect(page.get_by_label("History")).to_have_value("many")
    await expect(page.get_by_label("Other params")).to_have_value('{"day": "2026-01-31"}')
    await page.get_by_label("History").fill("7")
    await page.get_by_role("button", name="Run now").click()
    await page.wait_for_url("**/executions/*")
    [run] = (await site.operations.executions(job="news")).items
    assert run.params == {"history": "7", "day": "2026-01-31"}
    async with site.client() as client:
        refused = await post_form(client, "/jobs/news/run", "/jobs/news/run", params="[1")
        assert "params is not JSON" in refused.text
        assert "[1</textarea>" in refused.text


@pytest.mark.release
async def test_the_watermark_is_set_and_reset(site: Site, window: Window) -> None:
    job_id = await site.job()
    page = await window.open(f"/jobs/{job_id}/watermark")
    await page.get_by_label("Watermark").fill('{"since": ')
    await page.get_by_role("button", name="Set it").click()
    await page.get_by_role("button", name="Yes, do it").click()
    await expect(page.locator(".field.wrong")).to_contain_text("the watermark is not JSON")
    await expect(page.get_by_label("Watermark")).to_have_value('{"since": ')
    await page.get_by_label("Watermark").fill('{"since": 99}')
    await page.get_by_role("button", name="Set it").click()
    await page.get_by_role("button", name="Yes, do it").click()
    await expect(page.locator(".flash.done")).to_contain_text("The watermark is set")
    assert (await site.operations.watermark("news")).value == {"since": 99}
    async with site.resources.database.writing() as connection:
        await connection.exec_driver_sql("UPDATE jobs SET last_run = created_at")
    page = await window.open(f"/jobs/{job_id}")
    await page.get_by_role("button", name="Reset").click()
    await page.get_by_role("button", name="Yes, do it").click()
    await expect(page.locator(".flash.done")).to_have_text("The watermark is reset.")
    assert (await site.operations.watermark("news")).value is None


@pytest.mark.thorough
async def test_the_page_follows_a_run_as_it_happens(site: Site, window: Window) -> None:
    job_id = await site.job()
    page = await window.open(f"/jobs/{job_id}")
    await expect(page.locator("#live")).to_have_attribute("data-state", "on", timeout=60_000)
    asked = await site.operations.run_job("news")
    await expect(page.locator("#j-log")).to_contain_text("fired", timeout=60_000)
    await expect(page.locator("#j-list .badge")).to_have_text("queued")
    await site.operations.cancel_execution(asked.execution_id)
    await expect(page.locator("#j-log")).to_contain_text("cancelled", timeout=60_000)
    assert (await site.operations.execution(asked.execution_id)).state is State.CANCELLED


@pytest.mark.parametrize("role", ["read", "operate"])
async def test_a_role_sees_only_what_it_may_do_with_a_job(site: Site, role: Any) -> None:
    job_id = await site.job(params={"api_token": "sesame"})
    await given_watermark(site, "python:feeds:news")
    async with site.client(await site.token(role)) as client:
        shown = (await client.get(f"/jobs/{job_id}")).text
        assert "sesame" not in shown
        assert ("Run now" in shown, "/act/pause_job" in shown) == (role == "operate", role == "operate")
        for forbidden in ("/edit", "/act/remove_job", "/schedule"):
            assert forbidden not in shown, forbidden
        for path in (f"/jobs/{job_id}/edit", "/add"):
            assert (await client.get(path)).status_code == 403
        sent = await post_form(client, "/", f"/jobs/{job_id}/schedule", enabled="no")
        assert sent.status_code == 403
        may_run = await post_form(client, "/", f"/jobs/{job_id}/run", params=json.dumps({"count": 1}))
        assert may_run.status_code == (303 if role == "operate" else 403)
        assert (await site.operations.job("news")).schedule_enabled
