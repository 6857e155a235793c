"""CPU time of the metrics per no-op execution.

python run.py bench telemetry [executions] [rounds]
"""

import sys
from collections.abc import Sequence
from itertools import count as numbers
from statistics import median

from ._executions import Place
from ._measuring import Report, folder, interleaved, ratio, run
from ._telemetry import Cost, Role, measured


async def main(count: int = 5_000, rounds: int = 7) -> None:
    names = numbers()
    with folder() as place:

        async def one(role: Role) -> Cost:
            return await measured(role, Place(count=count, database=f"sqlite:///{place}/{next(names)}.db"))

        watched, unwatched, replayed = await interleaved(
            rounds, lambda: one("watched"), lambda: one("unwatched"), lambda: one("replayed")
        )
    report = Report(f"{count:,} no-op executions on SQLite, median (range) of {rounds} interleaved rounds")
    beside = f"{_micro(unwatched):.0f} us, nobody listens"
    report.add(
        "events told to the metrics, per execution",
        f"{_micro(replayed):.1f} us",
        beside,
        _share(replayed, unwatched),
        "< 3 %",
        figure=100 * ratio(map(_each, replayed), map(_each, unwatched)),
    )
    report.add(
        "worker CPU per execution, metrics attached",
        f"{_micro(watched):.0f} us",
        beside,
        ratio(map(_each, watched), map(_each, unwatched)),
    )
    report.print()


def _each(cost: Cost) -> float:
    return cost.cpu / cost.count * 1e6


def _micro(costs: Sequence[Cost]) -> float:
    return median(map(_each, costs))


def _share(ours: Sequence[Cost], reference: Sequence[Cost]) -> str:
    found = [100 * _each(one) / _each(other) for one, other in zip(ours, reference, strict=True)]
    return f"{median(found):.1f} % ({min(found):.1f}-{max(found):.1f})"


if __name__ == "__main__":
    arguments = [int(argument) for argument in sys.argv[1:]]
    run(lambda: main(*arguments))
