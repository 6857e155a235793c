"""The processes of the web benchmark: a site, a plain loop of aiohttp, and a Floodmark worker.

Each gets its task as one JSON argument and prints its result as JSON. The site prints its address and ends when its
standard input ends.
"""

import asyncio
import hashlib
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import msgspec
import structlog
from aiohttp import ClientSession, TCPConnector, web
from msgspec import Struct

from floodmark import Floodmark
from floodmark.model.job import Job, ScheduleType, When
from floodmark.model.spec import JobSpec
from floodmark.observability.events import ExecutionSettled
from floodmark.observability.logs import LogListener, configure
from floodmark.repositories.jobs import Jobs
from floodmark.settings import Settings
from floodmark.testing.serving import served
from floodmark.testing.web.documents import document
from floodmark.wiring.resources import Resources

from ._measuring import Watch, in_a_process, migrated, run, tell

CONCURRENCY = 16
_SENTENCE = "The harbour operations says that the tide of number {} came in at noon and left with the evening ferry. "


class Wanted(Struct, kw_only=True):
    """A site with a number of pages to crawl. A worker stores it in `database_url`."""

    url: str = ""
    pages: int = 0
    database_url: str = ""


class Pass(Struct, kw_only=True):
    """One pass over a site, and the cost for the process."""

    pages: int
    wall: float
    cpu: float


@contextmanager
def serving(pages: int) -> Iterator[str]:
    """Run a site in its own process and yield its address."""
    with _started("serve", Wanted(pages=pages)) as process:
        assert process.stdout is not None
        yield msgspec.json.decode(process.stdout.readline(), type=Wanted).url
        process.communicate()


async def bare(url: str, pages: int) -> Pass:
    """Fetch every page and discard it."""
    return await in_a_process(__spec__.name, "bare", Wanted(url=url, pages=pages), Pass)


async def ours(url: str, pages: int, database_url: str) -> Sequence[Pass]:
    """Crawl the site twice: first all pages are new, then unchanged."""
    wanted = Wanted(url=url, pages=pages, database_url=database_url)
    return await in_a_process(__spec__.name, "worker", wanted, tuple[Pass, Pass])


def _started(role: str, told: Struct) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", __spec__.name, role, msgspec.json.encode(told).decode()]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


# The code of these processes


def page(number: int, pages: int) -> bytes:
    """Return a page of about 60 KB, like an article: menus with a hundred links, styles and scripts, 20 KB of text."""
    links = "".join(
        f'<li class="menu__entry menu__entry--level-2"><a class="menu__link" href="/page/{to}">Page {to}</a></li>\n'
        for to in ((number * 7 + step) % pages for step in range(1, 101))
    )
    text = "\n\n".join(_SENTENCE.format(number * 100 + part) * 4 for part in range(50))
    rules = "\n".join(f".menu__entry--level-{n} {{ margin: {n}px; color: #{n:06x} }}" for n in range(250))
    data = "".join(f'{{"@type":"ListItem","position":{n},"name":"Harbour {n}"}},' for n in range(200))
    head = (
        '<meta name="author" content="A. Harbour">'
        f'<meta property="og:title" content="Page {number}"><meta property="og:type" content="article">'
        f'<meta property="article:published_time" content="2026-05-{number % 28 + 1:02}T12:00:00Z">'
        f'<style>{rules}</style><script type="application/json">[{data}0]</script>'
    )
    return document(f"Page {number}", text, head=head, body=f"<aside><ul>{links}</ul></aside>").encode()


async def serve(wanted: Wanted) -> None:
    """Serve pages that are created in advance, so that the site uses as little CPU as possible."""
    bodies = {f"/page/{number}": page(number, wanted.pages) for number in range(wanted.pages)}
    tags = {path: f'"{hashlib.sha256(body).hexdigest()[:16]}"' for path, body in bodies.items()}

    async def answer(request: web.Request) -> web.Response:
        body = bodies.get(request.path)
        if body is None:
            return web.Response(status=404)
        tag = tags[request.path]
        if request.headers.get("If-None-Match") == tag:
            return web.Response(status=304, headers={"ETag": tag})
        return web.Response(body=body, content_type="text/html", charset="utf-8", headers={"ETag": tag})

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    tell(Wanted(url=f"http://127.0.0.1:{runner.addresses[0][1]}/page/0"))
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await runner.cleanup()


async def fetch_all(wanted: Wanted) -> None:
    """Measure the reference: aiohttp alone. It knows the URLs in advance."""
    base, watch, numbers, fetched = wanted.url.removesuffix("0"), Watch(), iter(range(wanted.pages)), 0

    async def fetcher(session: ClientSession) -> None:
        nonlocal fetched
        for number in numbers:
            async with session.get(f"{base}{number}") as response:
                await response.read()
                fetched += response.status == 200

    async with ClientSession(connector=TCPConnector(limit=CONCURRENCY)) as session:
        with watch.running():
            await asyncio.gather(*(fetcher(session) for _ in range(CONCURRENCY)))
    tell(Pass(pages=fetched, wall=watch.wall, cpu=watch.cpu))


async def work(wanted: Wanted) -> None:
    """Measure Floodmark: a worker crawls the site and stores it, twice."""
    settings = Settings(
        database_url=wanted.database_url,
        hostname="bench",
        log_level="warning",
        http_allow_hosts="127.0.0.1",
        web_domain_concurrency=CONCURRENCY,
    )
    await migrated(settings)
    app = Floodmark(settings)
    configure(settings.log_level, settings.log_format)
    LogListener(structlog.get_logger()).attach(app.internal_events)
    async with served(app, scheduler=False) as (resources, _):
        job = await Jobs(resources.database, resources.clock).add(
            JobSpec(
                source="web",
                target=wanted.url,
                when=When(schedule_type=ScheduleType.EVENT),
                # No limit and no delay: the site is on loopback.
                params={"delay": 0, "max_pages": wanted.pages * 2, "max_depth": 50},
            )
        )
        passes = [await _crawl(resources, job), await _crawl(resources, job)]
    print(msgspec.json.encode(passes).decode(), flush=True)


async def _crawl(resources: Resources, job: Job) -> Pass:
    jobs, over, watch = Jobs(resources.database, resources.clock), asyncio.get_running_loop().create_future(), Watch()
    ignore = resources.events.listen(ExecutionSettled, over.set_result)
    with watch.running():
        forced = await jobs.force_run(job)
        await resources.queue.put([forced.queued] if forced.queued else [])
        ended: ExecutionSettled = await over
    ignore()
    if ended.status != "done":
        raise SystemExit(f"the crawl is {ended.status}: {ended.error}")
    return Pass(pages=ended.new, wall=watch.wall, cpu=watch.cpu)


if __name__ == "__main__":
    role, told = sys.argv[1:]
    asked = msgspec.json.decode(told, type=Wanted)
    run(lambda: {"serve": serve, "bare": fetch_all, "worker": work}[role](asked))
