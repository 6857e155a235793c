"""Every page of the dashboard, for those who may change everything and for those who only read.

In both themes, on a desk and on a phone: accessible, no error in the console, no violation of the policy, no request to
another host. A page without parameters is covered by being declared; one with parameters needs a line in `PATHS`.
"""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio
from playwright.async_api import Browser

from dashboard.conftest import Window
from dashboard.given import given_execution
from dashboard.looks import look_at
from dashboard.site import Site, serving_site
from dashboard.test_operation import given_freshness
from floodmark.dashboard.page import DashboardPage
from floodmark.dashboard.routes import PAGES
from floodmark.model.batch import Batch, Item
from floodmark.model.tokens import Role, is_enough
from floodmark.model.watches import WatchFields
from floodmark.security.vault import Vault
from floodmark.sources.telegram.accounts import Accounts
from floodmark.testing.factories import Opened, given_lease
from system.test_overview import stock

pytest_plugins = ("backends",)
pytestmark = [pytest.mark.spec("B10"), pytest.mark.asyncio(loop_scope="session")]

# A download is no page to look at: test_collected.py, test_media.py, test_portfolio.py.
DOWNLOADS = ("/export/file", "/media/file", "/portfolio/file")
SHOWN = [page for page in PAGES if "GET" in page.methods and page.path not in DOWNLOADS]
# What to write for the parts of a path.
PATHS = {
    "/jobs/{job}": "/jobs/news",
    "/jobs/{job}/edit": "/jobs/news/edit",
    "/jobs/{job}/run": "/jobs/news/run",
    "/jobs/{job}/watermark": "/jobs/news/watermark",
    "/executions/{execution}": "/executions/EXECUTION",
    "/collected/{stream}": "/collected/test:posts",
    "/item/{stream}/{key}": "/item/test:posts/1",
    "/watches/{watch}": "/watches/fires",
    "/watches/{watch}/edit": "/watches/fires/edit",
    "/sinks/{name}": "/sinks/archive",
    "/budgets/{name}": "/budgets/news",
    "/accounts/{name}": "/accounts/main",
    "/doctor": "/doctor?examine=now",
    "/docs": "/docs?text=token",
    "/find": "/find?q=news",
    "/settings": "/settings?text=redis",
    "/watches/new": "/watches/new?query=fire&stream=*",
}


async def given_everything(site: Site) -> str:
    """Something for every page; return the id of an execution that failed."""
    lease = await given_lease(site.resources, name="posts", target="posts")
    await site.resources.keeping.keep(lease, Batch([Item("1", {"title": "Fire in the harbour"})], stream="test:posts"))
    await stock(site.resources)
    await given_freshness(site)
    job_id = await site.job("news", tags=["city"])
    failed = [{"at": "2026-06-01T12:00:00Z", "attempt": 1, "worker": "w", "error": "boom", "details": {}}]
    dead = await given_execution(site, job_id, "dead", error_message="boom", error_details=failed)
    await given_execution(site, job_id, "done", items_new=3, result={"summary": "3 new"})
    await site.operations.add_watch(WatchFields(name="fires", query="fire", notify=("webhook",)))
    sinks = site.resources.repositories.sinks
    await sinks.register("archive", "webhook", None)
    await sinks.start("archive", 0, place="https://archive.example/in")
    await sinks.fail(
        "archive",
        "https://archive.example answers with status 503",
        failures=1,
        rest=site.resources.settings.watch_max_age,
    )
    await site.operations.commit_position("reader:indexer", 0)
    await site.operations.add_webhook("/deploys/*", jobs=("news",))
    accounts = Accounts(site.resources.database, site.resources.clock, Vault.of(site.resources.settings))
    await accounts.add("main", api_id=1, api_hash="hash", session="session", phone="+15550100")
    return dead


@pytest_asyncio.fixture(loop_scope="session")
async def furnished(sqlite: Opened) -> AsyncIterator[tuple[Site, str]]:
    """A dashboard with something on every page, and an execution that failed."""
    async with serving_site(sqlite, notify_webhook_url="http://127.0.0.1:9/hook") as site:
        yield site, await given_everything(site)


@asynccontextmanager
async def signed_in(browser: Browser, site: Site, role: Role) -> AsyncIterator[Window]:
    """A window of a person with a role."""
    token = await site.token(role)
    context = await browser.new_context(
        viewport={"width": 1400, "height": 900}, locale="en-GB", reduced_motion="reduce"
    )
    window = Window(await context.new_page(), site.url)
    await window.open("/sign-in")
    await window.page.get_by_label("Token", exact=True).fill(token)
    await window.page.get_by_role("button", name="Sign in").click()
    await window.page.wait_for_url(f"{site.url}/")
    yield window
    await context.close()
    assert window.faults == []


def address(page: DashboardPage, execution: str) -> str:
    return PATHS.get(page.path, page.path).replace("EXECUTION", execution)


async def test_every_page_with_parameters_has_an_example() -> None:
    assert [page.path for page in SHOWN if "{" in address(page, "")] == []
    assert set(PATHS) <= {page.path for page in SHOWN}


@pytest.mark.thorough
async def test_every_page_can_be_read_by_everyone(furnished: tuple[Site, str], browser: Browser) -> None:
    site, dead = furnished
    async with signed_in(browser, site, "admin") as window:
        for page in SHOWN:
            answer = await window.page.goto(f"{site.url}{address(page, dead)}")
            assert answer is not None
            # Without a login that has begun there is none to continue.
            assert answer.status == (404 if page.path == "/account-login" else 200), page.path
            await look_at(window.page)


async def test_every_page_shows_those_who_only_read_no_action(furnished: tuple[Site, str]) -> None:
    site, dead = furnished
    async with site.client(await site.token("read")) as client:
        for page in SHOWN:
            answer = await client.get(address(page, dead))
            may = is_enough("read", page.role)
            assert answer.status_code == (200 if may else 403), page.path
            forms = re.findall(r"""<form\b[^>]*method=["']?post[^>]*>""", answer.text, re.IGNORECASE)
            assert [form for form in forms if "/sign-out" not in form] == [], page.path


@pytest.mark.release
async def test_every_page_can_be_read_by_those_who_only_read(furnished: tuple[Site, str], browser: Browser) -> None:
    site, dead = furnished
    async with signed_in(browser, site, "read") as window:
        for page in SHOWN:
            await window.page.goto(f"{site.url}{address(page, dead)}")
            await look_at(window.page, is_brief=True)


async def test_the_policy_holds_on_every_page(site: Site) -> None:
    async with site.client() as client:
        for page in SHOWN:
            if "{" in page.path:
                continue
            answer = await client.get(address(page, ""))
            policy = answer.headers["content-security-policy"]
            assert "script-src 'self';" in policy, page.path
            assert "unsafe" not in policy, page.path
            assert (
                re.findall(r"<script(?! src=)|\sstyle=|\son\w+=|https?://(?!127)[^\"]*\.(?:js|css)", answer.text) == []
            )
