"""Every page of the dashboard in a large installation, and how late jobs start while 20 dashboards are open.

python run.py bench dashboard [jobs] [executions] [items] [rounds]

With 0 rounds only the pages are measured.

The process that serves pages does nothing else. For the second part, `floodmark up` schedules, works and serves pages
in one process, or another process serves the pages. Every open dashboard holds the live feed and asks for its page
again when something happens.
"""

import re
import sys
import time
from collections.abc import Awaitable, Callable
from statistics import median

from sqlalchemy import text

from floodmark.dashboard.page import DashboardPage
from floodmark.dashboard.routes import PAGES
from floodmark.operations.overview import OverviewReader
from floodmark.repositories.freshness import FreshnessReader
from floodmark.search.indexer import Indexer
from floodmark.settings import Settings
from floodmark.wiring.resources import Resources

from ._dashboards import Browser, open_dashboards, serving_pages
from ._delivering import SHOWN, fill_delivery
from ._filling import Sizes, fill
from ._measuring import Report, both_servers, floodmark, folder, interleaved, run
from ._painting import measure_painting
from ._working import Lateness, given_interval_jobs, lateness, working

ASKED, TARGET = 7, 300.0
WORKING, DASHBOARDS, SECONDS = 300, 20, 20.0
# Pages that people leave open.
LEFT_OPEN = ("/", "/jobs", "/", "/workers", "/")
# The parts of a path, by the names that pages give them.
PLACES = {
    "job": "job" + "7".zfill(29),
    "job_id": "job" + "7".zfill(29),
    "budget": "news",
    "name": SHOWN,
    "stream": "source-0000007",
    "source": "web",
    "watch": SHOWN,
}


# Searches and filters that people use.
ALSO = (
    "/collected?q=post",
    "/collected?q=post&order=rank",
    "/collected?q=nothing",
    "/collected?source=web",
    "/collected?tag=news",
    "/collected?stream=source-00000*",
    "/collected?since=30d",
    "/find?q=post",
)


async def measure_pages(report: Report, where: str, resources: Resources, database: str, sizes: Sizes) -> None:
    """Ask for every page several times: the shortest, the median and the longest time.

    Each request differs, so that none shares the result of another.
    """
    newest = "SELECT execution_id FROM executions ORDER BY execution_id DESC LIMIT 1"
    async with resources.database.reading() as connection:
        execution = (await connection.execute(text(newest))).scalar_one()
    # The first item of the stream.
    key = f"{6 * sizes.items // sizes.jobs + 1:09}"
    places = {**PLACES, "execution": execution, "execution_id": execution, "key": key}
    paths = {page.path: path_of(page, places) for page in PAGES} | {path: path for path in ALSO}
    with serving_pages(database) as url:
        browser = Browser(url)
        for name, path in paths.items():
            if path is None:
                report.add(f"{name}, {where}", "not measured")
                continue
            # The first request of a process compiles the template.
            more = "&" if "?" in path else "?"
            answers = [await browser.get(f"{path}{more}_={number}") for number in range(ASKED + 1)][1:]
            if any(answer.status != 200 for answer in answers):
                report.add(f"{name}, {where}", f"answers {answers[-1].status}")
                continue
            took = [answer.took for answer in answers]
            size = f"{len(answers[-1].content) / 1000:.0f} KB"
            slow = "" if max(took) <= TARGET else "  SLOW"
            times = f"{min(took):.0f} / {median(took):.0f} / {max(took):.0f} ms{slow}"
            report.add(f"{name}, {where}", times, size, "", "<= 300 ms", figure=median(took))
        browser.close()
        await measure_painting(report, where, f"{url}/")


def path_of(page: DashboardPage, places: dict[str, str]) -> str | None:
    """Return a path of a page; None if it has a part that is not known here, or is a download."""
    names = re.findall(r"{(\w+)(?::\w+)?}", page.path)
    if "GET" not in page.methods or page.path == "/export/file" or any(name not in places for name in names):
        return None
    return re.sub(r"{(\w+)(?::\w+)?}", lambda found: places[found[1]], page.path)


