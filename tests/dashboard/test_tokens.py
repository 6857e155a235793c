"""Tokens and sessions in the browser: a new token is shown once."""

import re

import pytest
from playwright.async_api import expect

from dashboard.conftest import Window
from dashboard.looks import look_at
from dashboard.site import Site, post_form
from floodmark.dashboard.pages.tokens import browser_name

pytest_plugins = ("backends",)
pytestmark = [pytest.mark.spec("B10"), pytest.mark.asyncio(loop_scope="session")]


@pytest.mark.thorough
async def test_a_token_is_shown_once_and_everything_can_be_ended(site: Site, window: Window) -> None:
    page = await window.open("/tokens")
    await expect(page.locator("main")).to_contain_text("From the first token on")
    await page.get_by_label("Name").fill("two words")
    await page.get_by_label("Valid for").fill("90d")
    await page.get_by_role("button", name="Add").click()
    await expect(page.get_by_role("alert")).to_contain_text("cannot be the name of a token")
    await expect(page.get_by_label("Name")).to_have_value("two words")
    await expect(page.get_by_label("Valid for")).to_have_value("90d")
    await page.get_by_label("Name").fill("ada")
    await page.get_by_role("button", name="Add").click()
    text = await page.locator(".flash.note code").first.inner_text()
    assert re.fullmatch(r"fm_[0-9a-f]{16}_[0-9a-f]{64}", text)

    # From now on a token is needed, also on this machine.
    await page.goto(f"{site.url}/tokens")
    await page.get_by_label("Token", exact=True).fill(text)
    await page.get_by_role("button", name="Sign in").click()
    await expect(page).to_have_url(f"{site.url}/tokens")
    assert text not in await page.content()
    await expect(page.locator("#t-sessions")).to_contain_text("this browser")
    await expect(page.locator("#t-sessions")).to_contain_text("Chrome on Linux")
    await site.token("read")
    async with site.client(await site.token("operate")):
        await expect(page.locator("#t-sessions tbody tr")).to_have_count(2, timeout=60_000)
    await look_at(page, is_brief=True)

    await page.locator("#t-tokens tr", has_text="a-read").get_by_role("button", name="Revoke").click()
    await page.get_by_role("button", name="Yes, do it").click()
    await expect(page.locator("#t-tokens tr", has_text="a-read")).to_contain_text("revoked")
    await page.locator("#t-sessions tr", has_text="a-operate").get_by_role("button", name="End").click()
    await expect(page.locator(".flash.done")).to_contain_text("The session was ended")
    await expect(page.locator("#t-sessions tbody tr")).to_have_count(1)
    await page.get_by_role("button", name="End all sessions").click()
    await page.get_by_role("button", name="Yes, do it").click()
    await expect(page.get_by_label("Token", exact=True)).to_be_visible()
    assert (await site.operations.sessions()).items == []


@pytest.mark.parametrize("role", ["read", "operate"])
async def test_others_neither_see_nor_add_tokens(site: Site, role: str) -> None:
    async with site.client(await site.token(role)) as client:  # type: ignore[arg-type]
        assert (await client.get("/tokens")).status_code == 403
        assert "/tokens" not in (await client.get("/jobs")).text
        assert (await post_form(client, "/jobs", "/tokens", name="eve", role="admin")).status_code == 403
        assert (await post_form(client, "/jobs", "/act/add_token", name="eve", role="admin")).status_code == 403
    assert [row.name for row in (await site.operations.tokens()).items] == [f"a-{role}"]


async def test_a_hostile_browser_name_is_inert(site: Site) -> None:
    token = await site.token("admin")
    agent = "<script>alert(1)</script>" + "x" * 5000
    async with site.client(token, headers={"User-Agent": agent}) as client:
        shown = (await client.get("/tokens")).text
        assert "<script>alert" not in shown
        assert "x" * 300 not in shown


async def test_browsers_are_named_as_people_know_them() -> None:
    chrome = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0 Safari/537.36"
    assert browser_name(chrome) == "Chrome on Linux"
    assert browser_name(f"{chrome} Edg/120.0") == "Edge on Linux"
    assert browser_name("Mozilla/5.0 (Windows NT 10.0; rv:120.0) Gecko/20100101 Firefox/120.0") == "Firefox on Windows"
    iphone = "Mozilla/5.0 (iPhone; CPU iPhone OS 17_0 like Mac OS X) Version/17.0 Mobile Safari/604.1"
    assert browser_name(iphone) == "Safari on iPhone"
    assert browser_name("curl/8.0") == "curl"
    assert browser_name("") == "unknown"
