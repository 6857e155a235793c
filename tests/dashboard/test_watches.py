"""Watches: the list, the form with its preview, matches and messages, and the channels."""

import html
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from dashboard.conftest import Window
from dashboard.given import HOSTILE
from dashboard.looks import look_at
from dashboard.site import Site, post_form, serving_site
from floodmark.dashboard.watch_form import WatchForm
from floodmark.model.audit import Actor
from floodmark.model.batch import Item
from floodmark.model.watches import KINDS, WatchFields
from floodmark.operations.local import LocalOperations
from floodmark.testing.factories import Opened
from notifying.receivers import Receiver
from watches.desk import WatchDesk, open_desk, settings_for

pytest_plugins = ("backends",)
pytestmark = [pytest.mark.spec("B10"), pytest.mark.asyncio(loop_scope="session")]

FULL = WatchFields(
    name="fires",
    query="fire OR smoke",
    pattern="(?i)evacuat(e|ion)",
    whole_word=True,
    where=("views >= 1000", "!media"),
    streams=("test:*", "web:*"),
    sources=("test",),
    tags=("city", "news"),
    notify=("webhook", "slack"),
    threshold_count=20,
    threshold_seconds=600,
    digest="daily",
    quiet="22:00-07:00",
    timezone="Europe/Berlin",
    cooldown_seconds=5400,
    max_age_seconds=0,
)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver().serving() as receiver:
        yield receiver


@pytest_asyncio.fixture(loop_scope="session")
async def site(sqlite: Opened, receiver: Receiver) -> AsyncIterator[Site]:
    """A dashboard with channels."""
    async with serving_site(sqlite, **settings_for(receiver)) as site:
        yield site


@pytest_asyncio.fixture(loop_scope="session")
async def desk(site: Site, receiver: Receiver) -> AsyncIterator[WatchDesk]:
    """What the scheduler does, one step at a time. The job has run before: what it collects is new."""
    desk = WatchDesk(site.resources, receiver)
    await desk.collect()
    yield desk
    await desk.sender.close()


async def confirm(page: Page) -> None:
    await page.get_by_role("button", name="Yes, do it").click()


@pytest.mark.thorough
async def test_a_watch_is_tried_added_changed_paused_and_removed(site: Site, desk: WatchDesk, window: Window) -> None:
    await desk.collect("A big fire at the harbour", "Nothing happens")
    await desk.relay()
    page = await window.open("/watches")
    await page.get_by_role("link", name="Add the first one").click()
    # What is typed is tried at once.
    await page.get_by_label("Words", exact=True).fill("fire OR smoke")
    await page.get_by_label("Streams", exact=True).fill("test:*")
    await expect(page.locator("#trial")).to_contain_text("1 match in 2 events")
    await expect(page.locator("#trial")).to_contain_text("A big fire at the harbour")
    await page.get_by_role("button", name="Add", exact=True).click()
    await expect(page.locator(".flash.failed")).to_contain_text("a watch needs a channel to notify")
    await expect(page.get_by_label("Words", exact=True)).to_have_value("fire OR smoke")
    await page.get_by_label("webhook").check()
    await page.get_by_label("Cooldown").fill("often")
    await page.get_by_role("button", name="Add", exact=True).click()
    await expect(page.locator("#h-cooldown")).to_contain_text("'often' is not a length of time")
    await expect(page.get_by_label("webhook")).to_be_checked()
    await page.get_by_label("Cooldown").fill("30m")
    await page.get_by_role("button", name="Add", exact=True).click()
    await expect(page.locator(".flash.done")).to_contain_text("Added the watch fire-or-smoke")
    row = await site.operations.watch("fire-or-smoke")
    assert (row.streams, row.notify, row.cooldown_seconds) == (("test:*",), ("webhook",), 1800)

    await page.get_by_role("link", name="Edit").click()
    await expect(page.get_by_label("Cooldown")).to_have_value("30m")
    await page.get_by_label("Messages").select_option("hourly")
    await page.get_by_role("button", name="Save").click()
    await expect(page.locator("#w-facts")).to_contain_text("hourly")

    await window.open("/watches")
    await page.get_by_role("button", name="Pause").click()
    await expect(page.locator("#w-list")).to_contain_text("paused")
    await page.get_by_role("button", name="Resume").click()
    await expect(page.locator("#w-list")).to_contain_text("active")
    await page.get_by_role("button", name="Remove").click()
    await confirm(page)
    await expect(page.locator("main")).to_contain_text("No watches yet")
    assert (await site.operations.watches()).items == []


