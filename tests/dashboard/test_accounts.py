"""Accounts in the browser, against a loopback Telegram: by phone, code and password, with a session, test, remove."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect
from telethon import TelegramClient

from dashboard.conftest import Window
from dashboard.looks import look_at
from dashboard.site import Site, csrf_in, post_form, serving_site
from floodmark.security.vault import Vault
from floodmark.sources.telegram.accounts import Accounts
from floodmark.testing.factories import Opened
from floodmark.testing.telegram import LoopbackTelegram, TelegramBackend, trust_loopback
from telegram_desk import QUICK

pytest_plugins = ("backends",)
pytestmark = [pytest.mark.spec("B10", "T1"), pytest.mark.asyncio(loop_scope="session")]

PHONE, LOCKED = "+10000000001", "+10000000002"
CODE, PASSWORD = "24680", "correct horse"
HOSTILE = "<img src=x onerror=alert(1)>\u202eevil" + "x" * 3000


@pytest_asyncio.fixture(loop_scope="session")
async def server() -> AsyncIterator[LoopbackTelegram]:
    TelegramClient._config = None
    backend = TelegramBackend(seed=7)
    backend.account("reader1", phone=PHONE, code=CODE)
    backend.account("locked", phone=LOCKED, code=CODE, password=PASSWORD)
    trust_loopback()
    async with LoopbackTelegram(backend, forbid_duplicates=True) as made:
        yield made
        assert made.duplicates == []


@pytest_asyncio.fixture(loop_scope="session")
async def site(sqlite: Opened, server: LoopbackTelegram) -> AsyncIterator[Site]:
    given = {**QUICK, "telegram_call_timeout": timedelta(seconds=60)}
    async with serving_site(sqlite, **given, telegram_test_server=f"127.0.0.1:{server.port}") as site:
        yield site


def stored(site: Site) -> Accounts:
    return Accounts(site.resources.database, site.resources.clock, Vault.of(site.resources.settings))


async def add(site: Site, server: LoopbackTelegram, name: str = "reader1", **fields: Any) -> None:
    session = server.session("reader1")
    await stored(site).add(name, api_id=1, api_hash="hash", session=session, phone=PHONE, **fields)


async def fill_phone(page: Page, name: str, phone: str) -> None:
    await page.get_by_label("Name").fill(name)
    await page.get_by_label("Phone number").fill(phone)
    await page.get_by_role("button", name="Send the code").click()


@pytest.mark.thorough
async def test_an_account_is_added_by_phone_code_and_password(site: Site, window: Window) -> None:
    page = await window.open("/accounts")
    await expect(page.locator("main")).to_contain_text("No accounts yet")
    await page.get_by_role("link", name="Add an account").first.click()
    # What was typed stays when the server refuses it.
    await fill_phone(page, "locked", "12")
    await expect(page.get_by_role("alert")).to_contain_text("that is not a phone number")
    await expect(page.get_by_label("Name")).to_have_value("locked")
    await expect(page.get_by_label("Phone number")).to_have_value("12")
    await fill_phone(page, "locked", LOCKED)
    await expect(page.locator("main")).to_contain_text("Telegram has sent a code in the Telegram app")
    await look_at(page, is_brief=True)
    await page.get_by_label("Code").fill("11111")
    await page.get_by_role("button", name="Continue").click()
    await expect(page.get_by_role("alert")).to_contain_text("that is not the code")
    await expect(page.locator("main")).to_contain_text("4 tries left")
    await page.get_by_label("Code").fill(CODE)
    await page.get_by_role("button", name="Continue").click()
    await page.get_by_label("Password").fill(PASSWORD)
    await page.get_by_role("button", name="Continue").click()
    await expect(page.locator(".flash.done")).to_contain_text("Added locked: locked")
    await expect(page).to_have_url(f"{site.url}/accounts/locked")
    session = (await stored(site).get("locked")).session
    everything = await page.content()
    for secret in (session[10:60], CODE, PASSWORD, LOCKED):
        assert secret not in everything
    assert [cookie["name"] for cookie in await page.context.cookies() if "login" in str(cookie["name"])] == []


@pytest.mark.release
async def test_an_account_is_added_with_a_session_tested_parked_and_removed(
    site: Site, window: Window, server: LoopbackTelegram
) -> None:
    page = await window.open("/add-account?by=session")
    await page.get_by_label("Name").fill("reader1")
    await page.get_by_label("String session of Telethon").fill("nonsense")
    await page.get_by_role("button", name="Test and store").click()
    await expect(page.get_by_role("alert")).to_contain_text("not a string session of Telethon")
    assert "nonsense" not in await page.content(), "a secret is not shown again"
    await page.get_by_label("String session of Telethon").fill(server.session("reader1"))
    await page.get_by_role("button", name="Test and store").click()
    await expect(page.locator(".flash.done")).to_contain_text("Added reader1: reader1")
    await page.get_by_role("button", name="Test", exact=True).click()
    await expect(page.locator(".flash.done")).to_contain_text("reader1 works: it is reader1")

    await site.job("news", account="reader1")
    await stored(site).park("reader1", HOSTILE)
    await page.goto(f"{site.url}/accounts/reader1")
    await look_at(page, is_brief=True)
    await page.get_by_role("button", name="Test and use again").click()
    await expect(page.locator(".flash.done")).to_contain_text("in use again")
    assert (await stored(site).show("reader1")).state == "active"

    await page.get_by_role("button", name="Remove").click()
    await expect(page.locator("#ask")).to_contain_text("Remove the account reader1?")
    await expect(page.locator("#ask")).to_contain_text("1 job names it")
    await page.locator("#ask").get_by_role("button", name="Cancel").click()
    assert (await stored(site).show("reader1")).name == "reader1"
    await page.get_by_role("button", name="Remove").click()
    await page.get_by_role("button", name="Yes, do it").click()
    await expect(page.locator(".flash.done")).to_contain_text("reader1 was removed")
    await expect(page.locator("main")).to_contain_text("No accounts yet")


@pytest.mark.thorough
async def test_the_list_shows_who_has_a_session_open_and_what_waits(
    site: Site, window: Window, server: LoopbackTelegram
) -> None:
    await add(site, server, tenant_id=HOSTILE, user_id="شركة")
    page = await window.open("/accounts")
    await stored(site).lease("reader1", holder="worker-7", ttl=timedelta(minutes=5))
    await site.operations.set_limit("telegram:reader1:messages.getHistory", 300, HOSTILE)
    await site.operations.set_limit("telegram:reader10", 300, "of another account")
    await expect(page.locator("#accounts")).to_contain_text("open in worker-7", timeout=60_000)
    await expect(page.locator("#accounts .warn")).to_have_count(1)
    await look_at(page, is_brief=True)


async def test_those_who_only_read_see_accounts_and_no_action(site: Site, server: LoopbackTelegram) -> None:
    await add(site, server)
    async with site.client(await site.token("read")) as client:
        for path in ("/accounts", "/accounts/reader1"):
            shown = await client.get(path)
            assert "reader1" in shown.text
            assert "/act/" not in shown.text
            assert "add-account" not in shown.text
        for path in ("/add-account", "/account-login"):
            assert (await client.get(path)).status_code == 403
            assert (await post_form(client, "/accounts", path, name="x", phone=PHONE)).status_code == 403


@pytest.mark.thorough
async def test_a_login_belongs_to_one_browser(site: Site, browser: Browser) -> None:
    token = await site.token("admin")
    async with site.client(token) as mine, site.client(token) as other:
        begun = await post_form(mine, "/add-account", "/add-account", name="reader1", phone=PHONE)
        assert begun.headers["location"] == "/account-login"
        [cookie] = [one for one in begun.headers.get_list("set-cookie") if "login" in one]
        assert "HttpOnly" in cookie
        assert "Max-Age=600" in cookie
        assert "Code" in (await mine.get("/account-login")).text
        shown = await other.get("/account-login")
        assert (shown.status_code, "Begin again" in shown.text) == (404, True)
        data = {"csrf": csrf_in(shown.text), "code": CODE}
        assert (await other.post("/account-login", data=data)).status_code == 404
        cancelled = await post_form(mine, "/account-login", "/account-login", cancel="yes")
        assert cancelled.headers["location"] == "/accounts"
        assert (await mine.get("/account-login")).status_code == 404


async def test_secrets_are_neither_asked_for_nor_taken_over_plain_http(site: Site, server: LoopbackTelegram) -> None:
    async with site.client(await site.token("admin")) as client:
        plain = {"X-Forwarded-Proto": "http"}
        proof = csrf_in((await client.get("/add-account")).text)
        # With the cookies of https there would be none; here the page itself refuses.
        shown = await client.get("/add-account", headers=plain)
        assert 'name="phone"' not in shown.text
        for fields in ({"phone": PHONE}, {"by": "session", "session": server.session("reader1")}):
            data = {"csrf": proof, "name": "reader1", **fields}
            answer = await client.post("/add-account", data=data, headers=plain)
            assert (answer.status_code, "not accepted over plain http" in answer.text) == (400, True)
    assert server.calls() == []
