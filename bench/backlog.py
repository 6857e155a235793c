"""Executions of one job that wait for each other: a long backlog, compared with a short one.

python run.py bench backlog [executions] [rounds]

One worker drains the backlog while the waker runs, first with the given number of executions and then with ten times as
many. The cost of an execution must not grow with the number of waiting executions.
"""

import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import count as numbers
from statistics import median

import msgspec
from msgspec import Struct
from sqlalchemy import insert

from floodmark.coordination.service import Service, run_services
from floodmark.model.execution import Hold, State
from floodmark.model.ids import new_id
from floodmark.scheduler.requeuer import Waker
from floodmark.settings import Settings
from floodmark.store.tables import job_executions, jobs
from floodmark.wiring.resources import Resources

from ._executions import drain
from ._measuring import Report, Watch, both_servers, floodmark, folder, in_a_process, interleaved, ratio, run, tell


class Place(Struct, kw_only=True):
    """The servers to use, and the number of waiting executions."""

    count: int
    database: str
    redis: str = ""


class Drained(Struct, frozen=True):
    """One measurement."""

    count: int
    drain: Watch


async def given_backlog(resources: Resources, count: int) -> None:
    """Create one job with this many executions that wait for each other."""
    job_id, now = new_id(), datetime.now(UTC)
    job = {"job_id": job_id, "name": "busy", "target": "nothing", "stream": "busy", "schedule_type": "event"}
    waiting = [
        {
            "execution_id": new_id(),
            "job_id": job_id,
            "job_name": "busy",
            "scheduled_for": now + timedelta(seconds=number - count),
            "state": State.WAITING.value,
            "hold": Hold.OVERLAP.value,
            "priority": 2,
        }
        for number in range(count)
    ]
    async with resources.database.writing() as connection:
        await connection.execute(insert(jobs).values(**job, overlap="queue"))
        await connection.execute(insert(job_executions), waiting)


async def drained(place: Place) -> Drained:
    """Measure in this process."""
    settings, watch = Settings(database_url=place.database, redis_url=place.redis or None), Watch()
    async with floodmark(settings) as resources:
        if resources.redis is not None:
            await resources.redis.flushall()
        await given_backlog(resources, place.count)
        waker = Waker(resources.upkeep, resources.queue)
        async with run_services([Service("waker", waker.step, timedelta(seconds=1))], resources.events):
            await drain(resources, place.count, watch)
    return Drained(place.count, watch)


async def main(count: int = 200, rounds: int = 3) -> None:
    names = numbers()
    with both_servers() as (postgres, valkey), folder() as place:

        async def on_servers(count: int) -> Drained:
            name = f"backlog{next(names)}"
            try:
                database = postgres.create_database(name)
                told = Place(count=count, database=database, redis=valkey.url)
                return await in_a_process(__spec__.name, "drain", told, Drained)
            finally:
                postgres.drop_database(name)

        async def embedded(count: int) -> Drained:
            told = Place(count=count, database=f"sqlite:///{place}/{next(names)}.db")
            return await in_a_process(__spec__.name, "drain", told, Drained)

        found = await interleaved(
            rounds,
            lambda: on_servers(count),
            lambda: on_servers(10 * count),
            lambda: embedded(count),
            lambda: embedded(10 * count),
        )
    report = Report(f"a backlog of one job, {rounds} interleaved rounds, a process each")
    _add(report, "Redis + PostgreSQL", *found[:2])
    _add(report, "embedded on SQLite", *found[2:])
    report.print()


def _add(report: Report, where: str, short: Sequence[Drained], long: Sequence[Drained]) -> None:
    report.add(f"drain rate, {short[0].count:,} waiting, {where}", f"{_rate(short):,.0f}/s")
    report.add(f"drain rate, {long[0].count:,} waiting, {where}", f"{_rate(long):,.0f}/s")
    report.add(
        f"CPU per execution, {long[0].count:,} waiting, {where}",
        f"{median(map(_cpu, long)):.0f} us",
        f"{median(map(_cpu, short)):.0f} us with {short[0].count:,} waiting",
        ratio(map(_cpu, long), map(_cpu, short)),
        "<= 1.3x",
    )


def _rate(of: Sequence[Drained]) -> float:
    return median(one.count / one.drain.wall for one in of)


def _cpu(one: Drained) -> float:
    return one.drain.cpu / one.count * 1e6


async def _measure(told: str) -> None:
    tell(await drained(msgspec.json.decode(told, type=Place)))


if __name__ == "__main__":
    if sys.argv[1:2] == ["drain"]:
        run(lambda: _measure(sys.argv[2]))
    else:
        arguments = [int(argument) for argument in sys.argv[1:]]
        run(lambda: main(*arguments))