@pytest.mark.thorough
async def test_a_page_shows_new_matches_and_messages_by_itself(desk: WatchDesk, window: Window) -> None:
    await desk.watch("fire", name="fires")
    page = await window.open("/watches/fires")
    await expect(page.locator("#w-matches")).to_contain_text("No matches yet")
    desk.receiver.refuse("/hook", 500)
    await desk.collect("Fire at the harbour")
    await desk.work()
    # Nobody changed anything, and no execution of a watched kind ended: the page asks by itself.
    await expect(page.locator("#w-matches")).to_contain_text("Fire at the harbour")
    await expect(page.locator("#w-states")).to_contain_text("500")
    await expect(page.locator("#w-sent")).to_contain_text("next attempt")
    await expect(page.locator("#live")).to_have_attribute("data-state", "on", timeout=60_000)
    await window.open("/watches")
    await expect(page.locator("#w-list")).to_contain_text("cannot notify webhook")
    await expect(page.locator("#w-channels")).to_contain_text("1 message not sent")


@pytest.mark.release
async def test_a_test_message_is_sent_over_a_channel(site: Site, window: Window, receiver: Receiver) -> None:
    page = await window.open("/watches")
    await page.locator("tr", has_text="webhook").get_by_role("button", name="Send a test").click()
    await expect(page.locator(".flash.done")).to_contain_text("accepted it after")
    assert [post.json["kind"] for post in receiver.posts] == ["test"]
    receiver.refuse("/services", 404)
    await page.locator("tr", has_text="slack").get_by_role("button", name="Send a test").click()
    await expect(page.locator(".flash.failed")).to_contain_text("404")
    assert "canary" not in await page.content()


async def test_a_form_changed_by_someone_else_is_refused_with_what_was_typed(site: Site) -> None:
    row = await site.operations.add_watch(FULL)
    async with site.client() as client:
        path = f"/watches/{row.name}/edit"
        await site.operations.pause_watch(row.name)
        typed = {"version": "1", "query": "flood", "notify": "webhook", "timezone": "UTC", "kind": "items"}
        answer = await post_form(client, path, path, **typed)
        assert answer.status_code == 422
        assert "fires is at version 2, not 1" in answer.text
        assert 'value="flood"' in answer.text
        typed["version"] = "2"
        assert (await post_form(client, path, path, **typed)).status_code == 303
    assert (await site.operations.watch("fires")).query == "flood"


# Refused values, and a part of the message.
WRONG: list[tuple[dict[str, str], str]] = [
    ({}, "this watch would match every item"),
    ({"query": "fire", "notify": "pigeon"}, "is not configured"),
    ({"query": "fire (", "notify": "webhook"}, "("),
    ({"pattern": "(?=x)", "notify": "webhook"}, "(?=x)"),
    ({"query": "fire", "notify": "webhook", "where": "views >"}, "views"),
    ({"query": "fire", "notify": "webhook", "threshold": "many"}, "many"),
    ({"query": "fire", "notify": "webhook", "quiet": "at night"}, "at night"),
    ({"query": "fire", "notify": "webhook", "timezone": "Mars/Base"}, "Mars/Base"),
    ({"query": "fire", "notify": "webhook", "name": "a b"}, "is not a name of a watch"),
    ({"query": "x" * 2001, "notify": "webhook"}, "2000"),
    ({"query": "fire", "notify": "webhook", "kind": "all"}, "kind"),
]


async def test_wrong_watches_are_refused_with_their_values(site: Site) -> None:
    async with site.client() as client:
        for fields, problem in WRONG:
            answer = await post_form(client, "/watches/new", "/watches/new", **fields)
            assert answer.status_code == 422, fields
            shown = html.unescape(answer.text)
            assert problem in shown, fields
            # The kind is chosen from a list, and a channel by a box.
            assert all(text in shown for name, text in fields.items() if name != "kind"), fields
    assert (await site.operations.watches()).items == []


