"""A site is crawled by processes that are killed in mid-crawl: every page is collected once, and none that was kept is
asked for again.

The moments come from a seed, which is printed; FLOODMARK_CHAOS_SEED repeats them.
"""

import random
from collections.abc import AsyncIterator
from typing import Any

import pytest

from chaos.fleet import Fleet, Probe, eventually, shown_at_the_end
from chaos.invariants import check_events, prepare
from chaos.process import Order
from floodmark.testing.web import Site
from web_desk import Desk, opened

PAGES, KILLS = 150, 3
SETTINGS: dict[str, Any] = {
    "execution_lease": "1",
    "scheduler_leader_ttl": "1",
    "execution_rescue_max": 1000,
    # As fast as one page after the other comes, so that there is a middle to be killed in.
    "web_domain_delay": "0",
    "hostname": "chaos",
}


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    """A tree of pages, each with an ETag, and three links on each."""
    async with Site() as site:
        for number in range(PAGES):
            links = [f"/{child}" for child in range(number * 3 + 1, number * 3 + 4) if child < PAGES]
            site.page(path_of(number), f"This is page {number}", links=links, has_etag=True)
        yield site


def path_of(number: int) -> str:
    return f"/{number}" if number else "/"


@pytest.mark.spec("V12", "G3", "G4")
async def test_an_embedded_process_killed_in_mid_crawl_asks_for_no_page_twice(
    fleet: Fleet, chance: random.Random, site: Site, sqlite_url: str
) -> None:
    await crawl_survives(fleet, chance, site, ["up"], {"database_url": sqlite_url})


@pytest.mark.spec("V12", "G3", "G4")
@pytest.mark.thorough
async def test_workers_killed_in_mid_crawl_ask_for_no_page_twice(
    fleet: Fleet, chance: random.Random, site: Site, pg_url: str, redis_url: str
) -> None:
    names = ["scheduler", "worker-1", "worker-2"]
    await crawl_survives(fleet, chance, site, names, {"database_url": pg_url, "redis_url": redis_url})


async def crawl_survives(
    fleet: Fleet, chance: random.Random, site: Site, names: list[str], where: dict[str, Any]
) -> None:
    chosen = {**SETTINGS, **site.settings(), **where}
    await prepare(where["database_url"])
    probe = Probe(where["database_url"])
    async with opened(site, **chosen) as desk:
        job = await desk.job(max_depth=20, concurrency=2)
        for name in names:
            fleet.start(_order(fleet, name, chosen))
        await fleet.ready(*names)
        with shown_at_the_end(fleet, {"kills": KILLS}):
            execution, kept = await desk.ask(job), set[str]()
            for number in range(KILLS):
                await _visited(probe, (number * PAGES + chance.randrange(PAGES)) // (KILLS + 1))
                await _kill_at_work(fleet, probe)
                assert not kept & set(site.paths()), "a page that was kept was asked for again"
                kept = {desk.path(row[0]) for row in await probe.rows("SELECT url FROM pages WHERE crawl = 1")}
                site.forget()
            await _ended(probe, execution)
            assert not kept & set(site.paths()), "a page that was kept was asked for again"
            await _check(desk, probe)
            # A kill may hit a worker between two slices of the crawl.
            assert fleet.counts()["ExecutionsRescued"] + fleet.counts()["ProcessDied"] > 0
            site.forget()
            second = await desk.ask(job)
            await _ended(probe, second)
            result = (await desk.operations.execution(second)).result
            assert result["summary"] == f"visited {PAGES}, unchanged {PAGES}"
            asked = [seen for seen in site.seen if seen.path not in {"/robots.txt", "/sitemap.xml"}]
            # On a busy machine a lease can end in mid-crawl, and the pages under way are asked for again.
            assert {seen.path for seen in asked} == {path_of(number) for number in range(PAGES)}
            assert all("If-None-Match" in seen.headers for seen in asked)
        fleet.stop_all()


def _order(fleet: Fleet, name: str, settings: dict[str, Any]) -> Order:
    return Order(
        name=name,
        settings=settings,
        folder=str(fleet.folder),
        scheduler=not name.startswith("worker"),
        worker=not name.startswith("scheduler"),
    )


async def _visited(probe: Probe, count: int) -> None:
    async def visited() -> int:
        return int(await probe.value("SELECT count(*) FROM pages WHERE crawl = 1"))

    await eventually(visited, lambda seen: seen >= count, seconds=180, what=f"{count} pages visited", every=0.03)


async def _kill_at_work(fleet: Fleet, probe: Probe) -> None:
    """Kill whoever crawls, and start it again."""
    running = {row[0] for row in await probe.rows("SELECT worker FROM executions WHERE state = 'running'")}
    working = {note["process"] for note in fleet.happened("ready") if note["worker"] in running}
    name = next(name for name in (*working, "up", "worker-1") if name in fleet.children)
    fleet.kill(name)
    fleet.start_again(name)


async def _ended(probe: Probe, execution: str) -> None:
    async def state() -> Any:
        return await probe.rows(f"SELECT state, error_message FROM executions WHERE execution_id = '{execution}'")

    await eventually(state, lambda rows: rows[0][0] == "done", seconds=180, what="the crawl is done")


async def _check(desk: Desk, probe: Probe) -> None:
    """Every page is there once, and told once."""
    rows = await probe.rows("SELECT key, revision FROM items")
    assert {desk.path(key) for key, _ in rows} == {path_of(number) for number in range(PAGES)}
    assert {revision for _, revision in rows} == {1}

    async def unsent() -> int:
        return int(await probe.value("SELECT count(*) FROM outbox WHERE position IS NULL"))

    await eventually(unsent, lambda count: count == 0, seconds=120, what="all events sent")
    await check_events(probe)
