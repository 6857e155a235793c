"""Sinks, readers and the search index: every page and every action."""

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from dashboard.conftest import Window
from dashboard.given import HOSTILE
from dashboard.looks import look_at
from dashboard.site import Site, post_form, serving_site
from delivering.installation import collect, configured, deliver_all
from delivering.receivers import Answer, EventReceiver
from floodmark.coordination.leader import Leader
from floodmark.errors import Transient
from floodmark.settings import Settings
from floodmark.testing.factories import TTL
from floodmark.wiring.resources import open_resources

pytest_plugins = ("backends",)
pytestmark = [pytest.mark.spec("B10"), pytest.mark.asyncio(loop_scope="session")]


@pytest.fixture
def receiver() -> Iterator[EventReceiver]:
    with EventReceiver().serving() as receiver:
        yield receiver


class Deliveries:
    """A sink `archive`, and what the leader does for it."""

    def __init__(self, site: Site, leader: Leader, receiver: EventReceiver) -> None:
        self.site, self.leader, self.receiver = site, leader, receiver
        self.sink = configured(site.resources, "archive", "webhook", {"url": f"{receiver.url}/in?key=canary"})

    async def collect(self, *values: object) -> None:
        await collect(self.site.resources, self.leader, *values)

    async def deliver(self) -> None:
        await deliver_all(self.site.resources, self.leader, self.sink)

    async def fail(self) -> None:
        with pytest.raises(Transient):
            await self.deliver()


@pytest_asyncio.fixture(loop_scope="session")
async def site(sqlite_copy: str, receiver: EventReceiver) -> AsyncIterator[Site]:
    """A dashboard whose process has the settings of a sink."""
    foreign = {"SINK_ARCHIVE_URL": f"{receiver.url}/in?key=canary"}
    settings = Settings(database_url=sqlite_copy, hostname="test", sinks="archive=webhook").with_foreign(foreign)
    async with serving_site(lambda **_: open_resources(settings)) as site:
        yield site


@pytest_asyncio.fixture(loop_scope="session")
async def deliveries(site: Site, receiver: EventReceiver) -> Deliveries:
    resources = site.resources
    leader = Leader(resources.leases, resources.events, name="leader", holder=resources.name, ttl=100 * TTL)
    await leader.step()
    return Deliveries(site, leader, receiver)


async def confirm(page: Page) -> None:
    await page.get_by_role("button", name="Yes, do it").click()


@pytest.mark.thorough
async def test_a_sink_is_paused_resumed_tested_and_replayed(
    site: Site, deliveries: Deliveries, window: Window, receiver: EventReceiver
) -> None:
    await deliveries.collect("a", "b", "c")
    await deliveries.deliver()
    page = await window.open("/sinks")
    await expect(page.locator("#s-list")).to_contain_text("archive")
    assert "canary" not in await page.content()
    await page.get_by_role("button", name="Pause").click()
    await expect(page.locator("#s-list .badge")).to_have_text("paused")
    await page.get_by_role("button", name="Resume").click()
    await expect(page.locator("#s-list .badge")).to_have_text("ok")
    before = len(receiver.taken)
    await page.get_by_role("button", name="Send a test").click()
    await expect(page.locator(".flash.done")).to_contain_text("accepted it after")
    assert len(receiver.taken) == before + 1

    await page.get_by_role("link", name="archive").click()
    await page.get_by_label("From position").fill("999")
    await page.get_by_role("button", name="Show what would be sent").click()
    await expect(page.locator(".flash.failed")).to_contain_text("there is no event 999")
    await expect(page.get_by_label("From position")).to_have_value("999")
    await page.get_by_label("From position").fill("2")
    await page.get_by_role("button", name="Show what would be sent").click()
    await expect(page.locator("main")).to_contain_text("delivers 2 events from there")
    assert (await site.operations.sink("archive")).position == 3
    await page.get_by_role("button", name="Send them again").click()
    await expect(page.locator(".flash.done")).to_contain_text("2 events are sent again")
    assert (await site.operations.sink("archive")).position == 1
    # The page follows the leader, though no event of the live feed says so.
    await deliveries.deliver()
    await expect(page.locator("#s-facts")).to_contain_text("none")
    assert (await site.operations.sink("archive")).position == 3


