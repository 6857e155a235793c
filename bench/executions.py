"""No-op executions with full history, compared with raw loops without history.

python run.py bench executions [executions] [rounds]

Each measurement is a separate process. A ratio is the median of the ratios of the rounds.
"""

import sys
from collections.abc import Callable, Sequence
from itertools import count as numbers
from statistics import median

from msgspec import Struct

from ._executions import Place, Role, Round, measured
from ._measuring import Report, both_servers, folder, interleaved, ratio, run


class Figures(Struct, frozen=True):
    """The measurements of the references and of Floodmark, round by round."""

    batched: Sequence[Round]
    servers: Sequence[Round]
    alone: Sequence[Round]
    postgres: Sequence[Round]
    single: Sequence[Round]
    sqlite: Sequence[Round]
    embedded: Sequence[Round]


async def main(count: int = 20_000, rounds: int = 5) -> None:
    names = numbers()
    with both_servers() as (postgres, valkey), folder() as place:

        async def on_postgres(role: Role, redis: str = "") -> Round:
            name = f"bench{next(names)}"
            try:
                database = postgres.create_database(name)
                return await measured(role, Place(count=count, database=database, redis=redis, server=postgres.pid))
            finally:
                postgres.drop_database(name)

        found = await interleaved(
            rounds,
            lambda: measured("batched", Place(count=count, redis=valkey.url)),
            lambda: on_postgres("worker", valkey.url),
            lambda: on_postgres("worker"),
            lambda: on_postgres("postgres"),
            lambda: measured("single", Place(count=count // 4, redis=valkey.url)),
            lambda: measured("sqlite", Place(count=count, database=f"{place}/{next(names)}.db")),
            lambda: measured("worker", Place(count=count, database=f"sqlite:///{place}/{next(names)}.db")),
        )
    report = Report(f"{count:,} no-op executions, median (range) of {rounds} interleaved rounds, a process each")
    _add_cpu(report, Figures(*found))
    _add_rates(report, Figures(*found))
    report.print()


def _add_cpu(report: Report, found: Figures) -> None:
    def add(where: str, ours: Sequence[Round], reference: Sequence[Round], beside: str, target: str) -> None:
        report.add(
            f"worker CPU per execution, {where}, full history",
            f"{_median(ours, _cpu):.0f} us",
            f"{_median(reference, _cpu):.0f} us {beside}",
            ratio(map(_cpu, ours), map(_cpu, reference)),
            target,
        )

    add("Redis + PostgreSQL", found.servers, found.batched, "raw batched loop, a task a job", "<= 4x")
    add("PostgreSQL alone", found.alone, found.batched, "raw batched loop, a task a job", "<= 4x")
    add("embedded on SQLite", found.embedded, found.sqlite, "raw SQLite loop", "<= 5x")

    for where, ours, most in (
        ("Redis + PostgreSQL", found.servers, 60),
        ("PostgreSQL alone", found.alone, 60),
        ("embedded on SQLite", found.embedded, 65),
    ):
        cost = _median(ours, _cpu)
        report.add(f"the same in microseconds, {where}", f"{cost:.0f} us", target=f"<= {most} us", figure=cost)

    # Unknown for a server that was not started here.
    known = (
        (("Redis + PostgreSQL", found.servers), ("PostgreSQL alone", found.alone)) if found.postgres[0].server else ()
    )
    for where, ours in known:
        report.add(
            f"server CPU of PostgreSQL per execution, {where}: fire, claim, settle",
            f"{_median(ours, _server):.0f} us",
            f"{_median(found.postgres, _server):.0f} us raw PostgreSQL loop",
            ratio(map(_server, ours), map(_server, found.postgres)),
            "<= 6x",
        )
        used = _median(ours, _server)
        report.add(f"the same in microseconds, {where}", f"{used:.0f} us", target="<= 100 us", figure=used)


def _add_rates(report: Report, found: Figures) -> None:
    for where, ours in (("Redis + PostgreSQL", found.servers), ("PostgreSQL alone", found.alone)):
        report.add(
            f"drain rate, one worker process, {where}",
            f"{_median(ours, _rate):,.0f}/s",
            f"{_median(found.single, _rate):,.0f}/s raw loop, one at a time",
            ratio(map(_rate, ours), map(_rate, found.single)),
            ">= 4x",
        )
    report.add(
        "drain rate, embedded on SQLite",
        f"{_median(found.embedded, _rate):,.0f}/s",
        f"{_median(found.sqlite, _rate):,.0f}/s raw SQLite loop",
    )
    report.add(
        "fired in bulk (row + stream entry), Redis + PostgreSQL",
        f"{_median(found.servers, _made):,.0f}/s",
        f"{_median(found.batched, _made):,.0f}/s raw batched XADD",
        ratio(map(_made, found.servers), map(_made, found.batched)),
        ">= 0.5x",
    )
    for where, ours in (
        ("Redis + PostgreSQL", found.servers),
        ("PostgreSQL alone", found.alone),
        ("embedded on SQLite", found.embedded),
    ):
        made = _median(ours, _made)
        report.add(f"fired in bulk, per second, {where}", f"{made:,.0f}/s", target=">= 20,000/s", figure=made)


def _cpu(one: Round) -> float:
    return one.drain.cpu / one.count * 1e6


def _server(one: Round) -> float:
    return one.server / one.count * 1e6


def _rate(one: Round) -> float:
    return one.count / one.drain.wall


def _made(one: Round) -> float:
    return one.made_per_second


def _median(of: Sequence[Round], figure: Callable[[Round], float]) -> float:
    return median(map(figure, of))


if __name__ == "__main__":
    arguments = [int(argument) for argument in sys.argv[1:]]
    run(lambda: main(*arguments))
