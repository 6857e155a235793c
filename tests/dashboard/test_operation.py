"""Workers, limits and breakers, budgets and freshness, doctor and settings: every page and every action."""

from datetime import UTC, datetime, timedelta

import pytest
from playwright.async_api import Page, expect
from sqlalchemy import insert

from dashboard.conftest import Window
from dashboard.site import Site, post_form
from floodmark.model.batch import PollResult
from floodmark.outbound.breakers import Breakers
from floodmark.repositories.freshness import FreshnessReader
from floodmark.rules.breaker import Breaker, BreakerState
from floodmark.rules.measures import Measures, encode_measures, record
from floodmark.store.tables import activity, budgets
from floodmark.testing.factories import given_job
from system.test_overview import stock

pytest_plugins = ("backends",)
pytestmark = [pytest.mark.spec("B10"), pytest.mark.asyncio(loop_scope="session")]

HOUR = timedelta(hours=1)


async def given_freshness(site: Site, count: int = 3) -> None:
    """A budget with adaptive jobs that were measured."""
    now = datetime.now(UTC)
    await site.operations.set_budget("news", 30)
    async with site.resources.database.writing() as connection:
        await connection.execute(budgets.update().values(sources=count, price=12.5))
    for number in range(count):
        job_id = await given_job(site.resources, name=f"source-{number}", schedule_type="adaptive", budget="news")
        first = Measures((now - HOUR).timestamp(), polls=1, requests=1)
        result = PollResult(found=2, expected=2.5, delays=(30.0 * (number + 1), 400.0))
        known = encode_measures(record(first, result, now=now.timestamp(), requests=2, polls=1))
        async with site.resources.database.writing() as connection:
            row = {"job_id": job_id, "measured": known, "polled_at": now}
            await connection.execute(insert(activity).values(row))
    await FreshnessReader(site.resources.database, site.resources.clock).measure()


async def confirm(page: Page) -> None:
    await page.get_by_role("button", name="Yes, do it").click()


@pytest.mark.release
async def test_workers_are_drained_and_resumed(site: Site, window: Window) -> None:
    await stock(site.resources)
    page = await window.open("/workers")
    await expect(page.locator("#w-list")).to_contain_text("leader")
    await expect(page.locator("#w-list")).to_contain_text("2 of 4")
    await page.get_by_role("button", name="Drain").click()
    await page.get_by_role("button", name="Cancel").click()
    assert not (await site.operations.fleet()).draining
    await page.get_by_role("button", name="Drain").click()
    await confirm(page)
    await expect(page.locator("main")).to_contain_text("Draining: running executions end")
    assert (await site.operations.fleet()).draining
    await page.get_by_role("button", name="Resume").click()
    await expect(page.locator(".flash.done")).to_contain_text("take new executions again")
    assert not (await site.operations.fleet()).draining


@pytest.mark.thorough
async def test_a_limit_is_set_and_cleared_and_a_refused_form_keeps_what_was_typed(site: Site, window: Window) -> None:
    page = await window.open("/limits")
    await page.get_by_label("Key", exact=True).fill("web:shop.test/a b")
    await page.get_by_label("For how long").fill("soon")
    await page.get_by_label("Why").fill("maintenance <b>")
    await page.get_by_role("button", name="Set the limit").click()
    await expect(page.locator(".flash.failed")).to_contain_text("'soon' is not a length of time")
    await expect(page.get_by_label("Key", exact=True)).to_have_value("web:shop.test/a b")
    await expect(page.get_by_label("Why")).to_have_value("maintenance <b>")
    await page.get_by_label("For how long").fill("10m")
    await page.get_by_role("button", name="Set the limit").click()
    await expect(page.locator(".flash.done")).to_contain_text("web:shop.test/a b")
    [limit] = await site.operations.limits()
    assert (limit.key, limit.reason) == ("web:shop.test/a b", "maintenance <b>")
    await page.get_by_role("button", name="Clear").click()
    await confirm(page)
    await expect(page.locator("#l-limits")).to_contain_text("No limit is active")
    assert await site.operations.limits() == []


@pytest.mark.release
async def test_a_breaker_is_reset(site: Site, window: Window) -> None:
    opened = Breaker(state=BreakerState.OPEN, open_until=datetime.now(UTC) + HOUR, trips=2, reason="refused")
    await Breakers(site.resources.database, site.resources.clock).change("web:a.test", lambda *_: opened)
    page = await window.open("/limits")
    await expect(page.locator("#l-breakers")).to_contain_text("open")
    await page.get_by_role("button", name="Reset").click()
    await confirm(page)
    await expect(page.locator(".flash.done")).to_contain_text("The breaker is closed.")
    assert [row.state for row in await site.operations.breakers()] == ["closed"]


