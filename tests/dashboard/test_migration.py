"""Migration in the browser: the shadow and its report, moving jobs, importing a crontab, syncing schedules."""

import pytest
from aiohttp import web
from playwright.async_api import Browser, expect
from sqlalchemy import update

from dashboard.conftest import Window
from dashboard.looks import look_at
from dashboard.site import Site, post_form, serving_site
from floodmark.store.tables import jobs
from floodmark.testing.factories import Opened
from floodmark.testing.web.serving import serve_app

pytest_plugins = ("backends",)
pytestmark = [pytest.mark.spec("B10"), pytest.mark.asyncio(loop_scope="session")]


async def old_job(site: Site, name: str) -> None:
    """A job that belongs to an older scheduler."""
    await site.job(name, interval_seconds=3600, tags=["reports"])
    async with site.resources.database.writing() as connection:
        await connection.execute(update(jobs).where(jobs.c.name == name).values(scheduler_version=1))


@pytest.mark.release
async def test_a_shadow_is_started_compared_and_stopped(site: Site, window: Window) -> None:
    await old_job(site, "reports")
    page = await window.open("/migration")
    await expect(page.locator("#m-shadow")).to_contain_text("off")
    await page.get_by_role("button", name="Start 24 hours back").click()
    await expect(page.locator("#m-shadow")).to_contain_text("recording")
    await site.operations.step_shadow()
    await page.get_by_role("link", name="day", exact=True).click()
    await expect(page).to_have_url(f"{site.url}/migration?hours=24")
    await expect(page.locator("main")).to_contain_text("0 differing")
    await expect(page.get_by_role("link", name="reports")).to_be_visible()
    await look_at(page, is_brief=True)
    await page.get_by_role("button", name="Stop").click()
    await page.get_by_role("button", name="Yes, do it").click()
    await expect(page.locator("#m-shadow")).to_contain_text("off")
    await page.get_by_role("button", name="Start now").click()
    await expect(page.locator("#m-shadow")).to_contain_text("recording")


@pytest.mark.thorough
async def test_jobs_are_moved_after_a_preview(site: Site, window: Window) -> None:
    await old_job(site, "reports")
    page = await window.open("/migration")
    await page.get_by_label("Which", exact=True).select_option("tag")
    await page.get_by_label("Tag", exact=True).fill("reports")
    move = page.locator("section", has=page.get_by_role("heading", name="Take over jobs"))
    await move.get_by_role("button", name="Preview").click()
    await expect(page.locator("#preview-move")).to_contain_text("1 jobs would be moved to Floodmark")
    await expect(page.get_by_label("Tag", exact=True)).to_have_value("reports")
    assert (await site.operations.job("reports")).scheduler_version == 1
    await page.get_by_role("button", name="Move them").click()
    await expect(page.locator(".flash.done")).to_contain_text("Moved 1 jobs to Floodmark")
    assert (await site.operations.job("reports")).scheduler_version == 2
    await page.get_by_label("Which", exact=True).select_option("jobs")
    await page.get_by_label("Names", exact=True).fill("reportz")
    await move.get_by_role("button", name="Preview").click()
    await expect(move.get_by_role("alert")).to_contain_text("reportz")
    await expect(page.get_by_label("Names", exact=True)).to_have_value("reportz")


@pytest.mark.release
async def test_a_crontab_is_imported_after_a_preview(site: Site, window: Window) -> None:
    page = await window.open("/migration")
    crontab = page.get_by_label("Crontab", exact=True)
    await crontab.fill("0 3 * * * /bin/report <script>alert(1)</script>\n61 * * * * /bin/never\n")
    await page.get_by_label("Function", exact=True).fill("feeds:run")
    await page.get_by_label("Time zone").fill("Europe/Berlin")
    imports = page.locator("section", has=page.get_by_role("heading", name="Import a crontab"))
    await imports.get_by_role("button", name="Preview").click()
    await expect(page.locator("#preview-import")).to_contain_text("Line 2")
    await expect(page.locator("#preview-import")).to_contain_text("1 jobs would be created, after the lines above")
    await expect(page.get_by_role("button", name="Import them")).to_have_count(0)
    await look_at(page, is_brief=True)
    await crontab.fill("0 3 * * * /bin/report\n")
    await imports.get_by_role("button", name="Preview").click()
    await expect(page.locator("#preview-import")).to_contain_text("0 3 * * * Europe/Berlin")
    assert (await site.operations.jobs()).items == []
    await page.get_by_role("button", name="Import them").click()
    await expect(page.locator(".flash.done")).to_contain_text("Imported 1 jobs")
    [made] = (await site.operations.jobs()).items
    assert (made.scheduler_version, made.params) == (1, {"command": "/bin/report"})


async def test_those_who_only_read_see_how_it_stands_and_no_action(site: Site) -> None:
    async with site.client(await site.token("read")) as client:
        shown = (await client.get("/migration")).text
        assert "Compare with a shadow" in shown
        assert "/act/" not in shown
        assert "<form" not in shown.partition("<main")[2].replace('<form method="dialog"', "")
        for form in ("move", "import", "sync"):
            fields = {"form": form, "which": "all", "crontab": "* * * * * x", "target": "feeds:run", "do": "yes"}
            assert (await post_form(client, "/jobs", "/migration", **fields)).status_code == 403


@pytest.mark.release
async def test_schedules_are_synced_after_a_preview(sqlite: Opened, browser: Browser) -> None:
    schedule = {"frequency": "daily", "time": {"hour": 2, "minute": 0}}
    names = ["one.example", "two.example", "not a domain <b>"]
    rows = [{"domain_config_id": f"c{name}", "data": {"domain": name, "schedule": schedule}} for name in names]

    async def answer(_: web.Request) -> web.Response:
        return web.json_response({"data": rows})

    app = web.Application()
    app.router.add_get("/schedules", answer)
    async with (
        serve_app(app, access_log=None) as port,
        serving_site(sqlite, api_url=f"http://127.0.0.1:{port}/schedules", http_allow_hosts="127.0.0.1") as site,
    ):
        context = await browser.new_context(viewport={"width": 1400, "height": 900})
        window = Window(await context.new_page(), site.url)
        page = await window.open("/migration")
        await expect(page.locator("#m-sync")).to_contain_text("There has been no sync yet")
        await page.get_by_role("button", name="Preview a sync").click()
        await expect(page.locator("#preview-sync")).to_contain_text("2 would be created")
        await expect(page.locator("#preview-sync")).to_contain_text("is not a domain")
        assert (await site.operations.jobs()).items == []
        await look_at(page, is_brief=True)
        await page.get_by_role("button", name="Sync now").click()
        await expect(page.locator(".flash.done")).to_contain_text("Synced: 2 created")
        await expect(page.locator("#m-sync")).to_contain_text("last sync worked")
        assert len((await site.operations.jobs()).items) == 2
        await context.close()
        assert window.faults == []