async def test_a_watch_for_this_is_a_link_and_is_tried_without_script_too(site: Site, desk: WatchDesk) -> None:
    await desk.collect("A big fire")
    await desk.relay()
    async with site.client() as client:
        path = "/watches/new?query=fire&stream=test%3Anews"
        shown = (await client.get(path)).text
        assert 'value="fire"' in shown
        assert "test:news</textarea>" in shown
        tried = await post_form(client, path, path, query="fire", streams="test:*", **{"try": ""})
        assert tried.status_code == 200
        assert "1 match" in tried.text
        assert "A big fire" in tried.text
    assert (await site.operations.watches()).items == []


@pytest.mark.thorough
async def test_every_kind_can_be_added_and_its_form_shows_it_again(site: Site) -> None:
    async with site.client() as client:
        for kind in KINDS:
            fields = {"kind": kind, "streams": "test:*", "notify": "webhook", "name": f"a-{kind}"}
            assert (await post_form(client, "/watches/new", "/watches/new", **fields)).status_code == 303
            shown = (await client.get(f"/watches/a-{kind}/edit")).text
            assert f'<option value="{kind}" selected>' in shown
    assert {row.kind for row in (await site.operations.watches()).items} == set(KINDS)


async def test_a_form_returns_the_watch_that_it_shows() -> None:
    form = WatchForm.of(FULL)
    typed = {name: [text] for name, text in form.texts.items()} | {"notify": list(form.notify)}
    assert WatchForm.typed(typed).read() == FULL
    assert WatchForm.of(WatchFields(name="a", query="b")).read() == WatchFields(name="a", query="b")


async def test_a_reader_sees_no_action(site: Site, desk: WatchDesk) -> None:
    await desk.watch("fire", name="fires")
    async with site.client(await site.token("read")) as client:
        for path in ("/watches", "/watches/fires"):
            shown = (await client.get(path)).text
            assert "/act/" not in shown
            assert "/edit" not in shown
        assert (await client.get("/watches/new")).status_code == 403
        assert (await client.get("/watches/fires/edit")).status_code == 403
        assert (await post_form(client, "/watches", "/act/pause_watch", watch="fires")).status_code == 403
    assert not (await site.operations.watch("fires")).paused


@pytest.mark.release
async def test_hostile_matches_are_inert_and_pages_can_be_read_by_everyone(desk: WatchDesk, window: Window) -> None:
    await desk.watch(f"{FULL.query}", name="fires", where=("text ~ fire",))
    url = {"url": "javascript:alert(1)"}
    await desk.collect(Item("1", {"title": HOSTILE, "text": f"fire {HOSTILE} {'x' * 10_000}", **url}))
    desk.receiver.refuse("/hook", 500)
    await desk.work()
    for path in ("/watches", "/watches/fires", "/watches/fires/edit"):
        page = await window.open(path)
        await look_at(page, is_brief=True)
        assert await page.evaluate("window.stolen") is None
        assert await page.locator("a[href^='javascript']").count() == 0


async def test_channels_are_listed_and_tested_on_every_database(any_opened: Opened, receiver: Receiver) -> None:
    async with open_desk(any_opened, receiver) as desk:
        operations = LocalOperations(desk.resources, Actor(who="tests"))
        receiver.refuse("/hook", 500)
        await desk.watch("fire", notify=("webhook", "slack"))
        await desk.collect("Fire")
        await desk.work()
        rows = {row.name: row for row in await operations.notification_channels()}
        assert list(rows) == ["discord", "slack", "telegram", "webhook"]
        failing, good = rows["webhook"], rows["slack"]
        assert (failing.watches, failing.unsent, failing.attempts, failing.sent_at) == (1, 1, 1, None)
        assert failing.error is not None
        assert failing.retry_at is not None
        assert (good.watches, good.unsent, good.error) == (1, 0, None)
        assert good.sent_at is not None
        assert (await operations.test_notification_channel("slack")).channel == "slack"
        assert "canary" not in repr(rows)
