"""Print docs/reference/metrics.md: `python -m floodmark.observability.metrics > docs/reference/metrics.md`."""

from .catalogue import CHAPTERS, USES, Chapter, Described

HEAD = """# Metrics

<!-- Written by `python -m floodmark.observability.metrics > docs/reference/metrics.md`; edit that package. -->

Every process serves Prometheus metrics at `/metrics`: `floodmark up` on port 8060, `floodmark scheduler` on 8061,
`floodmark worker` on 8062 (`PORT`, `SCHEDULER_PORT`, `WORKER_PORT`). With `--processes N` the supervisor adds up the
values of its processes. A process exports every metric, including those of other roles; these stay at 0 or have no
series. `floodmark metrics list` prints the tables of this page in a terminal, with `--json` for programs.

Values that the leader measures are 0 in other processes: use the maximum, as in `max(floodmark_dead_letters)`.

Labels in *italics* have no fixed set of values. Each has at most `METRICS_MAX_LABEL_VALUES` values; further values are
counted as `other`. For a gauge, `other` is the value that was set last, so the limit should exceed the number of
channels of a process. `reason` is the class name of an error or one fixed word, never a sentence. There are no labels
for jobs, items or URLs.

"""

TAIL = """## Pushing

If Prometheus cannot reach the processes, let them push to a Pushgateway:

    METRICS_MODE=push                        # or both: push, and serve /metrics as well
    PUSHGATEWAY_URL=http://pushgateway:9091
    METRICS_PUSH_INTERVAL=15s

Each process pushes all its metrics, as `job="floodmark"` and `instance="<its name>"`, the name in
`floodmark workers`. With `--processes N` only the supervisor pushes the sum. A process that ends normally deletes its
group; the group of a killed process stays in the gateway until someone deletes it there. `push_time_seconds` shows its
age, and the [alerts](../how-to/dashboards-and-alerts.md) ignore old groups. A failed push is retried with growing
delays up to the interval and never delays executions: `floodmark_pushes_total` counts pushes, and the first failure is
logged.
Scrape the gateway with `honor_labels: true`.

`floodmark fetch` pushes too, while it runs and when it ends, as `job="floodmark-fetch"` and
`instance="<HOSTNAME>"`. This group is not deleted, so that Prometheus can scrape the last values of a run that was
shorter than its interval. The next fetch on the same host replaces it. With `--url` nothing is pushed: the server does
the work.

With `METRICS_MODE=push`, `/metrics` returns 404 and says so.

The gateway is usually in a private network, which Floodmark does not allow for other requests. Because you set its
address, this host is allowed for pushing only; you do not need to add it to `HTTP_ALLOW_HOSTS`. A user name and a
password in the URL are sent, and are masked wherever settings are shown.
"""


def page() -> str:
    """Return all metrics as a Markdown page."""
    uses = "".join(f"- {use}: {text}\n" for use, text in USES.items())
    return f"{HEAD}The last column is the use of a metric.\n\n{uses}\n{''.join(map(_chapter, CHAPTERS))}{TAIL}"


def _chapter(chapter: Chapter) -> str:
    text = f"{chapter.text}\n\n" if chapter.text else ""
    table = "| metric | type | labels | meaning | set by | use |\n|---|---|---|---|---|---|\n"
    return f"## {chapter.title}\n\n{text}{table}{''.join(map(_row, chapter.metrics))}\n"


def _row(one: Described) -> str:
    labels = ", ".join(f"*`{label}`*" if label in one.grows else f"`{label}`" for label in one.labels)
    cells = (f"`{one.name}`", one.kind, labels, one.help, one.set_by, one.where)
    return "| " + " | ".join(cells) + " |\n"


if __name__ == "__main__":
    print(page(), end="")
