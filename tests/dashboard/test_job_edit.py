"""The form that changes a job."""

from typing import Any

import pytest
from playwright.async_api import expect

from dashboard.conftest import Window
from dashboard.site import Site, csrf_in, post_form
from floodmark.dashboard.job_draft import JobDraft
from floodmark.model.job_fields import SETTABLE

pytest_plugins = ("backends",)
pytestmark = [pytest.mark.spec("B10"), pytest.mark.asyncio(loop_scope="session")]


@pytest.mark.thorough
async def test_the_form_has_every_field_and_changes_what_was_typed(site: Site, window: Window) -> None:
    job_id = await site.job(tags=["old"], params={"count": 3})
    page = await window.open(f"/jobs/{job_id}/edit")
    for field in SETTABLE:
        if field.part != "when":
            assert await page.locator(f"[name='{field.name}']").count() == 1, field.name
    await page.get_by_label("Tags", exact=True).fill("harbour, daily")
    await page.get_by_label("Timeout").fill("1h30m")
    await page.get_by_label("Priority").select_option("high")
    await page.get_by_text("Cron", exact=True).click()
    await page.get_by_label("Cron expression").fill("0 6 * * *")
    await page.get_by_label("Time zone").fill("Europe/Berlin")
    await expect(page.locator("#runs")).to_contain_text("06:00:00 CE", timeout=60_000)
    await page.get_by_role("button", name="Save").click()
    await expect(page.locator(".flash.done")).to_contain_text("version 2 now")
    job = await site.operations.job("news")
    assert (job.tags, job.timeout.total_seconds(), job.priority) == (("harbour", "daily"), 5400, 1)
    assert (job.when.cron_expression, job.when.interval_seconds) == ("0 6 * * *", None)
    assert (job.params, job.retry_max) == ({"count": 3}, 3)
    [changed, *_] = (await site.operations.audit(what="job:news")).items
    assert (changed.who, changed.via) == ("local", "dashboard")


@pytest.mark.release
async def test_a_refused_form_keeps_what_was_typed_and_shows_the_message_at_its_field(
    site: Site, window: Window
) -> None:
    await site.job()
    page = await window.open("/jobs/news/edit")
    await page.get_by_label("Retry max").fill("5000")
    await page.get_by_label("Domain", exact=True).fill("example.org")
    await page.get_by_role("button", name="Save").click()
    wrong = page.locator(".field.wrong")
    await expect(wrong).to_have_count(1)
    await expect(wrong.get_by_label("Retry max")).to_have_value("5000")
    await expect(wrong).to_contain_text("retry_max is 5000")
    await expect(page.get_by_label("Domain", exact=True)).to_have_value("example.org")
    await page.get_by_label("Retry max").fill("many")
    await page.get_by_text("Cron", exact=True).click()
    await page.get_by_label("Cron expression").fill("whenever")
    await page.get_by_role("button", name="Save").click()
    await expect(wrong).to_have_count(2)
    await expect(page.get_by_label("Cron expression")).to_have_value("whenever")
    job = await site.operations.job("news")
    assert (job.version, job.domain) == (1, None)


@pytest.mark.thorough
async def test_a_change_by_someone_else_is_shown_and_not_overwritten(site: Site, window: Window) -> None:
    await site.job()
    page = await window.open("/jobs/news/edit")
    await page.get_by_label("Retry max").fill("7")
    await site.operations.change_job("news", {"priority": 1, "tags": ["theirs"]})
    await page.get_by_role("button", name="Save").click()
    alert = page.locator(".flash.failed")
    await expect(alert).to_contain_text("tests has changed this job")
    await expect(alert).to_contain_text("tags, priority")
    await expect(page.get_by_label("Retry max")).to_have_value("7")
    await expect(page.get_by_label("Tags", exact=True)).to_have_value("theirs")
    assert (await site.operations.job("news")).retry_max == 3
    await page.get_by_role("button", name="Save").click()
    await expect(page.locator(".flash.done")).to_contain_text("Changed retry max. It is version 3 now.")
    job = await site.operations.job("news")
    assert (job.retry_max, job.priority, job.tags) == (7, 1, ("theirs",))


async def test_options_of_a_source_are_changed_in_their_own_fields(site: Site) -> None:
    await site.job(source="web", target="https://example.com/", params={"max_pages": 50, "include": ["/a"]})
    draft = JobDraft.of(await site.operations.job("news"))
    async with site.client() as client:

        async def save(**changed: str) -> Any:
            shown = (await client.get("/jobs/news/edit")).text
            current = JobDraft.of(await site.operations.job("news"))
            fields = {**draft.texts, **current.texts, "base": current.base_text, "version": str(current.version)}
            return await client.post("/jobs/news/edit", data={"csrf": csrf_in(shown), **fields, **changed})

        assert (await save(**{"option.web.include": "/a\n/b/**"})).status_code == 303
        assert (await site.operations.job("news")).params == {"max_pages": 50, "include": ["/a", "/b/**"]}
        refused = await save(**{"option.web.include": "no-path"})
        assert "matches no path" in refused.text
        assert "no-path</textarea>" in refused.text
        assert (await save()).status_code == 303
        assert (await save(base="{")).status_code == 200


async def test_another_role_can_neither_see_nor_send_the_form(site: Site) -> None:
    job_id = await site.job()
    async with site.client(await site.token("operate")) as client:
        assert (await client.get(f"/jobs/{job_id}/edit")).status_code == 403
        assert (await post_form(client, "/", f"/jobs/{job_id}/edit", retry_max="9")).status_code == 403
    assert (await site.operations.job("news")).retry_max == 3
