"""The audit log in the browser: what has changed, by object."""

import pytest
from playwright.async_api import expect

from dashboard.conftest import Window
from dashboard.looks import look_at
from dashboard.site import Site
from floodmark.dashboard.pages.audit import Change, differences, object_path
from floodmark.model.audit import Actor

pytest_plugins = ("backends",)
pytestmark = [pytest.mark.spec("B10"), pytest.mark.asyncio(loop_scope="session")]

HOSTILE = "<svg onload=alert(1)>\u202e" + "ع" * 100_000


async def record(site: Site, action: str, what: str, **values: object) -> None:
    actor = Actor(who="<b>eve</b>\u202e" + "x" * 500, via="api")
    async with site.resources.database.writing():
        await site.resources.repositories.audit.record(actor, action, what, **values)  # type: ignore[arg-type]


async def test_changes_are_readable_and_lead_to_their_objects(any_site: Site) -> None:
    await any_site.job()
    await any_site.operations.pause_job("news")
    async with any_site.client() as client:
        shown = (await client.get("/audit")).text
        assert 'href="/jobs/news"' in shown
        assert "<del>false</del>" in shown
        assert "<ins>true</ins>" in shown
        only = (await client.get("/audit?what=job:none")).text
        assert "No changes of job:none" in only


@pytest.mark.release
async def test_the_log_is_filtered_followed_and_safe(site: Site, window: Window) -> None:
    page = await window.open("/audit")
    await expect(page.locator("main")).to_contain_text("No changes yet")
    await site.job()
    await expect(page.locator("#audit")).to_contain_text("job.added", timeout=60_000)
    await record(site, "job.changed", f"job:{HOSTILE}", before={"params": {"a": HOSTILE}}, after={"params": {"a": 1}})
    many = {f"field{number}": number for number in range(30)}
    await record(site, "job.changed", "job:other", before=None, after={**many, "empty": None})
    await page.reload()
    await expect(page.locator("#audit")).to_contain_text("18 more fields")
    assert len(await page.content()) < 60_000
    await look_at(page, is_brief=True)
    await page.get_by_label("Object").fill("job:news")
    await page.get_by_role("button", name="Show this object").click()
    await expect(page).to_have_url(f"{site.url}/audit?what=job%3Anews")
    await expect(page.locator("#audit tbody tr")).to_have_count(1)
    await page.get_by_role("link", name="Show all").click()
    await expect(page.locator("#audit tbody tr")).to_have_count(3)


async def test_a_long_log_comes_in_pages(site: Site) -> None:
    for number in range(60):
        await record(site, "limit.set", f"limit:{number}")
    async with site.client() as client:
        first = (await client.get("/audit")).text
        assert first.count("limit.set") == 50
        following = first.partition('rel="next" href="')[2].partition('"')[0].replace("&amp;", "&")
        assert (await client.get(following)).text.count("limit.set") == 10


async def test_differences_are_by_field() -> None:
    before = {"name": "news", "params": {"limit": 5, "deep": {"a": [1]}}, "same": 1, "gone": "x"}
    after = {"name": "news", "params": {"limit": 6.0, "deep": {"a": [1, 2]}}, "same": 1, "new": ""}
    assert differences(before, after) == [
        Change("gone", "x", None),
        Change("new", None, ""),
        Change("params.deep.a", "[1]", "[1,2]"),
        Change("params.limit", "5", "6"),
    ]
    assert differences(None, {"a": 1, "b": None, "c": {}, "d": []}) == [Change("a", None, "1")]
    paused = differences({"why": None, "next_run": "2026-11-17T14:30:15.320932Z"}, {"why": "x", "next_run": None})
    assert paused == [Change("next_run", "2026-11-17 14:30:15 UTC", None), Change("why", None, "x")]
    assert differences({"a": True}, None) == [Change("a", "true", None)]
    assert differences(None, None) == []
    assert differences("text", ["list"]) == [Change("value", "text", '["list"]')]


async def test_objects_have_their_pages() -> None:
    assert object_path("job:a/b?c") == "/jobs/a%2Fb%3Fc"
    assert object_path("account:reader1") == "/accounts/reader1"
    assert object_path("token:ci") == "/tokens"
    assert object_path("limit:telegram:x") is None
    assert object_path("workers") is None
