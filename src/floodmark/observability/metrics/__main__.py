"""Prints docs/reference/metrics.md: `python -m floodmark.observability.metrics > docs/reference/metrics.md`."""

from .catalogue import CHAPTERS, USES, Chapter, Described

HEAD = """# Metrics

<!-- Written by `python -m floodmark.observability.metrics > docs/reference/metrics.md`; edit that package. -->

Every process serves Prometheus metrics at `/metrics`: `floodmark up` on port 8060, `floodmark scheduler` on 8061,
`floodmark worker` on 8062 (`PORT`, `SCHEDULER_PORT`, `WORKER_PORT`). With `--processes N` the supervisor adds up what
its processes count. A process exports every metric, also those of roles it does not have; these stay at 0 or have no
series. `floodmark metrics list` prints this page's tables in a terminal, with `--json` for programs.

What the leader measures is 0 on everyone else: take the largest value, as in `max(floodmark_dead_letters)`.

Labels in *italics* can grow. Each takes at most `METRICS_MAX_LABEL_VALUES` values; what comes later is counted as
`other`; a gauge shows there what was set last, so allow more values than one process has channels. `reason` is the
name of an error's class or one word of ours, never a sentence. There are no labels for jobs, items or URLs.

"""

TAIL = """## Pushing

Where Prometheus cannot reach the processes, they push to a Pushgateway:

    METRICS_MODE=push                        # or both: push, and serve /metrics as well
    PUSHGATEWAY_URL=http://pushgateway:9091
    METRICS_PUSH_INTERVAL=15s

Each process pushes everything it exports, as `job="floodmark"` and `instance="<its name>"`, the name that
`floodmark workers` shows. With `--processes N` only the supervisor pushes: the sum. A process that leaves in good order
deletes its group; one that was killed cannot, and its group stays in the gateway until someone deletes it there:
`push_time_seconds` tells how old it is, and our [alerts](../how-to/dashboards-and-alerts.md) leave it out. A push
that fails is tried again, with longer and longer pauses up to the interval, and never keeps work waiting:
`floodmark_pushes_total` counts, and the first failure is in the log.
Scrape the gateway with `honor_labels: true`.

`floodmark fetch` pushes too, while it runs and once more at its end, as `job="floodmark-fetch"` and
`instance="<HOSTNAME>"`. This group is not deleted: Prometheus can scrape the last values of a run that was shorter than
its interval. The next fetch on the same host replaces it. With `--url` nothing is pushed: the server does the work.

With `METRICS_MODE=push` there is no `/metrics`: it answers 404 and says so.

The gateway is usually in a private network, where requests of Floodmark do not go. Since its address is a setting of
yours, this one host may be asked all the same, for pushing only; nothing needs to be added to `HTTP_ALLOW_HOSTS`.
A user and a password in the URL are sent as such, and are masked wherever settings are shown.
"""


def page() -> str:
    """All metrics as a Markdown page."""
    uses = "".join(f"- {use}: {text}\n" for use, text in USES.items())
    return f"{HEAD}The last column says what a metric is for.\n\n{uses}\n{''.join(map(_chapter, CHAPTERS))}{TAIL}"


def _chapter(chapter: Chapter) -> str:
    text = f"{chapter.text}\n\n" if chapter.text else ""
    table = "| metric | type | labels | what it says | set by | for |\n|---|---|---|---|---|---|\n"
    return f"## {chapter.title}\n\n{text}{table}{''.join(map(_row, chapter.metrics))}\n"


def _row(one: Described) -> str:
    labels = ", ".join(f"*`{label}`*" if label in one.grows else f"`{label}`" for label in one.labels)
    cells = (f"`{one.name}`", one.kind, labels, one.help, one.set_by, one.where)
    return "| " + " | ".join(cells) + " |\n"


if __name__ == "__main__":
    print(page(), end="")