@pytest.mark.release
async def test_dead_letters_are_retried_and_dropped(
    site: Site, deliveries: Deliveries, window: Window, receiver: EventReceiver
) -> None:
    receiver.judge = lambda _: Answer(422, text="not like this")
    await deliveries.collect("a")
    await deliveries.deliver()
    await deliveries.collect("b")
    await deliveries.deliver()
    page = await window.open("/sinks/archive")
    await expect(page.locator("#letters tbody tr")).to_have_count(2)
    await page.get_by_label("Choose the event at position 1").check()
    await page.locator("#chosen").get_by_role("button", name="Retry").click()
    await expect(page.locator(".flash.done")).to_contain_text("Done: 1 dead letters.")
    await expect(page.locator("#letters")).to_contain_text("sent again soon")
    await page.get_by_label("Choose the event at position 2").check()
    await page.locator("#chosen").get_by_role("button", name="Drop").click()
    await confirm(page)
    await expect(page.locator("#letters tbody tr")).to_have_count(1)
    await page.get_by_role("button", name="Drop all").click()
    await confirm(page)
    await expect(page.locator("#letters")).to_contain_text("No dead letters")
    assert (await site.operations.sink("archive")).dead_letters == 0


@pytest.mark.thorough
async def test_a_reader_of_events_is_listed_and_removed(site: Site, deliveries: Deliveries, window: Window) -> None:
    await deliveries.collect("a", "b", "c")
    await site.operations.commit_position("reader:indexer", 1)
    await site.operations.commit_position("export:nightly", 3, place="/data/items.jsonl")
    page = await window.open("/sinks")
    row = page.locator("#s-readers tr", has_text="indexer")
    await expect(row.locator("[data-label=Lag]")).to_have_text("2")
    await expect(page.locator("#s-readers")).to_contain_text("/data/items.jsonl")
    await expect(page.locator("#s-index")).to_contain_text("Search index")
    await row.get_by_role("button", name="Remove").click()
    await confirm(page)
    await expect(page.locator("#s-readers")).not_to_contain_text("indexer")
    assert [one.name for one in await site.operations.consumers()] == ["export:nightly"]


async def test_a_failing_sink_is_shown_here_and_on_the_overview(
    site: Site, deliveries: Deliveries, receiver: EventReceiver
) -> None:
    receiver.judge = lambda _: Answer(503, text="busy")
    await deliveries.collect("a")
    await deliveries.fail()
    async with site.client() as client:
        shown = (await client.get("/sinks")).text
        assert "failing" in shown
        assert "503" in shown
        assert "Try now" in shown
        assert "1 of 1 failing" in (await client.get("/")).text
        answer = await post_form(client, "/sinks", "/act/resume_sink", name="archive", back="/sinks")
        assert answer.status_code == 303
        wrong = await post_form(client, "/sinks/archive", "/sinks/archive", position="2", since="1h")
        assert wrong.status_code == 400, wrong.text
        assert "name either a position or a time" in wrong.text
        wrong = await post_form(client, "/sinks/archive", "/sinks/archive", since="soon")
        assert 'value="soon"' in wrong.text


async def test_a_reader_sees_no_action(site: Site, deliveries: Deliveries) -> None:
    await deliveries.collect("a")
    await deliveries.deliver()
    await site.operations.commit_position("reader:indexer", 1)
    async with site.client(await site.token("read")) as client:
        for path in ("/sinks", "/sinks/archive"):
            shown = (await client.get(path)).text
            assert "/act/" not in shown
            assert "Send events again" not in shown
        assert (await post_form(client, "/sinks", "/act/pause_sink", name="archive")).status_code == 403
        assert (await post_form(client, "/sinks", "/sinks/archive", position="1", sure="yes")).status_code == 403
    assert (await site.operations.sink("archive")).state == "ok"


@pytest.mark.release
async def test_hostile_errors_are_inert_and_pages_can_be_read_by_everyone(
    site: Site, deliveries: Deliveries, window: Window, receiver: EventReceiver
) -> None:
    receiver.judge = lambda _: Answer(422, text=HOSTILE * 20)
    await deliveries.collect({"key": HOSTILE})
    await deliveries.deliver()
    receiver.judge = lambda _: Answer(500, text=HOSTILE * 20)
    await deliveries.collect("b")
    await deliveries.fail()
    await site.operations.commit_position(f"reader:{HOSTILE}", 1, place=None)
    for path in ("/sinks", "/sinks/archive"):
        page = await window.open(path)
        await look_at(page, is_brief=True)
        assert await page.evaluate("window.stolen") is None
