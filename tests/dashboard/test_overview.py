"""The overview: how things are, in one sentence, in charts and as a map of all sources."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from playwright.async_api import expect
from sqlalchemy import insert

from dashboard.conftest import Window
from dashboard.looks import look_at
from dashboard.site import Site
from floodmark.dashboard.pages.overview import summarise
from floodmark.model.fleet import Overview, WorkerInfo
from floodmark.model.freshness_map import FreshnessLevel, FreshnessMap, MapGroup
from floodmark.model.outcome import Dead
from floodmark.operations.overview import OverviewReader
from floodmark.rules.minutes import MINUTE, begin_of_minute
from floodmark.store.tables import minutes, watermarks
from floodmark.testing.factories import given_job, given_lease, settle
from system.test_overview import stock

pytest_plugins = ("backends",)
pytestmark = [pytest.mark.spec("B10"), pytest.mark.asyncio(loop_scope="session")]

NOW = datetime(2026, 6, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
FAILED = "1 execution has failed for good"
HOSTILE = "<script>window.owned=1</script>\u202e\"'><img src=x onerror=window.owned=1>"


async def measure(site: Site) -> None:
    """As the leader does."""
    resources = site.resources
    await OverviewReader(resources.database, resources.clock, resources.repositories).measure()


async def given_past(site: Site) -> None:
    """Some hours in which things happened."""
    now = begin_of_minute(datetime.now(UTC))
    lateness = {"seconds": 9.0, "highest": 4.0, "buckets": [0] * 7 + [2, 1] + [0] * 12}
    rows = [
        {
            "minute": now - n * MINUTE,
            "created": 3,
            "started": 3,
            "lateness": lateness,
            "done": n % 5,
            "dead": int(n % 40 == 0),
            "items_new": n % 7,
            "queued": n % 11,
            "counted_at": now,
        }
        for n in range(200)
    ]
    async with site.resources.database.writing() as connection:
        await connection.execute(insert(minutes), rows)


async def given_sources(site: Site, **names: float) -> dict[str, str]:
    """Jobs of an interval of one hour that were checked this many hours ago."""
    now, found = datetime.now(UTC), {}
    for name, hours in names.items():
        columns: dict[str, Any] = {"schedule_type": "interval", "interval_seconds": 3600.0, "stream": name}
        created = {"created_at": now - 1000 * HOUR}
        found[name] = await given_job(site.resources, name=name, source="web", tags=["de"], **columns, **created)
        async with site.resources.database.writing() as connection:
            row = {"stream": name, "fence": 1, "last_checked_at": now - hours * HOUR}
            await connection.execute(insert(watermarks).values(row))
    return found


async def test_everything_is_on_one_page(any_site: Site) -> None:
    await stock(any_site.resources)
    await given_past(any_site)
    ids = await given_sources(any_site, fine=0.5, tardy=30)
    await measure(any_site)
    async with any_site.client() as client:
        shown = (await client.get("/")).text
        by_tag = (await client.get("/?by=tag&hours=1")).text
        assert (await client.get("/?hours=nonsense")).status_code == 200
    assert "Jobs run, but 1 source is late for its rhythm, and 1 execution has failed for good." in shown
    for words in ("busy", "shaky", "ValueError: no [bold]", "1 active", "1 not closed", "2 of 4 slots busy"):
        assert words in shown, words
    assert 'href="/dead-letters?group=TimeoutError' in shown
    assert f'href="/jobs/{ids["tardy"]}"' in shown
    assert "tardy: very late, last checked 1 d 6 h ago, usually every 1 h" in shown
    assert "fine: fresh" in shown
    assert '<rect class="fill-done"' in shown
    assert '<polyline class="stroke stroke-warn"' in shown
    assert ">de</span>" in by_tag
    assert "without a tag" in by_tag


async def test_the_first_hour_of_an_installation_is_shown_large(site: Site) -> None:
    chosen = re.compile(r'aria-current="true">(1 h|6 h)<')
    async with site.client() as client:
        assert chosen.findall((await client.get("/")).text) == ["1 h"]
        assert chosen.findall((await client.get("/?hours=6")).text) == ["6 h"]


async def test_an_older_installation_shows_six_hours(site: Site) -> None:
    await given_past(site)
    async with site.client() as client:
        assert re.findall(r'aria-current="true">(1 h|6 h)<', (await client.get("/")).text) == ["6 h"]


async def test_parts_that_an_open_page_has_are_not_sent_again(site: Site) -> None:
    await given_past(site)
    await given_sources(site, fine=0.5)
    await measure(site)
    async with site.client() as client:
        whole = (await client.get("/")).text
        versions = re.findall(r'id="(o-\w+)" data-live data-version="(\w+)"', whole)
        assert {name for name, _ in versions} == {"o-activity", "o-map"}
        headers = {"X-Floodmark-Live": "1", "X-Floodmark-Have": " ".join(f"{name}={one}" for name, one in versions)}
        again = (await client.get("/", headers=headers)).text
        assert "data-version" not in again
        assert 'id="o-running"' in again
        other = (await client.get("/?by=tag", headers=headers)).text
        assert 'id="o-map"' in other
        # Only a page that is open already has something.
        assert len((await client.get("/", headers={"X-Floodmark-Have": headers["X-Floodmark-Have"]})).text) > len(again)


async def test_an_empty_installation_teaches_the_next_step(site: Site) -> None:
    async with site.client() as client:
        shown = (await client.get("/")).text
    assert "Nothing is collected yet" in shown
    assert 'href="/add"' in shown
    assert "Nothing was counted in this time" in shown


@pytest.mark.thorough
async def test_a_reader_finds_nothing_to_press_on_any_page(site: Site) -> None:
    await stock(site.resources)
    await site.operations.set_budget("news", 30)
    async with site.client(await site.token("read")) as client:
        for path in ("/", "/workers", "/limits", "/budgets", "/budgets/news", "/freshness"):
            answer = await client.get(path)
            assert answer.status_code == 200, path
            assert 'action="/act/' not in answer.text
            assert answer.text.count('method="post"') == answer.text.count('action="/sign-out"') == 1
            assert "/doctor" not in answer.text
        for path in ("/doctor", "/settings", "/budgets/new"):
            assert (await client.get(path)).status_code == 403


@pytest.mark.release
async def test_the_map_is_used_with_mouse_and_keyboard(site: Site, window: Window) -> None:
    ids = await given_sources(site, **{f"source-{n}": n for n in range(12)})
    await measure(site)
    page = await window.open("/")
    cells = page.locator("#o-map a.cell")
    await expect(cells).to_have_count(12)
    await cells.first.focus()
    await page.keyboard.press("ArrowRight")
    await page.keyboard.press("End")
    focused = page.locator("a.cell:focus")
    await expect(focused).to_have_attribute("aria-label", "source-1: fresh, last checked 1 h ago, usually every 1 h")
    shown = await focused.evaluate("element => getComputedStyle(element, '::after').content")
    assert "source-1: fresh" in shown
    await page.keyboard.press("Tab")
    assert await page.evaluate("document.activeElement.closest('.cells')") is None
    await page.locator(f"#cell-{ids['source-11']}").click()
    await page.wait_for_url(f"**/jobs/{ids['source-11']}")


@pytest.mark.thorough
async def test_hostile_names_and_errors_stay_text_and_short(site: Site, window: Window) -> None:
    await given_sources(site, **{HOSTILE: 50})
    lease = await given_lease(site.resources, name=f"{HOSTILE} runs")
    await given_lease(site.resources, name="busy " + HOSTILE)
    await settle(site.resources, lease, Dead(error=HOSTILE + "\n" + "x" * 1_000_000))
    await measure(site)
    async with site.client() as client:
        answer = await client.get("/")
    assert len(answer.content) < 150_000
    page = await window.open("/")
    await expect(page.locator("#o-map a.cell")).to_have_count(3)
    await expect(page.locator("#o-failures")).to_contain_text("<script>window.owned")
    assert await page.evaluate("window.owned") is None
    assert await page.locator("main img, main script").count() == 0


@pytest.mark.release
async def test_it_can_be_read_by_everyone(site: Site, window: Window) -> None:
    await stock(site.resources)
    await given_past(site)
    await given_sources(site, **{f"a-source-with-a-long-name-{n}-{'x' * 80}": n * 2 for n in range(20)})
    await measure(site)
    await look_at(await window.open("/"))


def overview(**fields: Any) -> Overview:
    worker = WorkerInfo(
        worker="one",
        role="worker",
        hostname="h",
        pid=1,
        slots=4,
        busy=0,
        draining=False,
        started_at=NOW,
        seen_until=NOW,
        alive=True,
    )
    usual: dict[str, Any] = {"at": NOW, "leader": "one", "scheduler": "ok", "draining": False, "workers": [worker]}
    usual |= {name: [] for name in ("running", "waiting", "limits", "breakers", "freshness", "failed")}
    usual |= dict.fromkeys(("running_count", "waiting_count", "dead_letters", "kept_last_minute"), 0)
    return Overview(**{**usual, "queue": {}, "measured_at": None, **fields})


def fresh(**levels: int) -> FreshnessMap:
    counts = {FreshnessLevel(level): count for level, count in levels.items()}
    return FreshnessMap(kinds=[MapGroup(name="web", jobs=sum(levels.values()), levels=counts)])


UNCHECKED = "sources have not been checked yet"


@pytest.mark.parametrize(
    ("seen", "found", "expected"),
    [
        ({"scheduler": "down"}, fresh(), ("Nothing is scheduled: no scheduler runs.", "bad")),
        ({"workers": []}, fresh(), ("Jobs are scheduled, but no worker runs them.", "bad")),
        ({"scheduler": "stale"}, fresh(), ("The scheduler has not responded for a while.", "warn")),
        ({"draining": True}, fresh(), ("Workers are draining: running jobs end, and no new ones start.", "warn")),
        ({"dead_letters": 1}, fresh(fresh=1), (f"Jobs run on time, but {FAILED} and waits for a decision.", "warn")),
        ({}, fresh(late=1, very_late=1), ("Jobs run, but 2 sources are late for their rhythm.", "warn")),
        ({}, fresh(fresh=1200, behind=34, off=5), ("Everything runs on time: 1,200 of 1,234 sources are fresh.", "ok")),
        ({}, fresh(fresh=1, new=2), (f"Everything runs on time: 1 of 1 source is fresh, 2 {UNCHECKED}.", "ok")),
        ({}, fresh(new=1, off=1), ("Everything is ready. 1 source has not been checked yet.", "ok")),
        ({}, fresh(), ("Everything is ready.", "ok")),
    ],
)  # fmt: skip
async def test_one_sentence_says_how_things_are(seen: Any, found: FreshnessMap, expected: tuple[str, str]) -> None:
    assert summarise(overview(**seen), found) == expected