@pytest.mark.thorough
async def test_a_budget_is_made_changed_and_removed(site: Site, window: Window) -> None:
    page = await window.open("/budgets")
    await page.get_by_role("link", name="Make a budget").click()
    await page.get_by_label("Name").fill("news")
    await page.get_by_label("Requests").fill("many")
    await page.get_by_label("Longest delay").fill("1h")
    await page.get_by_role("button", name="Create").click()
    await expect(page.locator(".flash.failed")).to_contain_text("'many' is not a number")
    await expect(page.get_by_label("Longest delay")).to_have_value("1h")
    await page.get_by_label("Requests").fill("30")
    await page.get_by_role("button", name="Create").click()
    await page.get_by_role("link", name="news").click()
    await expect(page.get_by_label("Longest delay")).to_have_value("1h")
    await page.get_by_label("Requests").fill("5000")
    await page.get_by_label("Period").select_option("week")
    await page.get_by_role("button", name="Save").click()
    await expect(page.locator(".flash.done")).to_contain_text("Changed the budget news.")
    row = await site.operations.budget("news")
    assert (row.requests, row.period, row.max_delay_seconds) == (5000, "week", 3600)
    await window.open("/budgets")
    await page.get_by_role("button", name="Remove").click()
    await confirm(page)
    await expect(page.locator("main")).to_contain_text("There is no budget yet")


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"name": "", "requests": "5"}, "the name is missing"),
        ({"name": "news", "requests": "5"}, "there is already a budget"),
        ({"name": "other", "requests": "-5"}, "requests"),
        ({"name": "other", "requests": "nan"}, "requests"),
        ({"name": "other", "requests": "5", "period": "year"}, "period"),
        ({"name": "other", "requests": "5", "fairness": "7"}, "fairness"),
        ({"name": "other", "requests": "5", "max_delay": "9e99"}, "is not a length of time"),
        ({"name": "a/b", "requests": "5"}, "a/b"),
    ],
)
async def test_a_wrong_budget_is_refused_with_its_values(site: Site, fields: dict[str, str], problem: str) -> None:
    await site.operations.set_budget("news", 30)
    async with site.client() as client:
        answer = await post_form(client, "/budgets/new", "/budgets/new", **{"period": "minute", **fields})
        assert answer.status_code in (400, 409, 422), answer.text
        assert problem in answer.text
        assert f'value="{fields["requests"]}"' in answer.text
    assert [row.name for row in (await site.operations.budgets()).items] == ["news"]


@pytest.mark.parametrize("seconds", ["-5", "0", "1e9"])
async def test_an_action_refuses_what_the_api_refuses(site: Site, seconds: str) -> None:
    async with site.client() as client:
        fields = {"key": "k", "seconds": seconds, "reason": "r", "back": "/limits"}
        assert (await post_form(client, "/limits", "/act/set_limit", **fields)).status_code == 303
        assert "seconds: input should be" in (await client.get("/limits")).text
    assert await site.operations.limits() == []


async def test_freshness_shows_delays_and_what_another_budget_brings(any_site: Site) -> None:
    await given_freshness(any_site)
    async with any_site.client() as client:
        shown = (await client.get("/freshness")).text
        one = (await client.get("/freshness?budget=news")).text
        listed = (await client.get("/budgets")).text
        budget = (await client.get("/budgets/news")).text
        assert (await client.get("/freshness?budget=nothing")).status_code == 404
    for words in ("source-2", "median delay", "sooner than equal shares", "mean delay about", "15 a minute"):
        assert words in shown, words
    assert "<th>Budget</th>" not in one
    assert "median" in listed
    assert "a mean delay of about" in budget


@pytest.mark.thorough
async def test_the_doctor_examines_on_request(site: Site, window: Window) -> None:
    page = await window.open("/doctor")
    await expect(page.locator("main")).to_contain_text("Nothing examined yet")
    await page.get_by_role("button", name="Examine the installation").click()
    await expect(page.locator(".lead.state")).to_contain_text("checks failed")
    await expect(page.locator(".findings")).to_contain_text("Next:")
    assert await page.locator(".findings .badge.bad").count() >= 1


async def test_settings_show_their_origin_and_no_secret(site: Site) -> None:
    async with site.client() as client:
        shown = (await client.get("/settings?text=hostname")).text
        assert "HOSTNAME" in shown
        assert ">code</span>" in shown
        assert "SCHEDULER_LEADER_TTL" not in shown
        everything = (await client.get("/settings")).text
        assert "SCHEDULER_LEADER_TTL" in everything
        assert "No setting fits" in (await client.get("/settings?text=zzz")).text
