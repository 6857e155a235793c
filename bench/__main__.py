"""Run every benchmark that has a target, and print one table of all targets with their verdicts.

python run.py bench [--only NAME,NAME] [--save]

It takes about an hour on two cores that have nothing else to do. `--save` stores the lines in `bench/results.json`.
"""

import argparse
import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
from msgspec import Struct

from ._measuring import RESULTS, Report, Row

SAVED = Path(__file__).with_name("results.json")
# The benchmarks with targets, and the sizes that this run gives them.
SUITE: Mapping[str, Sequence[str]] = {
    "executions": ("8000", "5"),
    "latency": (),
    "fire": (),
    "scale": (),
    "items": (),
    "backlog": (),
    "adaptive": (),
    "recovery": (),
    "api": (),
    "telemetry": (),
    "telegram": (),
    "media": (),
    "web": (),
    "bulk": (),
    "sinks": (),
    "watches": (),
    "search": (),
    "reads": (),
    "dashboard": (),
}


class Result(Struct, frozen=True):
    """The lines of one benchmark, with the day and the machine of the run."""

    benchmark: str
    arguments: Sequence[str]
    day: str
    machine: str
    rows: Sequence[Row]


def run_benchmark(name: str, arguments: Sequence[str], place: Path) -> Result:
    """Run a benchmark in a process of its own, which prints its tables."""
    collected = place / f"{name}.jsonl"
    print(f"\n{name} {' '.join(arguments)}".rstrip(), flush=True)
    done = subprocess.run(
        [sys.executable, "-m", f"bench.{name}", *arguments], env={**os.environ, RESULTS: str(collected)}, check=False
    )
    lines = collected.read_bytes().splitlines() if collected.exists() else []
    rows = [msgspec.json.decode(line, type=Row) for line in lines]
    if done.returncode:
        rows.append(Row(f"bench {name}", f"failed with code {done.returncode}", target="ends", is_met=False))
    machine = f"{os.cpu_count()} cores, {platform.system()}, CPython {platform.python_version()}"
    return Result(name, arguments, f"{datetime.now(UTC):%Y-%m-%d}", machine, rows)


def print_summary(results: Sequence[Result]) -> bool:
    """Print the lines that have a target; return whether all are met."""
    report = Report("all targets")
    report.rows += [row for result in results for row in result.rows if row.is_met is not None]
    report.print()
    missed = sum(not row.is_met for row in report.rows)
    print(f"{len(report.rows) - missed} of {len(report.rows)} targets are met.")
    return missed == 0


def main() -> int:
    """Run the benchmarks that the arguments choose."""
    parser = argparse.ArgumentParser(prog="run.py bench")
    parser.add_argument("--only", default=",".join(SUITE), help="names of benchmarks, separated by commas")
    parser.add_argument("--save", action="store_true", help="store the lines in bench/results.json")
    given = parser.parse_args()
    names = given.only.split(",")
    if unknown := sorted(set(names) - set(SUITE)):
        parser.error(f"{', '.join(unknown)}: not a benchmark with a target; choose from {', '.join(SUITE)}")
    with TemporaryDirectory(prefix="floodmark-bench-") as place:
        results = [run_benchmark(name, SUITE[name], Path(place)) for name in names]
    if given.save:
        save(results)
    return 0 if print_summary(results) else 1


def save(results: Sequence[Result]) -> None:
    """Replace the stored lines of these benchmarks; those of others stay."""
    stored = msgspec.json.decode(SAVED.read_bytes(), type=list[Result]) if SAVED.exists() else []
    by_name = {result.benchmark: result for result in (*stored, *results)}
    kept = [by_name[name] for name in SUITE if name in by_name]
    SAVED.write_bytes(msgspec.json.format(msgspec.json.encode(kept), indent=1) + b"\n")


if __name__ == "__main__":
    sys.exit(main())
