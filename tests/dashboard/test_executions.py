"""Executions and dead letters: what they show, and what can be done with them."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from playwright.async_api import expect

from dashboard.conftest import Window
from dashboard.given import given_execution
from dashboard.site import Site, post_form
from floodmark.model.execution import State

pytest_plugins = ("backends",)
pytestmark = [pytest.mark.spec("B10"), pytest.mark.asyncio(loop_scope="session")]

FAILED = {
    "error_message": "ValueError: no answer after 7 s",
    "attempt": 2,
    "error_details": [
        {
            "at": "2026-06-01T12:00:00Z",
            "attempt": 1,
            "worker": "w1",
            "error": "first <try>",
            "details": {"traceback": "tb 1"},
        },
        {
            "at": "2026-06-01T12:00:05Z",
            "attempt": 2,
            "worker": "w2",
            "error": "ValueError: no answer after 7 s",
            "details": {},
        },
    ],
}


async def test_executions_are_listed_by_state_and_job(any_site: Site) -> None:
    news, olds = await any_site.job("news"), await any_site.job("olds")
    ids = {
        state: await given_execution(any_site, news, state)
        for state in ("done", "dead", "running", "queued", "waiting", "cancelled", "skipped")
    }
    other = await given_execution(any_site, olds, job_name="olds")
    async with any_site.client() as client:

        async def listed(query: str) -> set[str]:
            answer = await client.get(f"/executions{query}")
            assert answer.status_code == 200, answer.text
            return set(re.findall(r"/executions/([0-9a-f]{32})", answer.text))

        assert await listed("") == {*ids.values(), other}
        for state, execution_id in ids.items():
            assert await listed(f"?state={state}&job=news") == {execution_id}
            assert execution_id in await listed(f"?state={state}")
        assert await listed("?job=olds") == await listed(f"?job={olds}") == {other}
        assert await listed("?job=nobody") == set()
        assert (await client.get("/executions?state=perhaps")).status_code == 400
        await any_site.operations.remove_job("olds")
        # Another address: equal requests within a second share a page.
        assert "(removed)" in (await client.get(f"/executions?job={olds}&state=done")).text
        assert "olds" in (await client.get(f"/executions/{other}")).text


async def test_an_execution_shows_its_phases_its_errors_and_its_trace(site: Site) -> None:
    job_id = await site.job(timezone="Asia/Tokyo")
    due = datetime(2026, 6, 1, 11, 59, 58, tzinfo=UTC)
    dead = await given_execution(
        site,
        job_id,
        "dead",
        scheduled_for=due,
        created_at=due + timedelta(seconds=1),
        started_at=due + timedelta(seconds=6),
        completed_at=due + timedelta(seconds=7),
        params={"count": 3},
        traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        result={"summary": "visited 40", "notes": ["the page was cut"]},
        **FAILED,
    )
    async with site.client() as client:
        shown = (await client.get(f"/executions/{dead}")).text
        by_beginning = await client.get(f"/executions/{dead[:20]}")
        assert (await client.get("/executions/ffff")).status_code == 404
    assert by_beginning.status_code == 200
    for text in (
        "Attempt 1 failed",
        "Waiting",
        "Ended: dead",
        "tb 1",
        "first &lt;try&gt;",
        "0af7651916cd43dd8448eb211c80319c",
        "visited 40",
        "the page was cut",
        "&#34;count&#34;: 3",
        "2026-06-01 20:59:58 JST",
        "ValueError: no answer after # s",
    ):
        assert text in shown, text


@pytest.mark.thorough
async def test_an_execution_is_retried_dropped_and_cancelled(site: Site, window: Window) -> None:
    job_id = await site.job()
    retried, dropped = [await given_execution(site, job_id, "dead", **FAILED) for _ in range(2)]
    said = window.page.locator(".flash.done")
    page = await window.open(f"/executions/{retried}")
    await page.get_by_role("button", name="Retry").click()
    await expect(said).to_contain_text("It runs again")
    assert (await site.operations.execution(retried)).state is State.QUEUED
    await page.get_by_role("button", name="Cancel").click()
    await page.get_by_role("button", name="Yes, do it").click()
    await expect(said).to_contain_text("It is cancelled")
    await expect(page.locator("#e-log")).to_contain_text("execution.cancelled")
    await window.open(f"/executions/{dropped}")
    await page.get_by_role("button", name="Drop").click()
    await page.get_by_role("button", name="Yes, do it").click()
    await expect(said).to_have_text("Dropped.")
    await page.get_by_role("button", name="Run the job again").click()
    await page.wait_for_url(f"**/jobs/{job_id}")
    states = [run.state for run in (await site.operations.executions(job=job_id)).items]
    assert sorted(states) == ["cancelled", "cancelled", "queued"]


@pytest.mark.thorough
async def test_an_execution_is_followed_as_it_happens(site: Site, window: Window) -> None:
    await site.job()
    asked = await site.operations.run_job("news")
    page = await window.open(f"/executions/{asked.execution_id}")
    await expect(page.locator("#e-head .badge")).to_have_text("queued")
    await expect(page.locator("#live")).to_have_attribute("data-state", "on", timeout=60_000)
    await site.operations.cancel_execution(asked.execution_id)
    await expect(page.locator("#e-head .badge")).to_have_text("cancelled", timeout=60_000)


@pytest.mark.thorough
async def test_dead_letters_are_grouped_and_handled_by_group_by_job_and_by_choice(site: Site, window: Window) -> None:
    news, olds = await site.job("news"), await site.job("olds")
    for number in range(3):
        await given_execution(site, news, "dead", error_message=f"Timeout after {number} s")
    await given_execution(site, olds, "dead", job_name="olds", error_message="banned")
    chosen = await given_execution(site, news, "dead", error_message="gone for ever")
    page = await window.open("/dead-letters")
    said = page.locator(".flash.done")
    await expect(page.locator("#d-groups tbody tr")).to_have_count(3)
    await expect(page.locator("#d-groups tbody tr").first).to_contain_text("Timeout after # s")

    async def confirm(question: str) -> None:
        await expect(page.locator("#ask-text")).to_contain_text(question)
        await page.get_by_role("button", name="Yes, do it").click()

    await page.locator("#d-groups tr", has_text="Timeout").get_by_role("button", name="Retry").click()
    await confirm("Retry 3 dead letters?")
    await expect(said).to_have_text("Queued 3 executions again.")
    await page.get_by_label("Choose the dead letter of news").check()
    await page.locator("#letters").get_by_role("button", name="Drop").click()
    await confirm("Drop the chosen dead letters (1)?")
    await expect(said).to_have_text("Done: 1 dead letters.")
    assert (await site.operations.execution(chosen)).state is State.CANCELLED
    await window.open("/dead-letters?job=olds")
    await page.get_by_role("button", name="Drop all of this job").click()
    await confirm("1 dead letter?")
    await expect(said).to_have_text("Dropped 1 dead letters.")
    await expect(page.locator("#d-groups")).to_contain_text("No dead letters")


async def test_dead_letters_of_one_error_are_listed_in_pages(any_site: Site) -> None:
    job_id = await any_site.job()
    for number in range(60):
        await given_execution(any_site, job_id, "dead", error_message=f"Timeout after {number} s")
    await given_execution(any_site, job_id, "dead", error_message="banned")
    async with any_site.client() as client:
        first = (await client.get("/dead-letters", params={"group": "Timeout after # s"})).text
        assert first.count("data-choose ") == 50
        following = re.findall(r'rel="next" href="([^"]+)"', first)[0].replace("&amp;", "&")
        assert (await client.get(following)).text.count("data-choose ") == 10
        assert (await client.get("/dead-letters", params={"group": "no such error"})).text.count("data-choose ") == 0


@pytest.mark.parametrize("role", ["read", "operate"])
async def test_a_role_sees_only_what_it_may_do_with_executions(site: Site, role: Any) -> None:
    job_id = await site.job()
    dead = await given_execution(site, job_id, "dead", **FAILED)
    async with site.client(await site.token(role)) as client:
        for path in (f"/executions/{dead}", "/dead-letters"):
            shown = (await client.get(path)).text
            assert ("/act/" in shown) == (role == "operate"), path
            assert ("data-choose" in shown) == (role == "operate" and path == "/dead-letters")
        sent = await post_form(client, "/", "/act/retry_letters", ids=dead, back="/dead-letters")
        assert sent.status_code == (303 if role == "operate" else 403)
    state = (await site.operations.execution(dead)).state
    assert state is (State.QUEUED if role == "operate" else State.DEAD)


@pytest.mark.release
async def test_the_search_box_finds_jobs_and_executions(site: Site, window: Window) -> None:
    job_id = await site.job("harbour-watch", tags=["ships"])
    execution_id = await given_execution(site, job_id)
    page = await window.open("/jobs")
    await page.keyboard.press("/")
    await page.keyboard.type("HARBOUR")
    await page.keyboard.press("Enter")
    await expect(page.locator("main")).to_contain_text("harbour-watch")
    for query in ("ships", "feeds:harbour"):
        await window.open(f"/find?q={query}")
        await expect(page.locator("main")).to_contain_text("harbour-watch")
    await window.open(f"/find?q={execution_id}")
    await page.wait_for_url(f"**/executions/{execution_id}")
    await window.open(f"/find?q={execution_id[:13]}")
    await expect(page.get_by_role("link", name=execution_id)).to_be_visible()
    await window.open("/find?q=nothing-like-this")
    await expect(page.locator("main")).to_contain_text("No job matches")
    await window.open("/find")
    await expect(page.locator("main")).to_contain_text("What are you looking for?")
