"""A site crawled and committed by a worker, compared with Scrapy and with aiohttp alone.

python run.py bench web [pages] [rounds]

The first run creates a separate environment for Scrapy next to .venv. All of them crawl the same site with the same
concurrency, one after the other in every round. Scrapy stores nothing between crawls, so a second pass would
be the same as its first.
"""

import asyncio
import subprocess
import sys
from pathlib import Path
from statistics import median

import msgspec

from ._measuring import Report, both_servers, folder, interleaved, ratio, run
from ._web import CONCURRENCY, Pass, bare, ours, serving

SCRAPY = "scrapy==2.19.0"
_ENVIRONMENT = Path(__file__).parent.parent / ".venv" / "scrapy"


def scrapy_python() -> Path:
    """Return the Python that has Scrapy."""
    python = _ENVIRONMENT / "bin" / "python"
    if not (_ENVIRONMENT / ".ready").exists():
        print(f"Setting up an environment for {SCRAPY} (once) ...", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", _ENVIRONMENT], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", SCRAPY], check=True)
        (_ENVIRONMENT / ".ready").touch()
    return python


async def scrapy(python: Path, url: str, out: Path) -> Pass:
    """Run one crawl with Scrapy."""
    spider = Path(__file__).parent / "_scrapy_spider.py"
    process = await asyncio.create_subprocess_exec(python, spider, url, str(CONCURRENCY), out, stdout=subprocess.PIPE)
    said, _ = await process.communicate()
    if process.returncode:
        raise SystemExit("Scrapy failed, see above")
    return msgspec.json.decode(said, type=Pass)


async def main(pages: int, rounds: int) -> None:
    report = Report(f"A site of {pages:,} pages, {CONCURRENCY} requests at a time, medians of {rounds} rounds")
    python = scrapy_python()
    with both_servers() as (postgres, _valkey), folder() as place, serving(pages) as url:
        names = iter(range(1_000_000))

        async def by_aiohttp() -> tuple[Pass, ...]:
            return (await bare(url, pages),)

        async def by_scrapy() -> tuple[Pass, ...]:
            return (await scrapy(python, url, place / f"{next(names)}.jsonl"),)

        async def on_sqlite() -> tuple[Pass, ...]:
            return tuple(await ours(url, pages, f"sqlite:///{place}/{next(names)}.db"))

        async def on_postgres() -> tuple[Pass, ...]:
            name = f"web{next(names)}"
            try:
                return tuple(await ours(url, pages, postgres.create_database(name)))
            finally:
                postgres.drop_database(name)

        reference, theirs, *measured = await interleaved(rounds, by_aiohttp, by_scrapy, on_sqlite, on_postgres)
    for name, crawls in zip(("aiohttp", "Scrapy", "SQLite", "PostgreSQL"), (reference, theirs, *measured), strict=True):
        for first, *_ in crawls:
            if first.pages != pages:
                raise SystemExit(f"{name}: {first.pages:,} of {pages:,} pages were read")
    for where, crawls in zip(("SQLite", "PostgreSQL"), measured, strict=True):
        add(report, where, crawls, [one for (one,) in theirs], [one for (one,) in reference])
    report.print()


def add(report: Report, where: str, crawls: list[tuple[Pass, ...]], theirs: list[Pass], reference: list[Pass]) -> None:
    """Add the measurements on one database to the report."""
    first, second = ([crawl[place] for crawl in crawls] for place in (0, 1))
    pages = first[0].pages
    rates, scrapy_rates, bare_rates = ([pages / one.wall for one in of] for of in (first, theirs, reference))
    per_cpu, scrapy_per_cpu, bare_per_cpu = ([pages / one.cpu for one in of] for of in (first, theirs, reference))
    shown = f"{1e6 / median(per_cpu):,.0f} us"
    scrapy_shown, bare_shown = (f"{1e6 / median(of):,.0f} us" for of in (scrapy_per_cpu, bare_per_cpu))
    report.add(
        f"pages a second, {where}", f"{median(rates):,.0f}/s", f"{median(scrapy_rates):,.0f}/s Scrapy",
        ratio(rates, scrapy_rates), "> 1x",
    )  # fmt: skip
    report.add(f"pages a CPU second, {where}", shown, f"{scrapy_shown} Scrapy", ratio(per_cpu, scrapy_per_cpu), "> 1x")
    report.add(
        f"pages a second, {where}", f"{median(rates):,.0f}/s", f"{median(bare_rates):,.0f}/s bare aiohttp",
        ratio(rates, bare_rates),
    )  # fmt: skip
    report.add(f"pages a CPU second, {where}", shown, f"{bare_shown} bare aiohttp", ratio(per_cpu, bare_per_cpu))
    once, again = [one.wall for one in first], [one.wall for one in second]
    report.add(
        f"second pass, nothing has changed, {where}",
        f"{median(again):.2f} s",
        f"{median(once):.2f} s the first",
        f"{ratio(once, again)} as fast",
        ">= 5x",
        figure=ratio(once, again),
    )


if __name__ == "__main__":
    asked = [int(argument) for argument in sys.argv[1:]]
    run(lambda: main(*(asked + [1000, 4][len(asked) :])))
