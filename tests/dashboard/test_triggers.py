"""Triggers in the browser: list, add with a secret that is shown once, refused deliveries, remove."""

import asyncio
import subprocess
from pathlib import Path

import pytest
from playwright.async_api import expect

from dashboard.conftest import Window
from dashboard.looks import look_at
from dashboard.site import Site, post_form
from floodmark.dashboard.pages.triggers import REASONS, delivery_line
from floodmark.inbound.webhooks import _WHY
from floodmark.testing.eventually import eventually

pytest_plugins = ("backends",)
pytestmark = [pytest.mark.spec("B10"), pytest.mark.asyncio(loop_scope="session")]


async def deliver(commands: str, secret: str, folder: Path) -> str:
    """Type the commands of the page, as a person would."""
    text = commands.replace("SECRET=...", f"SECRET={secret}")
    done = await asyncio.to_thread(
        subprocess.run, ["sh", "-c", text], cwd=folder, capture_output=True, text=True, check=True, timeout=120
    )
    return str(done.stdout)


@pytest.mark.thorough
async def test_a_webhook_is_added_tried_and_removed(site: Site, window: Window, tmp_path: Path) -> None:
    await site.job()
    page = await window.open("/triggers")
    await expect(page.locator("main")).to_contain_text("No webhooks registered")
    await page.get_by_role("link", name="Add a webhook").click()
    await page.get_by_label("Path").fill("/sources/{source_id}/crawl")
    await page.get_by_label("Jobs", exact=True).fill("newz")
    await page.get_by_label("Params").fill("title=body.title")
    await page.get_by_label("Debounce").fill("soon")
    await page.get_by_role("button", name="Add").click()
    await expect(page.get_by_role("alert")).to_contain_text("soon")
    await expect(page.get_by_label("Params")).to_have_value("title=body.title")
    await page.get_by_label("Debounce").fill("")
    await page.get_by_role("button", name="Add").click()
    await expect(page.get_by_role("alert")).to_contain_text("newz")
    await page.get_by_label("Jobs", exact=True).fill("news")
    await page.get_by_role("button", name="Add").click()
    await expect(page.locator("h1")).to_have_text("Sign with this secret")
    secret = await page.locator(".flash.note code").inner_text()
    commands = await page.locator("section.card code").inner_text()
    await look_at(page, is_brief=True)

    assert '"matched":1' in await deliver(commands, secret, tmp_path)
    assert "urn:floodmark:webhook-altered" in await deliver(commands, "another secret, long enough", tmp_path)
    await page.get_by_role("link", name="Done").click()
    assert secret not in await page.content()
    card = page.locator(".trigger")
    await expect(card).to_contain_text("1 delivery, 1 execution")

    async def is_counted() -> bool:
        await page.reload()
        return "altered" in await card.inner_text()

    await eventually(is_counted)
    await expect(card).to_contain_text("the signature does not match")
    await card.get_by_text("Try it with curl").click()
    await expect(card.locator("pre")).to_contain_text(f"{site.url}/api/v2/triggers/webhook/sources/42/crawl")
    await look_at(page, is_brief=True)
    await card.get_by_role("button", name="Remove").click()
    await page.get_by_role("button", name="Yes, do it").click()
    await expect(page.locator("main")).to_contain_text("No webhooks registered")


@pytest.mark.parametrize(("kind", "pattern"), [("channel", "content:*"), ("stream", "orders")])
@pytest.mark.release
async def test_channels_and_streams_say_why_nobody_listens(site: Site, window: Window, kind: str, pattern: str) -> None:
    await site.job()
    page = await window.open(f"/triggers?kind={kind}")
    await expect(page.locator("main")).to_contain_text("No scheduler listens to Redis right now")
    await page.get_by_role("link", name=f"Add a {kind}").click()
    await page.get_by_label(kind.title(), exact=True).fill(pattern)
    await page.get_by_label("Jobs", exact=True).fill("news")
    await page.get_by_role("button", name="Add").click()
    await expect(page).to_have_url(f"{site.url}/triggers?kind={kind}")
    await expect(page.locator(".trigger")).to_contain_text("there is no Redis: set REDIS_URL")
    await page.get_by_role("button", name="Remove").click()
    await page.get_by_role("button", name="Yes, do it").click()
    await expect(page.locator(".flash.done")).to_contain_text("was removed")


async def test_those_who_only_read_see_triggers_and_no_action(site: Site) -> None:
    await site.job("news", trigger_webhook="/of/a/job")
    await site.operations.add_webhook("/hooks/*", jobs=["news"])
    async with site.client(await site.token("read")) as client:
        shown = (await client.get("/triggers")).text
        assert "/hooks/*" in shown
        assert "/of/a/job" in shown
        assert "/act/" not in shown
        assert "add-trigger" not in shown
        assert (await client.get("/add-trigger")).status_code == 403
        answer = await post_form(client, "/triggers", "/add-trigger", kind="webhook", pattern="/x")
        assert answer.status_code == 403


@pytest.mark.thorough
async def test_a_hostile_pattern_is_inert_also_in_the_commands(site: Site, window: Window) -> None:
    await site.job()
    pattern = "/';reboot;'/<b/onmouseover=alert(1)>/$(reboot)/" + "x" * 500
    await site.operations.add_webhook(pattern, jobs=["news"])
    page = await window.open("/triggers")
    await look_at(page, is_brief=True)
    assert await page.locator(".trigger dl b").count() == 0
    await page.get_by_text("Try it with curl").click()
    line = await page.locator(".trigger pre").inner_text()
    assert "';reboot" not in line
    assert "$(reboot)" not in line
    assert "/%27%3Breboot%3B%27/" in line


async def test_every_reason_of_a_refusal_is_explained() -> None:
    assert set(_WHY) <= set(REASONS)
    for has_token in (True, False):
        line = delivery_line("https://e.org", "/x", is_signed=False, has_token=has_token)
        assert ("Authorization: Bearer" in line) == has_token
