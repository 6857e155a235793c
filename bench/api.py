"""Requests to the API, compared with plain FastAPI routes, and how late jobs start in `floodmark up` under load.

python run.py bench api [requests] [rounds]

Lists 50 of 100,000 and of 1,000 jobs, and creates jobs. For the second part, 64 clients list jobs.
"""

import sys
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from statistics import median

from floodmark.model.page import cursor_of
from floodmark.operations.stored_tokens import Tokens
from floodmark.settings import Settings

from ._measuring import Report, both_servers, floodmark, folder, interleaved, run
from ._serving import Load, load, request, serving
from ._working import Lateness, given_interval_jobs, lateness, working
from .scale import fill

SMALL, LARGE = 1_000, 100_000
CONNECTIONS, PAGE = 8, 50
# Pages from the whole list, so that requests differ.
PLACES = 20
# The load of `floodmark up`: jobs that are due every ten seconds, and clients.
WORKING, CLIENTS, SECONDS = 300, 64, 10.0


@dataclass
class Api:
    """A process that serves a number of jobs, and a token for it."""

    url: str
    token: str
    jobs: int

    def listing(self, requests: int) -> list[bytes]:
        names = sorted(f"job-{number}" for number in range(1, self.jobs + 1))
        marks = [names[place * (self.jobs - PAGE) // PLACES] for place in range(PLACES)]
        pages = [f"/api/v2/jobs?limit={PAGE}&cursor={cursor_of('jobs', mark)}" for mark in marks]
        return [request("GET", pages[number % PLACES], self.token) for number in range(requests)]

    def creating(self, requests: int, numbers: Iterator[int]) -> list[bytes]:
        return [request("POST", "/api/v2/jobs", self.token, _new(next(numbers))) for _ in range(requests)]

    def get(self, raw: bytes) -> bytes:
        """Return the response to a request of `listing`."""
        path = raw.split()[1].decode()
        asked = urllib.request.Request(f"{self.url}{path}", headers={"Authorization": f"Bearer {self.token}"})
        with urllib.request.urlopen(asked) as answer:
            return bytes(answer.read())


async def measure(report: Report, where: str, databases: tuple[str, str], requests: int, rounds: int) -> None:
    """Measure both numbers of jobs and the plain routes in turns, round by round."""
    with ExitStack() as stack, folder() as place:
        small, large = [
            Api(token=await _filled(url, jobs), url=stack.enter_context(serving(url)), jobs=jobs)
            for url, jobs in zip(databases, (SMALL, LARGE), strict=True)
        ]
        bare = stack.enter_context(serving("bare", *_answers(large, place)))
        numbers = count(1)
        few, many = small.listing(requests), large.listing(requests)
        listing, ready = ([request("GET", f"/{name}?limit={PAGE}", "")] * requests for name in ("jobs", "ready"))
        made = [request("POST", "/jobs", "", _new(number)) for number in range(requests)]
        results = await interleaved(
            rounds,
            lambda: load(bare, listing, CONNECTIONS, 200),
            lambda: load(bare, ready, CONNECTIONS, 200),
            lambda: load(small.url, few, CONNECTIONS, 200),
            lambda: load(large.url, many, CONNECTIONS, 200),
            lambda: load(bare, made, CONNECTIONS, 201),
            lambda: load(large.url, large.creating(requests, numbers), CONNECTIONS, 201),
        )
    plain, encoded, at_small, at_large, bare_made, ours_made = results
    few_of_many = f"list {PAGE} of {LARGE:,}, {where}"
    _compare(report, few_of_many, at_large, (plain, "a bare route that encodes the same"))
    _compare(report, few_of_many, at_large, (encoded, "a bare route with the bytes at hand"))
    _compare(report, few_of_many, at_large, (at_small, f"{PAGE} of {SMALL:,}"), ">= 0.8x")
    _compare(report, f"make a job, {where}", ours_made, (bare_made, "a bare route that answers the same"))


async def measure_work(report: Report, where: str, database: str, rounds: int) -> None:
    """Measure how late jobs start without and with clients, in turns."""
    async with floodmark(Settings(database_url=database)) as resources:
        await given_interval_jobs(resources, WORKING)
        with working(database) as url:
            await lateness(resources, url, seconds=SECONDS, clients=0)
            idle, asked = await interleaved(
                rounds,
                lambda: lateness(resources, url, seconds=SECONDS, clients=0),
                lambda: lateness(resources, url, seconds=SECONDS, clients=CLIENTS),
            )
    together = Lateness.of_all(asked).p99 / Lateness.of_all(idle).p99
    ratios = sorted(one.p99 / other.p99 for one, other in zip(asked, idle, strict=True))
    shown = f"{together:.2f}x ({ratios[0]:.2f}-{ratios[-1]:.2f})"
    what = f"due to started, {WORKING // 10} a second, {CLIENTS} clients, {where}"
    report.add(what, _late(asked), f"{_late(idle)}: no clients", shown, "p99 <= 1.5x", figure=together)


def _late(found: Sequence[Lateness]) -> str:
    together = Lateness.of_all(found)
    return f"{together}, {together.answered / (len(found) * SECONDS):.0f} answers/s"


def _new(number: int) -> dict[str, object]:
    return {"name": f"new-{number}", "source": "python", "target": "feeds:news", "interval_seconds": 900}


async def _filled(url: str, jobs: int) -> str:
    async with floodmark(Settings(database_url=url)) as resources:
        await fill(resources, 1, jobs)
        return (await Tokens(resources.database, resources.clock).add("bench", "admin")).text


def _answers(api: Api, place: Path) -> Iterator[str]:
    """Write the responses of the API to files, for the plain routes."""
    page = api.get(api.listing(1)[0])
    job = api.get(request("GET", "/api/v2/jobs/job-1", api.token))
    for name, body in (("page", page), ("job", job)):
        (place / name).write_bytes(body)
        yield str(place / name)


def _compare(
    report: Report, what: str, ours: Sequence[Load], beside: tuple[Sequence[Load], str], target: str = ""
) -> None:
    others, named = beside
    ratios = [one.rate / other.rate for one, other in zip(ours, others, strict=True)]
    slower = [one.p99 / other.p99 for one, other in zip(ours, others, strict=True)]
    shown = f"{median(ratios):.2f}x ({min(ratios):.2f}-{max(ratios):.2f}), p99 {median(slower):.1f}x"
    report.add(what, _shown(ours), f"{_shown(others)}: {named}", shown, target, figure=median(ratios))


def _shown(loads: Sequence[Load]) -> str:
    rates, slow = [one.rate for one in loads], median(one.p99 for one in loads)
    return f"{median(rates):,.0f}/s ({min(rates):,.0f}-{max(rates):,.0f}), p99 {slow:.0f} ms"


async def main(requests: int = 400, rounds: int = 5) -> None:
    report = Report(f"the API, {requests:,} requests over {CONNECTIONS} connections, median (range) of {rounds} rounds")
    with both_servers() as (postgres, _), folder() as place:
        on_server = (postgres.create_database("small"), postgres.create_database("large"))
        embedded = (f"sqlite:///{place}/small.db", f"sqlite:///{place}/large.db")
        await measure(report, "PostgreSQL", on_server, requests, rounds)
        await measure(report, "SQLite", embedded, requests, rounds)
        await measure_work(report, "PostgreSQL", postgres.create_database("working"), rounds)
        await measure_work(report, "SQLite", f"sqlite:///{place}/working.db", rounds)
    report.print()


if __name__ == "__main__":
    arguments = [int(argument) for argument in sys.argv[1:]]
    run(lambda: main(*arguments))
