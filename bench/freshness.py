"""How soon posts are found with the same number of requests: adaptive, uniform, and by the square-root law.

python run.py bench freshness [TRACE.csv.gz] [minutes between two polls of a source] [share of time lost to rate limits]

Replays posting times against the rules that decide in the product, with a virtual clock. A trace has two columns: the
number of the source and the Unix second of a post. Without one, a fleet of 100 sources with a daily rhythm is drawn.
"""

import csv
import gzip
import math
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from floodmark.rules.freshness import gain_of_square_root
from floodmark.rules.replay import AdaptivePolling, Trace, measure_delays, poll_regularly

from ._measuring import Report, percentile

HOUR, DAY = 3600.0, 86400.0
SHORTEST_WINDOW = 28 * DAY
QUANTILES = (("median", 50), ("p95", 95), ("p99", 99))


def main(arguments: Sequence[str]) -> None:
    """Replay and print."""
    trace = read_trace(Path(arguments[0])) if arguments else draw_trace()
    minutes = float(arguments[1]) if len(arguments) > 1 else 60.0
    lost = float(arguments[2]) if len(arguments) > 2 else 0.0
    counts, sources = trace.counts(), len(trace.posts)
    rate, days = sources / (minutes * 60), (trace.end - trace.start) / DAY
    report = Report(f"{sources} sources, {sum(counts)} posts in {days:.0f} days, {minutes:g} min between two polls")
    policies = {
        "uniform": poll_regularly(trace, [1.0] * sources, rate, lost=lost),
        "square-root law": poll_regularly(trace, [math.sqrt(posts) for posts in counts], rate, lost=lost),
        "adaptive": AdaptivePolling(trace, rate, lost=lost).polls(),
        "adaptive, weekly budget": AdaptivePolling(trace, rate, is_weekly=True, lost=lost).polls(),
    }
    uniform = 0.0
    for name, polls in policies.items():
        began = time.process_time()
        found = measure_delays(trace, polls)
        uniform = uniform or found.mean
        spread = ", ".join(f"{label} {percentile(found.delays, p) / 60:.1f}" for label, p in QUANTILES)
        report.add(
            name,
            f"mean {found.mean / 60:.2f} min",
            f"{spread} min, worst gap {found.longest_gap / HOUR:.1f} h",
            f"{uniform / found.mean:.2f}x ({found.requests} requests, {time.process_time() - began:.1f} s of CPU)",
        )
    best = gain_of_square_root([float(posts) for posts in counts])
    report.add("best fixed allocation", "", "in theory, for constant rates", f"{best:.2f}x")
    report.print()


def read_trace(path: Path) -> Trace:
    """Read a trace. The window is what all sources cover, or the last 28 days of the sources that cover these."""
    posts: dict[str, set[float]] = {}
    with gzip.open(path, "rt", newline="") if path.suffix == ".gz" else path.open(newline="") as file:
        for source, second in csv.reader(file):
            if second.strip().isdigit():
                # Posts of the same second are one album.
                posts.setdefault(source, set()).add(float(second))
    if not posts:
        raise SystemExit(f"{path} has no posts. A line is a source and a Unix second, as in 17,1730050806")
    ordered = [sorted(of_one) for of_one in posts.values()]
    start, end = max(of_one[0] for of_one in ordered), max(of_one[-1] for of_one in ordered)
    start = start if end - start >= SHORTEST_WINDOW else end - SHORTEST_WINDOW
    return Trace([of_one for of_one in ordered if of_one[0] <= start], start, end)


def draw_trace(sources: int = 100, days: int = 84, seed: int = 1) -> Trace:
    """Draw sources that post more by day than by night, each at its own rate."""
    chance, posts = random.Random(seed), []
    for _ in range(sources):
        rate, at = math.exp(chance.gauss(0, 1.3)) * 10 / DAY, 0.0
        of_one: list[float] = []
        while at < days * DAY:
            at += chance.expovariate(2 * rate)
            if chance.random() < (1 + math.sin(2 * math.pi * at / DAY)) / 2:
                of_one.append(at)
        posts.append(of_one)
    return Trace(posts, days * DAY / 3, days * DAY)


if __name__ == "__main__":
    main(sys.argv[1:])