async def measure_leader(report: Report, where: str, resources: Resources, sizes: Sizes) -> None:
    """Measure what the leader does now and then, so that no request has to."""
    repositories = resources.repositories

    async def until_done(count: Callable[[], Awaitable[bool]]) -> None:
        while await count():
            pass

    async def timed(what: str, work: Callable[[], Awaitable[object]]) -> None:
        began = time.perf_counter()
        await work()
        report.add(f"{what}, {where}", f"{(time.perf_counter() - began) * 1000:,.0f} ms")

    overview = OverviewReader(resources.database, resources.clock, repositories)
    freshness = FreshnessReader(resources.database, resources.clock)
    await timed(f"count {sizes.items:,} stored items by day, once", lambda: until_done(repositories.days.count))
    await timed("count the executions of a day by the minute, once", lambda: until_done(repositories.minutes.count))
    await timed("count the minutes that are due", repositories.minutes.count)
    await timed("count new items", repositories.days.count)
    indexer = resources.search.indexer(resources.events, rests=False)
    await timed(f"index {sizes.items:,} stored items, once", lambda: until_done(lambda: _has_more(indexer)))
    await timed("measure freshness and failures", overview.measure)
    await timed("measure delays of adaptive jobs", freshness.measure)


async def _has_more(indexer: Indexer) -> bool:
    return await indexer.step() is not None


async def measure_lateness(report: Report, where: str, resources: Resources, database: str, rounds: int) -> None:
    """Measure how late jobs start without and with open dashboards, in turns.

    `floodmark up` serves the dashboards itself; a separate `floodmark api` leaves it the jobs.
    """
    async with resources.database.writing() as connection:
        # They run whenever their budget allows it, which is not what is measured here.
        await connection.execute(text("UPDATE jobs SET paused = true WHERE schedule_type = 'adaptive'"))
    await given_interval_jobs(resources, WORKING)
    with working(database) as url, serving_pages(database) as apart:
        watched = {"served by the same process": _Watched(resources, url, url)}
        watched["served by another process"] = _Watched(resources, url, apart)
        # The first page of a process takes long: routes and templates are compiled.
        for one in watched.values():
            await one.warm_up()

        async def unwatched() -> Lateness:
            return await lateness(resources, url, seconds=SECONDS, clients=0)

        await unwatched()
        alone, *others = await interleaved(rounds, unwatched, *(one.measure for one in watched.values()))
    until: dict[str, Callable[[Lateness], float]] = {
        "fired": lambda late: late.fired_p99,
        "started": lambda late: late.p99,
    }
    for (how, one), found in zip(watched.items(), others, strict=True):
        with_pages, without = Lateness.of_all(found), Lateness.of_all(alone)
        for moment, p99 in until.items():
            ratio = p99(with_pages) / p99(without)
            each = sorted(p99(one) / p99(other) for one, other in zip(found, alone, strict=True))
            report.add(
                f"due to {moment}, {WORKING // 10} a second, {DASHBOARDS} dashboards {how}, {where}",
                f"p99 {p99(with_pages):.1f} ms, {with_pages.notes}, {median(one.refreshed):.0f} pages/s",
                f"p99 {p99(without):.1f} ms, {without.notes}: none open",
                f"{ratio:.2f}x ({each[0]:.2f}-{each[-1]:.2f})",
                "p99 <= 1.2x",
                figure=ratio,
            )


class _Watched:
    """Lateness while dashboards are open, and the pages per second that they asked for."""

    def __init__(self, resources: Resources, url: str, pages_url: str) -> None:
        self._resources, self._url, self._pages_url = resources, url, pages_url
        self.refreshed: list[float] = []

    async def warm_up(self) -> None:
        browser = Browser(self._pages_url)
        for path in dict.fromkeys(LEFT_OPEN):
            await browser.get(path)
        browser.close()

    async def measure(self) -> Lateness:
        paths = [LEFT_OPEN[number % len(LEFT_OPEN)] for number in range(DASHBOARDS)]
        async with open_dashboards(self._pages_url, paths) as pages:
            found = await lateness(self._resources, self._url, seconds=SECONDS, clients=0)
        self.refreshed.append(sum(page.refreshed for page in pages) / SECONDS)
        return found


async def main(jobs: int = 20_000, executions: int = 500_000, items: int = 500_000, rounds: int = 5) -> None:
    sizes = Sizes(jobs, executions, items)
    report = Report(f"the dashboard of {jobs:,} jobs, {executions:,} executions and {items:,} items")
    with both_servers() as (postgres, _), folder() as place:
        databases = {"PostgreSQL": postgres.create_database("dashboard"), "SQLite": f"sqlite:///{place}/dashboard.db"}
        for where, database in databases.items():
            async with floodmark(Settings(database_url=database)) as resources:
                await fill(resources, sizes)
                await fill_delivery(resources)
                await measure_leader(report, where, resources, sizes)
                await measure_pages(report, where, resources, database, sizes)
                if rounds:
                    await measure_lateness(report, where, resources, database, rounds)
    report.print()


if __name__ == "__main__":
    arguments = [int(argument) for argument in sys.argv[1:]]
    run(lambda: main(*arguments))
